"""Algorithm 1 of the paper with each learner and each bandit; and with the true classes given."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.linucb import LinUCB
from lcb.bandits.posterior_mean import PosteriorMean
from lcb.bandits.thompson import GeneralizedThompson
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.algorithms.algorithm import Algorithm, Task, Value
from lcb.learners import em
from lcb.models import LatentModels
from lcb.recommenders.latent import Latent, Learn
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

_WARMUP_WIDTH = 0.25  # of phase 1's LinUCB; anything between .1 and .5 gives nearly the same regret
PAPER, OURS = "Zhou & Brunskill 2016", "ours"
MakeBandit = Callable[..., Bandit]  # (models, task, **settings)


def learn_by_em(task: Task) -> Learn:
    def learn(stats: UserStats, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        n_classes = min(task.n_classes, stats.n_users)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the next training goes on from here
            return em.fit(stats, n_classes, rng=rng, start=_of_size(last, n_classes), n_threads=1).models

    return learn


def _of_size(models: LatentModels | None, n_classes: int) -> LatentModels | None:
    """The last models, unless there were too few users then to ask for all classes."""
    return models if models is not None and models.n_classes == n_classes else None


def learned(make_bandit: MakeBandit, make_learn: Callable[[Task], Learn] = learn_by_em) -> Callable[..., Recommender]:
    """Algorithm 1: `make_bandit(models, task, **settings)` over the classes that `make_learn(task)` learns."""

    def build(task: Task, rng: np.random.Generator, **settings: Value) -> Recommender:
        return Latent(
            task.n_features,
            lambda models: make_bandit(models, task, **settings),
            make_learn(task),
            rng=rng,
            n_warmup_users=task.n_warmup_users,
            retrain_every=task.retrain_every,
            warmup_bandit=LinUCB(task.n_features, width=_WARMUP_WIDTH),
        )

    return build


def given(make_bandit: MakeBandit) -> Callable[..., Recommender]:
    """The true classes from the start (the paper's LCB_GT)."""

    def build(task: Task, rng: np.random.Generator, **settings: Value) -> Recommender:
        models = true_classes(task)
        return Latent(
            task.n_features,
            lambda models: make_bandit(models, task, **settings),
            rng=rng, models=models, retrain_every=None,
        )  # fmt: skip

    return build


def true_classes(task: Task) -> LatentModels:
    if task.truth is None:
        raise InputError("this algorithm is given the true classes, which only a generated world knows; leave it out")
    return task.truth


def _thompson(models: LatentModels, task: Task, eta: float, gamma: float) -> Bandit:
    return GeneralizedThompson(models, eta, gamma)


def _mean(models: LatentModels, task: Task) -> Bandit:
    return PosteriorMean(models)


LATENT = (
    Algorithm(
        "lcb", "classes learned by EM, Generalized Thompson Sampling over them", PAPER, "N K d",
        learned(_thompson), {"eta": (1.0, 0.25, 0.5, 2.0), "gamma": (0.0, 0.01, 0.05)},
    ),
    Algorithm("lcb-mean", "classes learned by EM, the arm best on average", OURS, "N d + K d", learned(_mean)),
    Algorithm(
        "lcb-gt", "the true classes given, Generalized Thompson Sampling over them", PAPER, "N K d",
        given(_thompson), {"eta": (1.0, 0.25, 0.5, 2.0), "gamma": (0.0, 0.01, 0.05)},
    ),
    Algorithm("lcb-gt-mean", "the true classes given, the arm best on average", OURS, "N d + K d", given(_mean)),
)  # fmt: skip
