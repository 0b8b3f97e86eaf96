"""Model versions compared: users served, held-out scores, and rewards until a new user's class is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcb.charts.live import parts
from lcb.charts.live.parts import Rows
from lcb.charts.style.theme import AXIS, INK, SURFACE, apply_theme, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt

_MOST_BARS = 10


def users_per_model(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """How many users each model version serves, from rows {model, users}; the newest ten, the newest on top."""
    alt = load_altair()
    age = alt.WindowFieldDef(**{"op": "rank", "as": "age"})
    base = alt.Chart().transform_window([age], sort=[alt.SortField("model", order="descending")])
    base = parts.add_version(base.transform_filter(f"datum.age <= {_MOST_BARS}"))
    base = base.transform_calculate(text="format(datum.users, ',d')")
    y = alt.Y("name:N", title=None, sort=alt.EncodingSortField("model", op="max", order="descending"))
    x = alt.X("users:Q", title="users").axis(tickCount=4, format=",d", tickMinStep=1)
    bar = base.mark_bar(height=18).encode(x=x, y=y, color=parts.version_colour(), tooltip=["name:N", "users:Q"])
    text = base.mark_text(align="left", dx=5, fontSize=12, color=INK).encode(x=x, y=y, text="text:N")
    data = parts.table(rows, numbers=["model", "users"])
    return apply_theme(alt.layer(bar, text, data=data), title, width=parts.WIDTH, height=alt.Step(28))


def concentration(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """The share of new users a model version knows after so many rewards, a line per version (the newest six).

    Rows {model, steps, users}: so many users needed so many rewards until one class held 90 % of their posterior;
    steps "more" counts those of whom no class holds it yet, who are part of the whole.
    """
    alt = load_altair()
    known = alt.WindowFieldDef(**{"op": "sum", "field": "users", "as": "known"})
    base = parts.keep_newest(parts.add_version(alt.Chart())).transform_joinaggregate(
        all="sum(users)", groupby=["model"]
    )
    base = base.transform_filter("datum.steps != 'more'").transform_calculate(step="toNumber(datum.steps)")
    base = base.transform_window([known], sort=[alt.SortField("step")], groupby=["model"])
    base = base.transform_calculate(share="datum.all > 0 ? datum.known / datum.all : 0")
    x = alt.X("step:Q", title="rewards seen").scale(nice=False, zero=False).axis(grid=False, tickMinStep=1, format=",d")
    y = alt.Y("share:Q", axis=parts.percent_axis(), title="users with a class at 90 %").scale(domain=[0, 1])
    colour = parts.version_colour()
    line = base.mark_line(strokeWidth=2, interpolate="step-after").encode(x=x, y=y, color=colour)
    hints = ["name:N", alt.Tooltip("step:Q", title="rewards"), alt.Tooltip("share:Q", format=".1%"), "users:Q"]
    point = base.mark_point(filled=True, size=30, opacity=1).encode(x=x, y=y, color=colour, tooltip=hints)
    text = f"datum.name + ' · ' + {parts.percent_text('datum.share')}"
    ends = parts.keep_last(base, "step", "model").transform_calculate(text=text)
    layers = [line, point, *parts.ranked_labels(ends, "step", "share", colour, 46)]
    data = parts.table(rows, texts=["steps"], numbers=["model", "users"])
    wrong = [row["steps"] for row in rows if row["steps"] != "more" and not isinstance(row["steps"], int)]
    if wrong:
        raise InputError(f"steps is {wrong[0]!r} in a row; send a number of rewards, or 'more'")
    return apply_theme(parts.layer_charts(layers, data), title, width=parts.WIDTH, height=parts.HEIGHT)


def model_scores(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """The held-out score of each model version when it was made, the active one filled.

    Rows {t, model, score, active}; t in seconds since 1970, active 1 for the version that new users get and else 0.
    """
    alt = load_altair()
    base = parts.add_version(parts.time_chart())
    x = parts.time_axis().scale(padding=16)
    y = alt.Y("score:Q", title="held-out score").scale(zero=False, padding=12).axis(tickCount=4)
    line = base.mark_line(strokeWidth=1, color=AXIS).encode(x=x, y=y)
    hints = ["name:N", alt.Tooltip("time:T", format="%d %b %H:%M"), alt.Tooltip("score:Q", format=".4f")]
    mark = {"size": 90, "opacity": 1, "strokeWidth": 2}
    ring = base.mark_point(filled=False, fill=SURFACE, **mark).encode(
        x=x, y=y, color=parts.version_colour(), tooltip=hints
    )
    active = base.transform_filter("datum.active").mark_point(filled=True, **mark)
    active = active.encode(x=x, y=y, color=parts.version_colour(), tooltip=hints)
    text = base.mark_text(dy=-14, fontSize=12, color=INK).encode(x=x, y=y, text="name:N")
    data = parts.table(rows, numbers=["t", "model", "score", "active"])
    note = "filled: the version for new users"
    return apply_theme(
        alt.layer(line, ring, active, text, data=data), title, note, width=parts.WIDTH, height=parts.HEIGHT
    )
