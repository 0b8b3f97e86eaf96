"""Features of items learned from rewards alone: probabilistic PCA with missing rewards, by variational EM.

    r - a_i = q_i . p_u + noise         p_u ~ N(0, I), q_i ~ N(0, diag(tau)), one p per user, one q per item

Given the items, the factors of the users are independent normal distributions, and the other way round; each step takes
the expectation over the other side, with its covariance:

    cov_u = (I + sum_i E[q_i q_i'] / s2)^-1              mean_u = cov_u sum_i (r - a_i) E[q_i] / s2
    cov_i = (1/tau + sum_u E[p_u p_u'] / s2)^-1          mean_i = cov_i sum_u (r - a_i) E[p_u] / s2
    tau_k = mean over items of E[q_ik^2]                 s2 = mean of E[(r - a_i - q_i . p_u)^2]

Least squares without the covariances overfits: an item with three ratings gets factors as large as one with thousands.
The features of an item are E[q_i], in units in which a user's weights are N(0, I).  A step costs
O(rows k^2 + (users + items) k^3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.learners.effects.rows import ItemRows
from lcb.progress import Progress, silent

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_STEPS = 40


class Factors(NamedTuple):
    """What was learned: the features of the items, and the noise of a reward given them."""

    q: Floats  # (I, k)
    noise: float


def learn_factors(
    rows: ItemRows,
    effect: Floats,
    n_factors: int,
    *,
    rng: np.random.Generator,
    n_steps: int = _STEPS,
    progress: Progress = silent,
) -> Factors:
    """Learn the factors of all items of `rows` from rewards less item effects (I,); an item without rewards has 0.

    >>> rng = np.random.default_rng(0)
    >>> user, item, truth = np.repeat(np.arange(300), 20), np.tile(np.arange(20), 300), rng.normal(size=20)
    >>> reward = rng.normal(size=300)[user] * truth[item] + 0.3 * rng.normal(size=6000)
    >>> rows = ItemRows(tuple(map(str, range(20))), np.ones((20, 1)), user, item, reward)
    >>> found = learn_factors(rows, np.zeros(20), 1, rng=rng)
    >>> abs(np.corrcoef(found.q[:, 0], truth)[0, 1]).round(2) > 0.99, np.sqrt(found.noise).round(1)
    (np.True_, np.float64(0.3))
    """
    if not 1 <= n_factors <= len(rows.ids):
        raise InputError(f"factors:{n_factors} of {len(rows.ids)} items; give at least 1 and at most one per item")
    from scipy.sparse import csr_array

    residual = rows.reward - effect[rows.item]
    shape = rows.n_users, len(rows.ids)
    seen = csr_array((np.ones(len(residual)), (rows.user, rows.item)), shape)
    values = csr_array((residual, (rows.user, rows.item)), shape)
    noise = max(float(np.mean(residual**2)), 1e-12)
    tau = np.full(n_factors, noise / n_factors)
    q = rng.normal(size=(shape[1], n_factors)) * np.sqrt(tau)
    q_square = q[:, :, None] * q[:, None, :] + 0.1 * np.diag(tau)
    for step in range(n_steps):
        p, p_square = _find_side(seen, values, q, q_square, np.ones(n_factors), noise)
        q, q_square = _find_side(seen.T.tocsr(), values.T.tocsr(), p, p_square, tau, noise)
        known = rows.count > 0
        tau = np.einsum("ikk->k", q_square[known]) / known.sum()
        fitted = np.einsum("nk,nk->n", p[rows.user], q[rows.item])
        square = _sum_squares(rows, p_square, q_square)
        noise = float(np.mean(residual**2 - 2 * residual * fitted) + square)
        progress("learning factors", step + 1, n_steps)
    return Factors(np.where(rows.count[:, None] > 0, q, 0.0), noise)


def _find_side(
    seen: csr_array, values: csr_array, other: Floats, other_square: Floats, tau: Floats, noise: float
) -> tuple[Floats, Floats]:
    """Return E[f] (n, k) and E[f f'] (n, k, k) of one side, given the other."""
    k = len(tau)
    gram = (seen @ other_square.reshape(len(other), -1)).reshape(-1, k, k) / noise
    covariance = np.linalg.inv(gram + np.diag(1 / np.maximum(tau, 1e-12)))
    mean = np.einsum("nij,nj->ni", covariance, (values @ other) / noise)
    return mean, covariance + mean[:, :, None] * mean[:, None, :]


def _sum_squares(rows: ItemRows, p_square: Floats, q_square: Floats) -> float:
    """Return the mean over rows of E[(q_i . p_u)^2], in blocks of rows."""
    total, block = 0.0, 65_536
    for i in range(0, len(rows.user), block):
        part = slice(i, i + block)
        total += float(np.einsum("nij,nij->", p_square[rows.user[part]], q_square[rows.item[part]]))
    return total / len(rows.user)
