"""Algorithm 1 of the paper with each learner and bandit, and with the true classes given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.algorithms.algorithm import Algorithm, Task, Value
from lcb.evaluate.algorithms.learning import ONE_CHAIN, learn_by_em, learn_from_rows, learn_from_stats
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.registry import get_learner
from lcb.models import LatentModels
from lcb.recommenders.latent import FromRows, Latent, Learn
from lcb.recommenders.recommender import Recommender

WARMUP_WIDTH = 0.25  # of phase 1's LinUCB; anything between .1 and .5 gives nearly the same regret
PAPER, OURS = "Zhou & Brunskill 2016", "ours"
MakeBandit = Callable[..., Bandit]  # (models, task, **settings)


def build_learned(
    make_bandit: MakeBandit,
    make_learn: Callable[[Task], Learn | FromRows] = learn_by_em,
    learner: str = "em",
    **before: Any,
) -> Callable[..., Recommender]:
    """Return a builder of Algorithm 1 with `make_bandit(models, task, **settings)` and the learner `make_learn(task)`.

    If the task has past users, `learner` with the settings `before` learns the classes from them; then there is no
    phase 1, and the classes do not change.
    """

    def build(task: Task, rng: np.random.Generator, **settings: Value) -> Recommender:
        def make(models: LatentModels) -> Bandit:
            return make_bandit(models, task, **settings)

        if task.history is not None:
            models = fit_past_classes(task, rng, learner, **before)
            return Latent(task.n_features, make, rng=rng, models=models, retrain_every=None)
        return build_relearning(task, make, make_learn(task), rng)

    return build


def build_relearning(
    task: Task,
    make_bandit: Callable[[LatentModels], Bandit],
    learn: Learn | FromRows,
    rng: np.random.Generator,
    width: float = WARMUP_WIDTH,
) -> Latent:
    """Return Algorithm 1 without past users: LinUCB serves the first users, and classes are learned as users come."""
    return Latent(
        task.n_features,
        make_bandit,
        learn,
        rng=rng,
        n_warmup_users=task.n_warmup_users,
        retrain_every=task.retrain_every,
        warmup_bandit=LinUCB(task.n_features, width=width),
        n_uniform_steps=task.n_uniform_steps,
        train_on="uniform" if task.n_uniform_steps else "all",
    )


def fit_past_classes(task: Task, rng: np.random.Generator, learner: str = "em", **settings: Any) -> LatentModels:
    """Learn the classes of past users; the last result is cached, because tuning asks for the same repeatedly."""
    assert task.history is not None
    asked = _cache_key(task.history, task.n_classes, rng, learner, *sorted(settings.items()))
    if asked not in _learned:
        _learned.clear()
        own = {name: 1 for name in ("n_threads", "n_chains") if name in get_learner(learner).settings}
        n_classes = min(task.n_classes, task.history.n_users)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = fit(task.history, n_classes, rng=rng, learner=learner, **{**own, **settings})
        _learned[asked] = found.models
    return _learned[asked]


_learned: dict[tuple[Any, ...], LatentModels] = {}  # at most one entry, the last


def _cache_key(history: EventLog, *rest: Any) -> tuple[Any, ...]:
    """Return a key of everything that decides the learned classes."""
    n_classes, rng, *how = rest
    clicks = b"" if history.clicks is None else history.clicks.clicked.data.tobytes()
    digest = sha256(history.stats.packed.tobytes() + clicks + repr(rng.bit_generator.state).encode())
    return digest.hexdigest(), n_classes, *how


def build_given(make_bandit: MakeBandit) -> Callable[..., Recommender]:
    """Return a builder of `make_bandit(models, task, **settings)` over the true classes (the paper's LCB_GT)."""

    def build(task: Task, rng: np.random.Generator, **settings: Value) -> Recommender:
        models = true_classes(task)
        make = partial(make_bandit, task=task, **settings)
        return Latent(task.n_features, make, rng=rng, models=models, retrain_every=None)

    return build


def true_classes(task: Task) -> LatentModels:
    if task.truth is None:
        raise InputError("this algorithm needs the true classes, which only a generated world has; leave it out")
    return task.truth


def _thompson(models: LatentModels, task: Task, eta: float, uniform: float) -> Bandit:
    return GeneralizedThompson(models, eta, uniform)


def _mean(models: LatentModels, task: Task) -> Bandit:
    return PosteriorMean(models)


def _bonus(models: LatentModels, task: Task, bonus: float) -> Bandit:
    return PosteriorMean(models, bonus=bonus)


def _published_spectral(task: Task, rng: np.random.Generator, penalty: float, **settings: Value) -> Recommender:
    published: dict[str, Any] = {"form": "pooled", "penalty": penalty, "centred": False, "matching": False}
    learn = partial(learn_from_rows, name="spectral", **published)
    return build_learned(_thompson, learn, "spectral", **published)(task, rng, **settings)


_THOMPSON = {"eta": (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0), "uniform": (0.0, 0.01, 0.05)}
_FEWER = {"eta": (1.0, 0.25, 2.0, 8.0), "uniform": (0.0, 0.05)}  # a spectral training takes ten times as long as EM's


ALGORITHMS = (
    Algorithm(
        "lcb", "classes learned by EM, Generalized Thompson Sampling over them", PAPER,
        build=build_learned(_thompson), grid=_THOMPSON,
    ),
    Algorithm(
        "lcb-mean", "classes learned by EM, the arm best on average", OURS,
        build=build_learned(_mean), cost="N d + K d",
    ),
    Algorithm(
        "lcb-bonus", "classes learned by EM, the arm best on average with a bonus where classes disagree", OURS,
        build=build_learned(_bonus), grid={"bonus": (0.5, 0.25, 1.0)},
    ),
    Algorithm(
        "lcb-gt", "the true classes given, Generalized Thompson Sampling over them", PAPER,
        build=build_given(_thompson), grid=_THOMPSON,
    ),
    Algorithm(
        "lcb-gt-mean", "the true classes given, the arm best on average", OURS,
        build=build_given(_mean), cost="N d + K d",
    ),
    Algorithm(
        "lcb-gibbs", "classes learned by collapsed Gibbs sampling, Thompson over them", PAPER,
        build=build_learned(_thompson, partial(learn_from_stats, name="gibbs", **ONE_CHAIN), "gibbs"), grid=_THOMPSON,
    ),
    Algorithm(
        "lcb-blocked", "classes learned by blocked Gibbs sampling, Thompson over them", OURS,
        build=build_learned(_thompson, partial(learn_from_stats, name="blocked", **ONE_CHAIN), "blocked"),
        grid=_THOMPSON,
    ),
    Algorithm(
        "lcb-spectral", "classes learned by Spectral Experts as published, Thompson over them", PAPER,
        build=_published_spectral, grid={**_FEWER, "penalty": (0.1, 1.0, 10.0)},
    ),
    Algorithm(
        "lcb-spectral-grouped", "the same from products of one user's rewards, Thompson over them", OURS,
        build=build_learned(
            _thompson, partial(learn_from_rows, name="spectral", form="grouped"), "spectral", form="grouped"
        ),
        grid=_FEWER,
    ),
)  # fmt: skip
