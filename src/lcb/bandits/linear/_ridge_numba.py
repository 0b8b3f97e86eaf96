"""Compiled functions for bandits whose state is [A, b]: the Cholesky factor of A, and solving with it."""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import EXACT, njit

_ROUNDING = 2.0**-50  # a smaller pivot, relative to the diagonal, is rounding


@njit(**EXACT)
def factor(gram, lower):  # type: ignore[no-untyped-def]
    """Set `lower` (d, d) to C with C C' = `gram`; return False if there is none."""
    d = len(lower)
    for i in range(d):
        for j in range(i + 1):
            total = gram[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i > j:
                lower[i, j] = total / lower[j, j]
            elif total > _ROUNDING * gram[i, i]:
                lower[i, i] = np.sqrt(total)
            else:
                return False
    return True


@njit(**EXACT)
def solve_upper(lower, y):  # type: ignore[no-untyped-def]
    """y = C'^-1 y"""
    for i in range(len(y) - 1, -1, -1):
        total = y[i]
        for k in range(i + 1, len(y)):
            total -= lower[k, i] * y[k]
        y[i] = total / lower[i, i]


@njit(**EXACT)
def add_reward(state, x, reward):  # type: ignore[no-untyped-def]
    """[A, b] += x [x, r]'"""
    d = len(x)
    for i in range(d):
        for j in range(d):
            state[i, j] += x[i] * x[j]
        state[i, d] += x[i] * reward
