"""Before anything is known about the units of features and rewards: classes on a grid around a user's own rewards.

    variance = (mean r^2 / mean |x|^2) * (.01 to 10)      noise = mean r^2 * (.0001 to 1)

Every pair has the same prior probability.  Multiplying all rewards, or all features, by a number multiplies the grid,
so that no choice depends on their units.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.models.latent_models import LatentModels
from lcb.stats import UserStats

_VARIANCES = np.logspace(-2, 1, 7)
_NOISES = np.logspace(-4, 0, 9)


def first_models(user: Floats, n_features: int) -> LatentModels:
    """Return the mixture for a user with these statistics (p,) while no user has left: one class for each pair."""
    variance, noise = build_grid(user, n_features)
    n = len(variance)
    covariance = variance[:, None, None] * np.eye(n_features)
    beta = np.zeros((n, n_features))
    return LatentModels(np.full(n, 1 / n), beta, noise, covariance=covariance, personal=True)


def build_grid(sums: Floats, n_features: int) -> tuple[Floats, Floats]:
    """Return the pairs of variance and noise, (63,) each."""
    stats = UserStats(sums[:, None], n_features)
    count = max(float(stats.count[0]), 1.0)
    reward = float(stats.square_sum[0]) / count or 1.0
    length = float(np.trace(stats.gram[0])) / count or 1.0
    return np.repeat(_VARIANCES, len(_NOISES)) * reward / length, np.tile(_NOISES, len(_VARIANCES)) * reward
