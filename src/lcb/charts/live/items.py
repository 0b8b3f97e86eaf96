"""Items of a service: what they are liked beyond their features, and their rewards over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcb.charts.live import parts
from lcb.charts.live.parts import Rows
from lcb.charts.style.theme import INK, VERSIONS, apply_theme, load_altair

if TYPE_CHECKING:
    import altair as alt

_MOST = 32  # letters of an item's name
_KINDS = {"best": VERSIONS[0], "worst": VERSIONS[1], "new": VERSIONS[2]}


def items_by_appeal(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw the effects of items with their intervals of 95 %, from rows {item, kind, effect, low, high, rewards}.

    `kind` is best, worst or new; the best is on top.
    """
    alt = load_altair()
    base = alt.Chart().transform_calculate(
        name=f"truncate(datum.item, {_MOST})", text="datum.kind + ' · ' + format(datum.rewards, ',d')"
    )
    order = alt.EncodingSortField("effect", op="max", order="descending")
    y = alt.Y("name:N", title=None, sort=order).axis(labelLimit=220)
    colour = alt.Color("kind:N", legend=None).scale(domain=list(_KINDS), range=list(_KINDS.values()))
    x = alt.X("low:Q", title="liked beyond its features").axis(tickCount=4)
    hints = ["item:N", "kind:N", *(alt.Tooltip(f"{one}:Q", format=".3f") for one in ("effect", "low", "high"))]
    rule = base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q", y=y, color=colour, tooltip=hints)
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x="effect:Q", y=y, color=colour, tooltip=hints)
    text = base.mark_text(align="left", dx=8, fontSize=12, color=INK).encode(x="high:Q", y=y, text="text:N")
    data = parts.table(rows, texts=["item", "kind"], numbers=["effect", "low", "high", "rewards"])
    chart = alt.layer(rule, point, text, data=data)
    return apply_theme(
        chart, title, "intervals of 95 %, and the number of users", width=parts.WIDTH, height=alt.Step(24)
    )


def item_rates(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw rewards per offer over time, a line per item with a larger point for more offers.

    Rows are {t, item, offers, rate}.
    """
    alt = load_altair()
    base = parts.time_chart().transform_calculate(name=f"truncate(datum.item, {_MOST})")
    colour = alt.Color("name:N", legend=None).scale(range=list(VERSIONS))
    x, y = parts.time_axis(), alt.Y("rate:Q", title="reward per offer").scale(domainMin=0).axis(tickCount=4)
    hints = ["item:N", alt.Tooltip("time:T", format="%H:%M"), alt.Tooltip("rate:Q", format=".3f"), "offers:Q"]
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    size = alt.Size("offers:Q", legend=None).scale(range=[15, 200], domainMin=0)
    point = base.mark_point(filled=True, opacity=1).encode(x=x, y=y, color=colour, size=size, tooltip=hints)
    ends = parts.keep_last(base, "t", "name").transform_calculate(text="datum.name + ' · ' + format(datum.rate, '.2f')")
    layers = [line, point, *parts.ranked_labels(ends, "time", "rate", colour, 22)]
    data = parts.table(rows, texts=["item"], numbers=["t", "offers", "rate"])
    words = "larger points: more offers"
    return apply_theme(parts.layer_charts(layers, data), title, words, width=parts.WIDTH, height=parts.HEIGHT)
