"""Compiled sums over rewards of items: nothing has the size of items times pairs of features."""

from __future__ import annotations

from lcb._compiled import njit


@njit(cache=True, nogil=True)
def add_grams(total, user, item, x):  # type: ignore[no-untyped-def]
    """total[user] += upper triangle of x x' for every row; `total` is (users, d (d + 1) / 2), x (I, d)."""
    d = x.shape[1]
    for n in range(len(user)):
        own, features, k = total[user[n]], x[item[n]], 0
        for a in range(d):
            for b in range(a, d):
                own[k] += features[a] * features[b]
                k += 1


@njit(cache=True, nogil=True)
def expect_squares(square, user, item, x, out):  # type: ignore[no-untyped-def]
    """out[n] = x' E[w w'] x of every row's user and item; `square` has upper triangles, (users, d (d + 1) / 2)."""
    d = x.shape[1]
    for n in range(len(user)):
        own, features, k, total = square[user[n]], x[item[n]], 0, 0.0
        for a in range(d):
            half = 0.5 * own[k] * features[a]
            k += 1
            for b in range(a + 1, d):
                half += own[k] * features[b]
                k += 1
            total += 2.0 * half * features[a]
        out[n] = total
