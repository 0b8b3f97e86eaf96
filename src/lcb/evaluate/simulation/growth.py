"""How a regret grows with a size: the slope of a line through (log size, log regret), one per run.

The runs are independent, so their slopes give a t interval, whatever the points of one run have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats
from lcb.errors import InputError


@dataclass(frozen=True)
class Slope:
    """The mean slope over runs and half the width of its interval; nan for a single run."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if np.isnan(self.half) else f" ± {self.half:.2f}")


def slopes(at: Sequence[float], values: ArrayLike) -> Floats:
    """The slope of log `values` (..., n) in log `at` (n,) by least squares, (...,).

    >>> slopes([1, 2, 4, 8], [[3, 6, 12, 24], [5, 5, 5, 5]]).round(6)
    array([1., 0.])
    """
    sizes, grown = np.asarray(at, np.float64), np.asarray(values, np.float64)
    if len(sizes) < 2 or grown.shape[-1:] != sizes.shape:
        raise InputError(
            f"{len(sizes)} sizes for values of shape {grown.shape}; send at least two sizes and one value for each"
        )
    if not (np.isfinite(grown) & (grown > 0)).all() or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError("a size or value is not a positive number, and has no logarithm; leave it out")
    x = np.log(sizes) - np.log(sizes).mean()
    if not x.any():
        raise InputError(f"all sizes are {sizes[0]:g}; send at least two different sizes")
    return np.asarray(np.log(grown) @ x / (x @ x))


def mean_slope(at: Sequence[float], values: ArrayLike, level: float = 0.95) -> Slope:
    """The slopes of `values` (runs, n), with their t interval over runs.

    >>> str(mean_slope([1, 10], [[1, 10], [1, 100]]))
    '1.50 ± 6.35'
    """
    from scipy.stats import t

    each = np.atleast_1d(slopes(at, values))
    if len(each) < 2:
        return Slope(float(each.mean()), float("nan"))
    half = t.ppf((1 + level) / 2, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    return Slope(float(each.mean()), float(half))
