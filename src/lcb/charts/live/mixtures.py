"""The classes of a mixture over time: born, growing and fading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcb.charts.live import parts
from lcb.charts.live.parts import Rows
from lcb.charts.style.theme import VERSIONS, apply_theme, load_altair

if TYPE_CHECKING:
    import altair as alt


def class_shares(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw the share of each class against the number of users who have left, from rows {users, number, share}."""
    alt = load_altair()
    base = alt.Chart().transform_calculate(name="'class ' + (datum.number + 1)", slot=f"datum.number % {len(VERSIONS)}")
    x = alt.X("users:Q", title="users who have left").scale(nice=False, zero=False)
    x = x.axis(grid=False, tickMinStep=1, format=",d", tickCount=5)
    y = alt.Y("share:Q", axis=parts.percent_axis(), title="share of recent users").scale(domainMin=0)
    colour = parts.version_colour()
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, detail="number:N")
    hints = ["name:N", alt.Tooltip("users:Q", title="users who have left", format=",d")]
    hints.append(alt.Tooltip("share:Q", format=".1%"))
    point = base.mark_point(filled=True, size=24, opacity=1).encode(x=x, y=y, color=colour, tooltip=hints)
    ends = parts.keep_last(base, "users", "number").transform_calculate(
        text=f"datum.name + ' · ' + {parts.percent_text('datum.share')}"
    )
    layers = [line, point, *parts.ranked_labels(ends, "users", "share", colour, 46)]
    data = parts.table(rows, numbers=["users", "number", "share"])
    return apply_theme(parts.layer_charts(layers, data), title, width=parts.WIDTH, height=parts.HEIGHT)
