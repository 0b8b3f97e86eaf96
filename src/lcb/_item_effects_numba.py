"""The scores of arms with item effects, compiled: one pass in place of seven NumPy calls."""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import njit

_EXACT = {"cache": True, "nogil": True}  # sums are not reordered: equal arms get equal scores


@njit(**_EXACT)
def add_effects_to_scores(scores, means, effect, variance, weight, rise):  # type: ignore[no-untyped-def]
    """Add effects to `scores`, means plus a bonus; return the first and the last of the best arms."""
    level = _average(variance, weight)
    for k in range(len(scores)):
        own = _weigh(variance[k], level, weight, rise)
        if own > 0.0:
            bonus = scores[k] - means[k]
            scores[k] = means[k] + effect[k] + np.sqrt(bonus * bonus + own)
        else:
            scores[k] += effect[k]
    return _find_bounds(scores)


@njit(**_EXACT)
def add_effects_to_spread(spread, means, bonus, effect, variance, weight, rise):  # type: ignore[no-untyped-def]
    """The same where `spread` is the variance of the expected reward; it becomes the scores."""
    level = _average(variance, weight)
    for k in range(len(spread)):
        own = _weigh(variance[k], level, weight, rise)
        if own > 0.0:
            spread[k] = means[k] + effect[k] + np.sqrt(bonus * bonus * spread[k] + own)
        else:
            spread[k] = means[k] + bonus * np.sqrt(spread[k]) + effect[k]
    return _find_bounds(spread)


@njit(**_EXACT)
def _average(variance, weight):  # type: ignore[no-untyped-def]
    """Return the mean of the variances; 0 if they have no weight."""
    total = 0.0
    if weight > 0.0:
        for k in range(len(variance)):
            total += variance[k]
    return total / len(variance)


@njit(**_EXACT)
def _weigh(variance, level, weight, rise):  # type: ignore[no-untyped-def]
    """Return the square of the bonus of an item of this variance, among arms of the mean variance `level`."""
    if variance > level * (1.0 + 1e-9) > 0.0:  # where all are equal, their mean may be a little less
        return weight * variance * (1.0 + rise * np.log(variance / level))
    return weight * variance


@njit(**_EXACT)
def _find_bounds(scores):  # type: ignore[no-untyped-def]
    """Return the first and the last arm of the best score; that of a score that is not a number, if there is one."""
    first = last = 0
    best = -np.inf
    for k in range(len(scores)):
        if scores[k] > best:
            best, first, last = scores[k], k, k
        elif scores[k] == best:
            last = k
        elif scores[k] != scores[k]:
            return k, k
    return first, last
