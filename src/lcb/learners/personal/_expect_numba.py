"""The E-step of personal classes for a block of users, compiled.

With z = moment - gram mu_h, L L' = Sigma_h^-1 + gram and y = L^-1 z, a user's weights under class h have mean
mu_h + L'^-1 y and covariance (L L')^-1.  With one covariance for all classes L is the same for all of them.
"""

from __future__ import annotations

import numpy as np

from lcb.runtime._copies_numba import copy_vector
from lcb.runtime.compiled import njit

_FAST = {"contract", "reassoc", "nnan", "nsz"}
_COMPILED = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": _FAST}
_LEAST = 1e-9  # a class with a smaller responsibility for a user is left out of their sums


@njit(**_COMPILED)
def expect(  # type: ignore[no-untyped-def]
    gram, moment, constant, log_pi, mu, precision, half_log, mass, first, second, spread, mean, square
):
    """Add up one block and return the sum of its users' log evidence.

    In: `gram` (n, d (d + 1) / 2), `moment` (n, d), `constant` (n,) as in lcb.models.marginal; `precision` (C, d, d) and
    `half_log` = log|precision| / 2 (C,) with C = N, or C = 1 for one covariance.  Out, added to: `mass` (N,), `first`
    (N, d) and `second` (N, d, d), the sums of 1, D and D D' with D the mean's distance from mu_h, and `spread`
    (C, d, d) of the covariances, upper triangles only; set: each user's mean (n, d) and E[w w'] (n, d (d + 1) / 2).
    """
    n_users, d = moment.shape
    n, tied = len(mu), len(precision) == 1
    roots, inverse, size = np.empty((len(precision), d, d)), np.empty((d, d)), np.empty((d, d))
    y, resp, own, evidence = np.empty((n, d)), np.empty(n), np.empty(d), 0.0
    for u in range(n_users):
        half_determinant = 0.0
        for h in range(n):
            root = roots[0 if tied else h]
            if h == 0 or not tied:
                half_determinant = _factorise(root, precision[0 if tied else h], gram[u])
                half_determinant -= half_log[0 if tied else h]
            z = y[h]
            copy_vector(moment[u], z)
            _subtract_product(z, gram[u], mu[h])
            fitted = 0.0
            for i in range(d):
                fitted += mu[h, i] * (moment[u, i] + z[i])
            explained = 0.0
            for k in range(d):  # y <- L^-1 z
                z[k] /= root[k, k]
                explained += z[k] * z[k]
                for j in range(k + 1, d):
                    z[j] -= z[k] * root[k, j]
            resp[h] = log_pi[h] - 0.5 * (constant[u] - fitted - explained) - half_determinant
        evidence += _normalise(resp)
        mean[u], square[u] = 0.0, 0.0
        if tied:
            _invert(roots[0], inverse, size)
            _add_upper(spread[0], square[u], inverse, 1.0)
        for h in range(n):
            if resp[h] < _LEAST:
                continue
            root = roots[0 if tied else h]
            if not tied:
                _invert(root, inverse, size)
                _add_upper(spread[h], square[u], inverse, resp[h])
            for i in range(d - 1, -1, -1):  # D = L'^-1 y
                total = y[h, i]
                for k in range(i + 1, d):
                    total -= root[i, k] * own[k]
                own[i] = total / root[i, i]
            mass[h] += resp[h]
            for i in range(d):
                first[h, i] += resp[h] * own[i]
                for j in range(i, d):
                    second[h, i, j] += resp[h] * own[i] * own[j]
            for i in range(d):
                own[i] += mu[h, i]
                mean[u, i] += resp[h] * own[i]
            place = 0
            for i in range(d):
                for j in range(i, d):
                    square[u, place] += resp[h] * own[i] * own[j]
                    place += 1
    return evidence


@njit(**_COMPILED)
def _factorise(root, precision, gram):  # type: ignore[no-untyped-def]
    """L' of precision + gram = L L', an upper triangle; returns half the log of the determinant."""
    d, place, half = len(root), 0, 0.0
    for i in range(d):
        for j in range(i, d):
            root[i, j] = precision[i, j] + gram[place]
            place += 1
    for k in range(d):
        pivot = np.sqrt(root[k, k])
        half += np.log(pivot)
        for j in range(k, d):
            root[k, j] /= pivot
        for i in range(k + 1, d):
            factor = root[k, i]
            for j in range(i, d):
                root[i, j] -= factor * root[k, j]
    return half


@njit(**_COMPILED)
def _subtract_product(z, gram, mu):  # type: ignore[no-untyped-def]
    """z -= gram mu, gram an upper triangle"""
    place, d = 0, len(z)
    for i in range(d):
        z[i] -= gram[place] * mu[i]
        place += 1
        for j in range(i + 1, d):
            z[i] -= gram[place] * mu[j]
            z[j] -= gram[place] * mu[i]
            place += 1


@njit(**_COMPILED)
def _normalise(resp):  # type: ignore[no-untyped-def]
    """Log weights to probabilities in place; returns log sum exp."""
    top, total = resp.max(), 0.0
    for h in range(len(resp)):
        resp[h] = np.exp(resp[h] - top)
        total += resp[h]
    for h in range(len(resp)):
        resp[h] /= total
    return top + np.log(total)


@njit(**_COMPILED)
def _invert(root, inverse, own):  # type: ignore[no-untyped-def]
    """Upper triangle of (L L')^-1 into `inverse`; `own` holds L^-1 meanwhile."""
    d = len(root)
    for i in range(d):
        own[i] = 0.0
        for k in range(i):
            factor = root[k, i]
            for j in range(k + 1):
                own[i, j] -= factor * own[k, j]
        own[i, i] = 1.0
        for j in range(i + 1):
            own[i, j] /= root[i, i]
    inverse[:] = 0.0
    for k in range(d):
        for i in range(k + 1):
            factor = own[k, i]
            for j in range(i, k + 1):
                inverse[i, j] += factor * own[k, j]


@njit(**_COMPILED)
def _add_upper(total, packed, matrix, weight):  # type: ignore[no-untyped-def]
    """Add an upper triangle to another, and to one in the order of `lcb.stats.upper`."""
    place = 0
    for i in range(len(matrix)):
        for j in range(i, len(matrix)):
            total[i, j] += weight * matrix[i, j]
            packed[place] += weight * matrix[i, j]
            place += 1
