"""A learner to register in tests: one class, the regression of all users."""

from __future__ import annotations

import numpy as np

from lcb.learners.registry import Learner, list_settings
from lcb.models import Fit, LatentModels
from lcb.models.prior import Prior
from lcb.progress import Progress, silent
from lcb.stats import UserStats


def fit(
    stats: UserStats, n_classes: int | None = None, *, rng: np.random.Generator, tol: float = 0.5,
    progress: Progress = silent,
) -> Fit:  # fmt: skip
    beta, sigma2 = Prior.scaled(stats).mode(stats.total, shared=False)
    return Fit(LatentModels(np.ones(1), beta, sigma2, stats.features), np.array([tol]), converged=True)


LEARNER = Learner(
    "one regression for all",
    lambda log, n_classes, **settings: fit(log.stats, n_classes, **settings),
    list_settings(fit),
    finds_n_classes=True,
)
