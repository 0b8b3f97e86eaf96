"""The growth of a quantity with a size: the slope of log quantity against log size, fitted per run by least squares.

Points of one run are correlated, but runs are independent, so the slopes of the runs give a valid t interval.
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
    """The mean slope over runs and half the width of its confidence interval (nan for a single run)."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if np.isnan(self.half) else f" ± {self.half:.2f}")


def fit_slopes(at: Sequence[float], values: ArrayLike) -> Floats:
    """Fit lines to log `values` (..., n) against log `at` (n,) by least squares; return their slopes (...,).

    >>> fit_slopes([1, 2, 4, 8], [[3, 6, 12, 24], [5, 5, 5, 5]]).round(6)
    array([1., 0.])
    """
    sizes, grown = np.asarray(at, np.float64), np.asarray(values, np.float64)
    if len(sizes) < 2 or grown.shape[-1:] != sizes.shape:
        raise InputError(f"{len(sizes)} sizes, values of shape {grown.shape}; give two or more sizes, one value each")
    if not (np.isfinite(grown) & (grown > 0)).all() or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError("a size or value is not a positive number, so it has no logarithm; leave it out")
    x = np.log(sizes) - np.log(sizes).mean()
    if not x.any():
        raise InputError(f"all sizes are {sizes[0]:g}; give at least two different sizes")
    return np.asarray(np.log(grown) @ x / (x @ x))


def mean_slope(at: Sequence[float], values: ArrayLike, level: float = 0.95) -> Slope:
    """Return the mean slope of `values` (runs, n), with its t interval over runs.

    >>> str(mean_slope([1, 10], [[1, 10], [1, 100]]))
    '1.50 ± 6.35'
    """
    from scipy.stats import t

    each = np.atleast_1d(fit_slopes(at, values))
    if len(each) < 2:
        return Slope(float(each.mean()), float("nan"))
    half = t.ppf((1 + level) / 2, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    return Slope(float(each.mean()), float(half))
