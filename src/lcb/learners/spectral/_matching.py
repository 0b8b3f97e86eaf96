"""Finds classes whose moments match the measured ones best, from a nearby start (Gauss-Newton).

    min_{pi, beta}  sum_k  c_k (v_k - s_k)' G_k (v_k - s_k)        v_k = sum_h pi_h lifted_k(beta_h), k = 1, 2, 3

s_k are the least-squares moments, G_k their Gram matrices and c_k = 1, 1/2, 1/15: one over the variance of the k-th
power of a normal reward.  Whitening uses the second and third moments one after the other and magnifies their errors;
this uses all three at once, with the rank that the classes give them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from lcb.arrays import Floats
from lcb.learners.spectral._lifted import entries, weights

_POWER_VARIANCE = (1.0, 2.0, 15.0)
_MOST_STEPS = 100


def match_moments(
    grams: Sequence[Floats], moments: Sequence[Floats], pi: Floats, beta: Floats
) -> tuple[Floats, Floats]:
    """Return `pi` (N,) and `beta` (N, d), from the normal equations of degree 1, 2 and 3 and a start."""
    roots = [
        np.linalg.cholesky(gram).T / np.sqrt(variance) for gram, variance in zip(grams, _POWER_VARIANCE, strict=True)
    ]
    targets = [
        np.linalg.solve(root.T, moment) / variance
        for root, moment, variance in zip(roots, moments, _POWER_VARIANCE, strict=True)
    ]
    n, d = beta.shape

    def split(parameters: Floats) -> tuple[Floats, Floats]:
        logits = parameters[n * d :]
        shares = np.exp(logits - logits.max())
        return shares / shares.sum(), parameters[: n * d].reshape(n, d)

    def residual(parameters: Floats) -> Floats:
        pi, beta = split(parameters)
        return np.concatenate(
            [
                root @ (pi @ lift(beta, k)) - target
                for k, (root, target) in enumerate(zip(roots, targets, strict=True), start=1)
            ]
        )

    def jacobian(parameters: Floats) -> Floats:
        pi, beta = split(parameters)
        return np.vstack([root @ _differentiate(pi, beta, k) for k, root in enumerate(roots, start=1)])

    start = np.concatenate([beta.ravel(), np.log(pi)])
    return split(least_squares(residual, start, jac=jacobian, max_nfev=_MOST_STEPS).x)


def lift(beta: Floats, degree: int) -> Floats:
    """Return beta_h (x) ... (x) beta_h, packed, for each row, (N, q)."""
    index = entries(beta.shape[1], degree)
    return np.asarray(weights(beta.shape[1], degree) * np.prod(beta[:, index], axis=1))


def _differentiate(pi: Floats, beta: Floats, degree: int) -> Floats:
    """Return derivatives of sum_h pi_h lift(beta_h) (q,) by beta (N * d) and by the logs of pi (N)."""
    n, d = beta.shape
    index, weight = entries(d, degree), weights(d, degree)
    q = np.arange(index.shape[1])
    slopes = np.zeros((len(q), n, d))
    for place in range(degree):
        others = np.prod(beta[:, np.delete(index, place, axis=0)], axis=1)  # (N, q)
        slopes[q, :, index[place]] += (weight * others * pi[:, None]).T
    each = lift(beta, degree)
    shares = (pi[:, None] * (each - pi @ each)).T
    return np.hstack([slopes.reshape(len(q), -1), shares])
