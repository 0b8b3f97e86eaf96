"""Regret by settings: a row per algorithm with all regrets, the least one filled and labelled with its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lcb.charts.style.axes import axis_and_scale, axis_ends
from lcb.charts.style.formats import format_number
from lcb.charts.style.labels import check_names
from lcb.charts.style.theme import INK, apply_theme, inline_data, line_styles, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt


def grids(rows: Sequence[tuple[str, Sequence[float], str]], title: str | None = None) -> alt.LayerChart:
    """Draw a row per (algorithm, regrets, words): the least regret as a disc, the regret of the defaults, which is the
    first, as a bar, the others as rings.  `words` describe the settings with the least regret.  Infinite regrets
    (refused settings) are left out.
    """
    alt = load_altair()
    names = [name for name, _, _ in rows]
    check_names(names, "grids")
    columns: dict[str, list[str | float]] = {"name": [], "regret": [], "kind": []}
    least = []
    for name, regrets, _ in rows:
        finite = [value for value in regrets if np.isfinite(value)]
        if not finite:
            raise InputError(f"grid {name} has no finite regret; leave it out")
        least.append(min(finite))
        for i, value in enumerate(regrets):
            if np.isfinite(value):
                columns["name"].append(name)
                columns["regret"].append(value)
                columns["kind"].append("defaults" if i == 0 else "other")
    values = np.array(columns["regret"], dtype=np.float64)
    log = bool(values.min() > 0 and values.max() > 5 * values.min())
    x = alt.X("regret:Q", title="regret per user", **axis_and_scale(axis_ends(values, log), log))
    y = alt.Y("name:N", sort=None, title=None).scale(domain=names).axis(grid=True)
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=line_styles(names)[0])
    tried = alt.Chart(inline_data(**columns)).encode(x=x, y=y, color=colour)
    texts = [
        " · ".join(filter(None, (format_number(value, value), words)))
        for value, (_, _, words) in zip(least, rows, strict=True)
    ]
    best = alt.Chart(inline_data(name=names, regret=least, text=texts)).encode(y=y)
    width = 420
    layers = [
        tried.transform_filter("datum.kind == 'other'").mark_point(size=40, strokeWidth=1.2, opacity=0.6),
        tried.transform_filter("datum.kind == 'defaults'").mark_tick(size=16, thickness=2),
        best.mark_point(filled=True, size=70, opacity=1).encode(x=x, color=colour),
        best.mark_text(align="left", fontSize=11, color=INK).encode(x=alt.value(width + 12), text="text:N"),
    ]
    note = "disc: chosen; bar: defaults; ring: others tried" + ("; log scale" if log else "")
    return apply_theme(alt.layer(*layers), title, note, width=width, height=alt.Step(22))
