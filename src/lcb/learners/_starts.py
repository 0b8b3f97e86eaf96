"""Where EM starts: k-means++ on per-user ridge coefficients.

Random starts find the right optimum in about half of the tries, these in nearly all.  Coefficients are compared
by the reward they predict, |b1 - b2|^2 = (b1 - b2)' G (b1 - b2) with G the mean of x x', so units of features do
not matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from lcb.prior import Prior
from lcb.stats import UserStats

_MOST_USERS = 20_000  # on which starts are tried
_CLUSTERED_USERS = 5_000  # on which k-means runs


@dataclass(frozen=True, eq=False)
class Labels:
    """Users put into classes."""

    label: NDArray[np.intp]
    n_classes: int


def sample_users(stats: UserStats, rng: np.random.Generator) -> UserStats:
    """All users, or enough of them to tell a good start from a bad one."""
    if stats.n_users <= _MOST_USERS:
        return stats
    return stats.take(np.sort(rng.choice(stats.n_users, _MOST_USERS, replace=False)))


def kmeans_starts(
    stats: UserStats, n_classes: int, prior: Prior, n_starts: int, rng: np.random.Generator
) -> Iterator[Labels]:
    """`n_starts` assignments of the users to classes (one is enough for one class)."""
    if n_classes == 1:
        yield Labels(np.zeros(stats.n_users, np.intp), 1)
        return
    points = _predictive_coordinates(stats, prior)
    for _ in range(n_starts):
        chosen = points
        if len(points) > max(_CLUSTERED_USERS, 20 * n_classes):
            chosen = points[rng.choice(len(points), max(_CLUSTERED_USERS, 20 * n_classes), replace=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty cluster: EM falls back to the prior there
            centres, label = kmeans2(chosen, _seeds(chosen, n_classes, rng), iter=10, minit="matrix")
        if len(label) < len(points):
            label = np.argmin(
                np.square(centres).sum(axis=1)[:, None] - 2 * centres @ points.T, axis=0
            )  # the centre nearest to each
        yield Labels(label.astype(np.intp), n_classes)


def _seeds(points: NDArray[np.float64], n_classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """k-means++: each next centre is drawn in proportion to the squared distance from those before it."""
    chosen = [points[rng.integers(len(points))]]
    distance = np.full(len(points), np.inf)
    for _ in range(n_classes - 1):
        distance = np.minimum(distance, np.square(points - chosen[-1]).sum(axis=1))
        total = distance.sum()
        place = rng.choice(len(points), p=distance / total) if total > 0 else rng.integers(len(points))
        chosen.append(points[place])
    return np.array(chosen)


def _predictive_coordinates(stats: UserStats, prior: Prior) -> NDArray[np.float64]:
    """Ridge coefficients of each user, turned so that plain distance is distance in predicted reward."""
    mean, precision = prior.arrays(stats.n_features)
    total = stats.total
    size = total.gram[0] / total.count[0]
    root = np.linalg.cholesky(size + 1e-9 * max(np.trace(size), 1e-300) * np.eye(len(size)))
    coefficients = np.linalg.solve(
        precision + stats.gram.astype(np.float64),
        (precision @ mean + stats.moment.astype(np.float64))[..., None],
    )[..., 0]
    return np.asarray(coefficients @ root)
