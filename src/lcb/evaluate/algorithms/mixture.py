"""`lcb-mixture`: one mixture from the first decision on, without phases; with past users, learned from them."""

from __future__ import annotations

import numpy as np

from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.evaluate.algorithms.latent import OURS
from lcb.learners.mixture.learner import fit
from lcb.recommenders.latent import Latent
from lcb.recommenders.mixture import Mixture
from lcb.recommenders.recommender import Recommender


def _build(
    task: Task, rng: np.random.Generator, bonus: float, n_samples: int, memory: float, share_memory: float
) -> Recommender:
    if task.history is None:
        return Mixture(
            task.n_features, rng=rng, bonus=bonus, n_samples=n_samples, memory=memory, share_memory=share_memory
        )
    models = fit(task.history, rng=rng, n_samples=n_samples).models
    return Latent(task.n_features, lambda one: PersonalClasses(one, bonus), rng=rng, models=models, retrain_every=None)


ALGORITHMS = (
    Algorithm(
        "lcb-mixture",
        "one mixture without phases: a new class is always possible, old users are forgotten",
        OURS,
        build=_build,
        grid={
            "bonus": (0.5, 0.25, 1.0),
            "n_samples": (8, 1, 4),
            "memory": (2000.0, 500.0, 1e9),
            "share_memory": (200.0, 100.0, 1e9),
        },
        cost="N (d^3 + K d^2)",
    ),
)
