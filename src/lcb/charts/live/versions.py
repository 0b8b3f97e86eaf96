"""Charts that compare model versions: users served, held-out scores, decisions until a new user's class is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcb.charts.live import parts
from lcb.charts.live.parts import Rows
from lcb.charts.style.theme import AXIS, INK, SURFACE, apply_theme, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt

_MOST_BARS = 10


def users_per_model(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw the number of users of each model version, from rows {model, users}: the newest ten, the newest on top."""
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
    """Draw the share of new users whose class is known after each number of decisions, for the newest six versions.

    A row {model, steps, users} counts the users for whom one class first had 90 % of the posterior after `steps`
    decisions; steps "more" counts the users for whom no class has it yet.
    """
    alt = load_altair()
    known = alt.WindowFieldDef(**{"op": "sum", "field": "users", "as": "known"})
    base = parts.keep_newest(parts.add_version(alt.Chart())).transform_joinaggregate(
        all="sum(users)", groupby=["model"]
    )
    base = base.transform_filter("datum.steps != 'more'").transform_calculate(step="toNumber(datum.steps)")
    base = base.transform_window([known], sort=[alt.SortField("step")], groupby=["model"])
    base = base.transform_calculate(share="datum.all > 0 ? datum.known / datum.all : 0")
    x = alt.X("step:Q", title="decisions").scale(nice=False, zero=False).axis(grid=False, tickMinStep=1, format=",d")
    y = alt.Y("share:Q", axis=parts.percent_axis(), title="users with a class at 90 %").scale(domain=[0, 1])
    colour = parts.version_colour()
    line = base.mark_line(strokeWidth=2, interpolate="step-after").encode(x=x, y=y, color=colour)
    hints = ["name:N", alt.Tooltip("step:Q", title="decisions"), alt.Tooltip("share:Q", format=".1%"), "users:Q"]
    point = base.mark_point(filled=True, size=30, opacity=1).encode(x=x, y=y, color=colour, tooltip=hints)
    text = f"datum.name + ' · ' + {parts.percent_text('datum.share')}"
    ends = parts.keep_last(base, "step", "model").transform_calculate(text=text)
    layers = [line, point, *parts.ranked_labels(ends, "step", "share", colour, 46)]
    data = parts.table(rows, texts=["steps"], numbers=["model", "users"])
    wrong = [row["steps"] for row in rows if row["steps"] != "more" and not isinstance(row["steps"], int)]
    if wrong:
        raise InputError(f"steps is {wrong[0]!r} in a row; give a number of decisions, or 'more'")
    return apply_theme(parts.layer_charts(layers, data), title, width=parts.WIDTH, height=parts.HEIGHT)


def model_scores(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw the held-out score of each model version against the time it was made; the active version is filled.

    Rows are {t, model, score, active}; t in seconds since 1970, active 1 for the version that new users get, else 0.
    """
    alt = load_altair()
    base = parts.add_version(parts.time_chart())
    x = parts.time_axis().scale(padding=16)
    y = alt.Y("score:Q", title="held-out score").scale(zero=False, padding=12).axis(tickCount=4)
    line = base.mark_line(strokeWidth=1, color=AXIS).encode(x=x, y=y)
    hints = ["name:N", alt.Tooltip("time:T", format="%d %b %H:%M"), alt.Tooltip("score:Q", format=".4f")]
    mark = {"size": 90, "opacity": 1, "strokeWidth": 2}
    place: dict[str, Any] = {"x": x, "y": y, "color": parts.version_colour(), "tooltip": hints}
    ring = base.mark_point(filled=False, fill=SURFACE, **mark).encode(**place)
    active = base.transform_filter("datum.active").mark_point(filled=True, **mark).encode(**place)
    text = base.mark_text(dy=-14, fontSize=12, color=INK).encode(x=x, y=y, text="name:N")
    data = parts.table(rows, numbers=["t", "model", "score", "active"])
    chart = alt.layer(line, ring, active, text, data=data)
    return apply_theme(chart, title, "filled: the version for new users", width=parts.WIDTH, height=parts.HEIGHT)
