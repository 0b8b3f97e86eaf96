"""The bandits of "Latent Bandits Revisited" (Hong et al. 2020) over learned classes."""

from __future__ import annotations

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.over_classes.mmts import MMTS
from lcb.bandits.over_classes.mucb import MUCB
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.evaluate.algorithms.latent import build_learned
from lcb.evaluate.algorithms.learning import learn_by_em
from lcb.models import LatentModels, weight_covariance
from lcb.recommenders.latent import Learn
from lcb.stats import UserStats

_HONG = "Hong et al. 2020"


def learn_with_covariance(task: Task) -> Learn:
    """Return a learner that runs EM and adds the covariance of the weights."""
    learn = learn_by_em(task)

    def learn_both(stats: UserStats, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        models = learn(stats, rng, last)
        return models.with_covariance(weight_covariance(models, stats))

    return learn_both


def _mts(models: LatentModels, task: Task) -> Bandit:
    return GeneralizedThompson(models)  # at eta 1 and uniform 0 it draws the class from its posterior, as mTS does


def _mmts(models: LatentModels, task: Task, n_points: int) -> Bandit:
    if models.covariance is None and task.past is not None:
        models = models.with_covariance(weight_covariance(models, task.past))
    return MMTS(models, n_points)


def _mucb(models: LatentModels, task: Task, width: float, epsilon: float) -> Bandit:
    return MUCB(models, task.n_steps, width, epsilon)


ALGORITHMS = (
    Algorithm("mts", "classes learned by EM, one drawn by its posterior: lcb at eta 1", _HONG, build_learned(_mts)),
    Algorithm(
        "mmts", "classes learned by EM, a class and its weights drawn from their posterior", _HONG,
        build=build_learned(_mmts, learn_with_covariance), grid={"n_points": (128, 32)}, cost="N K d^2",
    ),
    Algorithm(
        "mucb", "classes learned by EM, the best arm of any class the rewards have not refuted", _HONG,
        build=build_learned(_mucb), grid={"width": (1.0, 0.1, 0.25, 0.5), "epsilon": (0.0, 0.02, 0.05, 0.1)},
    ),
)  # fmt: skip
