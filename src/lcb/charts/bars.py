"""A comparison as horizontal bars, each with its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lcb.charts.style.axes import axis_and_scale, axis_ends
from lcb.charts.style.formats import format_number
from lcb.charts.style.labels import check_names
from lcb.charts.style.theme import ALGORITHMS, BAR, INK, SURFACE, apply_theme, inline_data, load_altair, normalize_name
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt


def bars(
    rows: Sequence[tuple[str, float]],
    x_title: str,
    title: str | None = None,
    reference: float | None = None,
    log: bool = False,
) -> alt.LayerChart:
    """Draw horizontal bars in the order given, each with its value, and a dashed rule at `reference`.

    A bar named after an algorithm has its colour, also with more words after a colon.
    """
    alt = load_altair()
    names, values = [name for name, _ in rows], np.array([value for _, value in rows], dtype=np.float64)
    check_names(names, "bars")
    shown = values if reference is None else np.append(values, reference)
    wrong = ~np.isfinite(shown) | (log & (shown <= 0))
    if wrong.any():
        wanted = "above 0 on a log axis; drop it, or draw with log=False" if log else "finite; drop it"
        raise InputError(f"a bar or the reference is {shown[wrong][0]}; it must be {wanted}")
    ends = axis_ends(shown, log)
    if ends[0] < 0:  # room for the value left of a negative bar
        ends = ends[0] - 0.14 * (ends[1] - ends[0]), ends[1]
    texts = [format_number(value, value) for value in values]
    data = inline_data(name=names, value=values, base=[ends[0] if log else 0.0] * len(rows), text=texts)
    colours = [_choose_colour(normalize_name(name.partition(":")[0])) for name in names]
    base = alt.Chart(data).encode(
        x=alt.X("value:Q", title=x_title, **axis_and_scale(ends, log)), y=alt.Y("name:N", sort=None, title=None)
    )
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=colours)
    layers = [base.mark_bar(height=18).encode(x2="base:Q", color=colour)]
    if reference is not None:
        rule = alt.Chart(inline_data(value=[reference], text=[format_number(reference, reference)])).encode(x="value:Q")
        layers.append(rule.mark_rule(color=INK, strokeDash=[4, 3]))
        layers.append(rule.mark_text(dy=-9, fontSize=11).encode(y=alt.value(0), text="text:N"))
    for halo in ({"stroke": SURFACE, "strokeWidth": 4}, {}):  # the halo keeps values legible on a rule or grid line
        for side, align, dx in (("datum.value >= 0", "left", 5), ("datum.value < 0", "right", -5)):
            text = base.transform_filter(side).mark_text(align=align, dx=dx, fontSize=12, **halo)
            layers.append(text.encode(text="text:N"))
    return apply_theme(alt.layer(*layers), title, width=420, height=alt.Step(28))


def _choose_colour(name: str) -> str:
    """Return the colour of the algorithm, or of its family (the first word of its name)."""
    return ALGORITHMS.get(name, ALGORITHMS.get(name.split("-")[0], (BAR,)))[0]
