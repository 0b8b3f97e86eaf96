"""Linear bandits: one for all users, one each, or one each that starts in the subspace of past users; and Random."""

from __future__ import annotations

import numpy as np

from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.uniform import Uniform
from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.recommenders.cofine import CofineUCB
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender

_WIDTHS = {"width": (0.25, 0.0, 0.1, 0.5, 1.0), "ridge": (1.0, 0.1, 10.0)}
_SCALES = {"scale": (0.025, 0.0025, 0.01, 0.05, 0.1, 0.25), "ridge": (1.0, 0.1, 10.0)}
_WARMUP_WIDTH = 0.25  # of the LinUCB that serves the first users if there is no history


def _pooled(bandit: LinUCB | LinTS, task: Task) -> Recommender:
    """Build one bandit for all users, trained on the history if there is one."""
    return Pooled(bandit, state=None if task.past is None else bandit.train(task.past))


def _population_linucb(task: Task, rng: np.random.Generator, width: float, ridge: float) -> Recommender:
    return _pooled(LinUCB(task.n_features, width, ridge), task)


def _individual_linucb(task: Task, rng: np.random.Generator, width: float, ridge: float) -> Recommender:
    return Individual(LinUCB(task.n_features, width, ridge))


def _population_lints(task: Task, rng: np.random.Generator, scale: float, ridge: float) -> Recommender:
    return _pooled(LinTS(task.n_features, scale, ridge), task)


def _individual_lints(task: Task, rng: np.random.Generator, scale: float, ridge: float) -> Recommender:
    return Individual(LinTS(task.n_features, scale, ridge))


def _cofine(
    task: Task, rng: np.random.Generator, n_coarse: int, ridge: float, coarse_ridge: float, width: float
) -> Recommender:
    return CofineUCB(
        task.n_features,
        min(n_coarse, task.n_features),
        width=width,
        ridge=ridge,
        coarse_ridge=coarse_ridge,
        n_warmup_users=task.n_warmup_users,
        retrain_every=task.retrain_every,
        history=task.past,
        warmup_bandit=LinUCB(task.n_features, _WARMUP_WIDTH),
    )


def _random(task: Task, rng: np.random.Generator) -> Recommender:
    return Pooled(Uniform())


ALGORITHMS = (
    Algorithm(
        "linucb-population", "one LinUCB for all users", "Li et al. 2010",
        build=_population_linucb, grid=_WIDTHS, cost="K d^2",
    ),
    Algorithm(
        "linucb-individual", "one LinUCB per user, from scratch", "Li et al. 2010",
        build=_individual_linucb, grid=_WIDTHS, cost="K d^2",
    ),
    Algorithm(
        "lints-population", "one linear Thompson Sampling for all users", "Agrawal & Goyal 2013",
        build=_population_lints, grid=_SCALES, cost="K d n_points",
    ),
    Algorithm(
        "lints-individual", "one linear Thompson Sampling per user, from scratch", "Agrawal & Goyal 2013",
        build=_individual_lints, grid=_SCALES, cost="K d n_points",
    ),
    Algorithm(
        "cofineucb", "one LinUCB per user that begins in the subspace of past users", "Yue et al. 2012",
        build=_cofine,
        grid={
            "n_coarse": (5, 3, 8), "ridge": (3.0, 1.0, 10.0), "coarse_ridge": (0.1, 0.03, 0.3, 1.0),
            "width": (0.1, 0.05, 0.25),
        },
        cost="K d^2",
    ),
    Algorithm("random", "every arm alike", "-", _random, cost="1"),
)  # fmt: skip
