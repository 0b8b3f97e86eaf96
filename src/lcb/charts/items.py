"""Item effects as points with their intervals: the best, the worst and the least known items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lcb.charts.style.formats import escape_unprintable
from lcb.charts.style.theme import BAR, INK, apply_theme, inline_data, load_altair
from lcb.models.item_effects import ItemEffect

if TYPE_CHECKING:
    import altair as alt

_LONGEST = 40  # letters of an item's id


def item_effects(lists: Mapping[str, Sequence[ItemEffect]]) -> alt.VConcatChart:
    """Draw a panel for each list, an item per line: its effect beyond the mean of all items, and the 95 % interval."""
    alt = load_altair()
    every = [one for listed in lists.values() for one in listed]
    low, high = min((one.low for one in every), default=0.0), max((one.high for one in every), default=0.0)
    panels = []
    for name, listed in lists.items():
        data = inline_data(
            item=[escape_unprintable(one.item)[:_LONGEST] for one in listed],
            effect=[one.effect for one in listed],
            low=[one.low for one in listed],
            high=[one.high for one in listed],
        )
        scale = alt.Scale(domain=[min(low, 0.0), max(high, 0.0)])
        base = alt.Chart(data).encode(y=alt.Y("item:N", sort=None, title=None))
        line = base.mark_rule(color=BAR, strokeWidth=3).encode(
            x=alt.X("low:Q", scale=scale, title="reward beyond features, against the mean item"), x2="high:Q"
        )
        point = base.mark_point(filled=True, size=50, color=INK, opacity=1).encode(x=alt.X("effect:Q", scale=scale))
        zero = alt.Chart(inline_data(x=[0.0])).mark_rule(color=INK, strokeDash=[4, 3]).encode(x="x:Q")
        panels.append(alt.layer(line, point, zero).properties(title=name, width=420, height=alt.Step(20)))
    return apply_theme(alt.vconcat(*panels), None)
