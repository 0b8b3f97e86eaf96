"""Learners for Algorithm 1, which relearns as users come, starting from the last classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from lcb.errors import ConvergenceWarning, TooFewRows
from lcb.evaluate.algorithms.algorithm import Task
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.registry import get_learner
from lcb.models import LatentModels
from lcb.recommenders.latent import FromRows
from lcb.stats import UserStats

FromStats = Callable[[UserStats, np.random.Generator, LatentModels | None], LatentModels]
ONE_CHAIN: dict[str, Any] = {"n_sweeps": 20, "n_chains": 1}  # 10 and 40 sweeps give the same regret


def learn_by_em(task: Task) -> FromStats:
    return learn_from_stats(task, "em", variance="shared" if task.two_valued else "class")


def learn_from_stats(task: Task, name: str, **settings: Any) -> FromStats:
    """Return the learner `name` with `settings`, in one thread."""
    return lambda stats, rng, last: learn_from_last(EventLog(stats), rng, last, task.n_classes, name, settings)


def learn_from_rows(task: Task, name: str, **settings: Any) -> FromRows:
    """Return a learner that needs rows; it returns None while rows are too few."""

    def learn(log: EventLog, rng: np.random.Generator, last: LatentModels | None) -> LatentModels | None:
        try:
            return learn_from_last(log, rng, last, task.n_classes, name, settings)
        except TooFewRows:
            return None

    return FromRows(learn)


def learn_counted(task: Task) -> FromRows:
    """Return the learner of `lcb.fit`, which models rewards of two values as clicks (Bernoulli); in one thread."""

    def learn(log: EventLog, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return fit(log, min(task.n_classes, log.n_users), rng=rng, n_threads=1).models

    return FromRows(learn)


def learn_from_last(
    log: EventLog,
    rng: np.random.Generator,
    last: LatentModels | None,
    n_classes: int,
    name: str,
    settings: dict[str, Any],
) -> LatentModels:
    """Learn with the learner `name`, from the last classes if it can start from them and there are as many."""
    learner, n_classes = get_learner(name), min(n_classes, log.n_users)
    if last is not None and last.n_classes == n_classes and learner.start:
        start = last if learner.start == "models" else last.posterior(log.stats).argmax(axis=1)
        settings = {**settings, "start": start}
    if "n_threads" in learner.settings:
        settings = {**settings, "n_threads": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the next training continues from here
        return learner.fit(log, n_classes, rng=rng, **settings).models
