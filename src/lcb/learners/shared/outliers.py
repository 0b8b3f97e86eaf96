"""Finds users whose features are so much larger than everybody else's that they alone would decide the classes.

A reward counts in learning with the square of its features.  One reward of an arm whose feature is 1,000,000 where all
others have 1 counts as much as a billion of theirs, so that whoever may send decisions could bend what everybody gets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.stats import UserStats, upper

_TIMES = 5.0  # a feature this many times as large as usual is strange
_FEWEST = 10  # users with a feature, from which what is usual is known


def find_outliers(stats: UserStats) -> NDArray[np.bool_]:
    """Return which users have a strangely large feature and, by its squares, count for more than all users together.

    What is usual is the median over the users who have the feature; of a feature that few have, the largest usual value
    of the others.  So it takes half of the users to change it.

    >>> x = np.ones((40, 1))
    >>> x[7] = 1e6
    >>> np.flatnonzero(find_outliers(UserStats.from_rows(np.arange(40), x, np.zeros(40))))
    array([7])
    """
    rows, columns = upper(stats.n_features)
    features = np.flatnonzero(rows == columns)
    total, mean = _find_usual(stats, features)
    strange = np.zeros(stats.n_users, bool)
    for usual_total, usual_mean, row in zip(total, mean, features, strict=True):
        squares = stats.packed[row]
        strange |= (squares > stats.n_users * usual_total) & (squares > _TIMES**2 * usual_mean * stats.count)
    return strange


def _find_usual(stats: UserStats, features: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return of each feature the usual sum of squares of a user, and the usual mean; infinite if nothing is known."""
    usual = np.full((2, len(features)), np.nan)
    for j, row in enumerate(features):
        has = stats.packed[row] > 0
        if has.sum() >= _FEWEST:
            squares = stats.packed[row, has]
            usual[:, j] = np.median(squares), np.median(squares / stats.count[has])
    known = ~np.isnan(usual[0])
    usual[:, ~known] = usual[:, known].max(axis=1, keepdims=True) if known.any() else np.inf
    return usual[0], usual[1]
