"""Linear bandits, one for all users or one each, and the one that knows nothing."""

from __future__ import annotations

import numpy as np

from lcb.bandits.linucb import LinUCB
from lcb.bandits.uniform import Uniform
from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender

_WIDTHS = {"width": (0.25, 0.0, 0.1, 0.5, 1.0), "ridge": (1.0, 0.1, 10.0)}


def _population_linucb(task: Task, rng: np.random.Generator, width: float, ridge: float) -> Recommender:
    return Pooled(LinUCB(task.n_features, width, ridge))


def _individual_linucb(task: Task, rng: np.random.Generator, width: float, ridge: float) -> Recommender:
    return Individual(LinUCB(task.n_features, width, ridge))


def _random(task: Task, rng: np.random.Generator) -> Recommender:
    return Pooled(Uniform())


LINEAR = (
    Algorithm("linucb-population", "one LinUCB for all users", "Li et al. 2010", "K d^2", _population_linucb, _WIDTHS),
    Algorithm(
        "linucb-individual", "one LinUCB per user, from scratch", "Li et al. 2010", "K d^2", _individual_linucb, _WIDTHS
    ),
    Algorithm("random", "every arm alike", "-", "1", _random),
)
