"""The hyperparameters that the mixture starts from: the likeliest pair of the grid of `lcb.models.first_models`."""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.learners.mixture._seats_numba import log_predictive
from lcb.learners.mixture.sample import Hyperparameters
from lcb.models.first_models import build_grid


def choose_hyperparameters(sums: Floats, n_features: int, concentration: float | None) -> Hyperparameters | None:
    """Return the pair under which these rewards, all of one class, are most likely; None if they are all 0."""
    if sums[-2] == 0:
        return None
    mean, best = np.zeros(n_features), (-np.inf, 0.0, 0.0)
    work, y = np.empty((n_features, n_features)), np.empty(n_features)
    for variance, noise in zip(*build_grid(sums, n_features), strict=True):
        half_log_det = -0.5 * n_features * np.log(variance)
        density = log_predictive(sums, noise, np.eye(n_features) / variance, mean, half_log_det, work, y)
        best = max(best, (density, variance, noise))
    return Hyperparameters(best[2], best[1], best[1], mean, concentration or 1.0)
