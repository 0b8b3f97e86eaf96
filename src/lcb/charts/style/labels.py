"""Labels beside lines and areas in place of a legend, placed so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.charts.style.theme import INK, inline_data, load_altair
from lcb.errors import InputError

LINE = 16  # pixels from one label to the next


def check_names(names: Sequence[str], what: str) -> None:
    if not names:
        raise InputError(f"there are no {what} to draw; give at least one")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"two {what} are named {twice}; names must be unique")


def spread_labels(values: Floats, ends: tuple[float, float], log: bool, pixels: int) -> Floats:
    """Move the values as little as possible, in the same order, so that labels at them do not overlap.

    >>> spread_labels(np.array([10.0, 11.0, 60.0]), (0.0, 64.0), log=False, pixels=320)  # labels take 16 pixels
    array([ 8.9, 12.1, 60. ])
    """
    from scipy.optimize import isotonic_regression

    to, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    low, high = to(ends)
    order = np.argsort(values, kind="stable")
    room = min(LINE / pixels, 1 / max(len(values) - 1, 1)) * np.arange(len(values))
    level = isotonic_regression((to(values)[order] - low) / (high - low) - room).x
    places = np.empty(len(values))
    places[order] = np.clip(level, 0, 1 - room[-1]) + room
    return np.asarray(back(low + (high - low) * places))


def end_labels(
    pixel: float, colour: Any, end: Sequence[float], *, weak: Sequence[str] = (), log: bool = False, **columns: Any
) -> list[Any]:
    """Draw each `text` at its `place` right of the plot, with a line to the point (`end`, `value`) that it names.

    If some names are `weak`, the others are bold.  `pixel` is the width of a pixel in units of x (of log x, if `log`).
    """
    alt = load_altair()
    away = (32, 37) if weak else (16, 21)
    near, beyond = ([max(end) * np.exp(n * pixel) if log else max(end) + n * pixel] * len(end) for n in away)
    data = inline_data(end=end, near=near, beyond=beyond, **columns)
    leader = alt.Chart(data).mark_rule(strokeWidth=1 if weak else 1.5)
    layers = [leader.encode(x="end:Q", x2="near:Q", y="value:Q", y2="place:Q", color=colour)]
    is_weak = alt.FieldOneOfPredicate(field="name", oneOf=list(weak))
    for part, weight in ((is_weak, "normal"), (~is_weak, "bold")) if weak else ((None, "normal"),):
        chart = alt.Chart(data) if part is None else alt.Chart(data).transform_filter(part)
        text = chart.mark_text(align="left", baseline="middle", fontSize=12, color=INK, fontWeight=weight)
        layers.append(text.encode(x="beyond:Q", y="place:Q", text="text:N"))
    return layers
