"""The learners of Algorithm 1 as it calls them: again and again, on ever more users, from where the last one ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import numpy as np

from lcb.clicks import EventLog
from lcb.errors import ConvergenceWarning, TooFewRows
from lcb.evaluate.algorithms.algorithm import Task
from lcb.learners.em import gaussian as em
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral.moments import Form, Moments
from lcb.models import LatentModels
from lcb.recommenders.latent import FromRows, Learn
from lcb.stats import UserStats

_SWEEPS = 20  # of a chain that starts where the last one ended; 10 and 40 give the same regret


def learn_by_em(task: Task) -> Callable[[UserStats, np.random.Generator, LatentModels | None], LatentModels]:
    def learn(stats: UserStats, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        n_classes = min(task.n_classes, stats.n_users)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the next training goes on from here
            variance: Literal["class", "shared"] = "shared" if task.two_valued else "class"
            start = _of_size(last, n_classes)
            return em.fit(stats, n_classes, rng=rng, start=start, variance=variance, n_threads=1).models

    return learn


def learn_by_sampling(task: Task, sampler: ModuleType) -> Learn:
    """`sampler` is `gibbs` or `blocked`: one chain with the number of classes given, begun at the last classes."""

    def learn(stats: UserStats, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        n_classes = min(task.n_classes, stats.n_users)
        last = _of_size(last, n_classes)
        start: Any = "split" if last is None else last.posterior(stats).argmax(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = sampler.fit(stats, n_classes, rng=rng, start=start, n_sweeps=_SWEEPS, n_chains=1, n_threads=1)
        return found.models

    return learn


def learn_by_spectral(task: Task, form: Form, **settings: Any) -> FromRows:
    """Spectral Experts, afresh each time, from all rows; its classes are used however noisy they are.

    None while the rows are too few for it.  What more rows would not mend (more classes than features, say) is an
    error.
    """

    def learn(log: EventLog, rng: np.random.Generator, last: LatentModels | None) -> LatentModels | None:
        assert log.rows is not None
        n_classes = min(task.n_classes, log.n_users)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                return spectral.fit(Moments.from_rows(*log.rows, form=form), n_classes, rng=rng, **settings).models
            except TooFewRows:
                return None

    return FromRows(learn)


def _of_size(models: LatentModels | None, n_classes: int) -> LatentModels | None:
    """The last models, unless there were too few users then to ask for all classes."""
    return models if models is not None and models.n_classes == n_classes else None
