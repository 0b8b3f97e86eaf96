"""Compiled ridge regression on packed statistics, for the clustering recommenders.

A row packs the upper triangle of sum x x' and then sum r x, as `UserStats` does: p = d (d + 1) / 2 + d numbers.
Every call solves from the sums; no inverse is kept, so no rounding errors of rank-one updates accumulate.
"""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def factorise(packed, ridge, lower, y):  # type: ignore[no-untyped-def]
    """Set L = `lower` (d, d), lower triangle only, and y with L L' = ridge I + sum x x' and L y = sum r x."""
    d, k = len(y), 0
    for a in range(d):
        for b in range(a, d):
            lower[b, a] = packed[k]
            k += 1
        lower[a, a] += ridge
    for a in range(d):
        total = lower[a, a]
        for j in range(a):
            total -= lower[a, j] * lower[a, j]
        diagonal = np.sqrt(total)
        lower[a, a] = diagonal
        for b in range(a + 1, d):
            total = lower[b, a]
            for j in range(a):
                total -= lower[b, j] * lower[a, j]
            lower[b, a] = total / diagonal
    for a in range(d):
        total = packed[k + a]
        for j in range(a):
            total -= lower[a, j] * y[j]
        y[a] = total / lower[a, a]


@njit(**EXACT)
def weights(packed, ridge, lower, theta):  # type: ignore[no-untyped-def]
    """Set theta = (ridge I + sum x x')^-1 sum r x, (d,); `lower` (d, d) is working memory."""
    d = len(theta)
    factorise(packed, ridge, lower, theta)
    for i in range(d):
        a = d - 1 - i
        total = theta[a]
        for j in range(a + 1, d):
            total -= lower[j, a] * theta[j]
        theta[a] = total / lower[a, a]


@njit(**EXACT)
def ucb_scores(packed, ridge, width, context, scores):  # type: ignore[no-untyped-def]
    """Set scores[k] = theta . x_k + width sqrt(x_k' A^-1 x_k), A = ridge I + sum x x'; return the highest."""
    n_arms, d = context.shape
    lower, y, z = np.empty((d, d)), np.empty(d), np.empty(d)
    factorise(packed, ridge, lower, y)
    best = -np.inf
    for k in range(n_arms):
        mean, spread = 0.0, 0.0
        for a in range(d):
            total = context[k, a]
            for j in range(a):
                total -= lower[a, j] * z[j]
            z[a] = total / lower[a, a]
            mean += y[a] * z[a]
            spread += z[a] * z[a]
        scores[k] = mean + width * np.sqrt(spread)
        best = max(best, scores[k])
    return best
