"""Linear axes that start at 0, and log axes between round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.charts.style.theme import load_altair


def axis_ends(values: Floats, log: bool) -> tuple[float, float]:
    """Return the ends of an axis: from 0 to the largest value, or between round numbers if it is a log axis."""
    low, high = float(values.min()), float(values.max())
    if log:
        return ladder(low / 100, 0.8 * low)[-1], ladder(high, 100 * high)[0]
    return min(low, 0.0), max(high, 0.0 if low < 0 else high or 1.0)


def axis_and_scale(ends: tuple[float, float], log: bool) -> dict[str, Any]:
    alt = load_altair()
    scale = alt.Scale(type="log" if log else "linear", domain=list(ends), nice=False, zero=False)
    if not log:
        return {"scale": scale, "axis": alt.Axis(tickCount=6)}
    ticks = ladder(*ends)
    if len(ticks) > 12:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    return {"scale": scale, "axis": alt.Axis(values=ticks, format=",~r")}


def ladder(low: float, high: float) -> list[float]:
    """Return the numbers 1, 2, 5, 10, 20, ... from low to high.

    >>> ladder(0.2, 10)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    """
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [x for n in powers for x in (float(f"{digit}e{n}") for digit in (1, 2, 5)) if low <= x <= high]
