"""Compiled sums over rewards of items: nothing has the size of items times pairs of features."""

from __future__ import annotations

from lcb.runtime.compiled import njit


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


@njit(nogil=True, cache=True)
def fit_rows(user, item, x, mean, square, fitted, spread):  # type: ignore[no-untyped-def]
    """Set `fitted` to x . m and, unless it is empty, `spread` to x' E[w w'] x - (x . m)^2, of rows (n,).

    `user` are rows of `mean` (users, d) and of `square` (users, d (d + 1) / 2), upper triangles; `item` those of `x`.
    """
    d = x.shape[1]
    for row in range(len(user)):
        own, shown = mean[user[row]], x[item[row]]
        product = 0.0
        for k in range(d):
            product += own[k] * shown[k]
        fitted[row] = product
        if len(spread) == 0:
            continue
        second, total, place = square[user[row]], 0.0, 0
        for k in range(d):
            if shown[k] != 0.0:
                line = 0.5 * second[place] * shown[k]
                for other in range(k + 1, d):
                    line += second[place + other - k] * shown[other]
                total += 2.0 * line * shown[k]
            place += d - k
        spread[row] = max(total - product * product, 0.0)
