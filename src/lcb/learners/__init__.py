"""From the statistics of past users to latent classes.  `fit` is the one door; each learner has its own file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lcb.errors import ConvergenceWarning, InputError
from lcb.learners import blocked, em, gibbs
from lcb.learners.n_classes import choose_n_classes
from lcb.models import Fit, LatentModels
from lcb.progress import Progress, silent
from lcb.stats import UserStats

LEARNERS: dict[str, Callable[..., Fit]] = {"em": em.fit, "gibbs": gibbs.fit, "blocked": blocked.fit}
SAMPLERS = ("gibbs", "blocked")  # they find the number of classes themselves


def fit(
    stats: UserStats,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    learner: str = "em",
    progress: Progress = silent,
    **settings: Any,
) -> Fit:
    """Learn the classes; without `n_classes`, as many as predict held-out users best or a sampler finds.

    `settings` go to the learner (see `lcb.learners.em.fit`, `lcb.learners.gibbs.fit`).

    >>> stats = UserStats.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[0.9, 0.9, 0.1, 0.1])
    >>> fit(stats, 2, rng=np.random.default_rng(0)).models.n_classes
    2
    """
    if learner not in LEARNERS:
        raise InputError(f"learner={learner!r}; there are: {', '.join(LEARNERS)}")
    learn = LEARNERS[learner]
    held_out: dict[int, tuple[float, float]] = {}
    chosen = n_classes is None
    if n_classes is None and learner not in SAMPLERS:

        def trial(part: UserStats, n: int) -> LatentModels:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a trial need not settle to be compared
                return learn(part, n, rng=rng, **{"max_steps": 200, **settings}).models

        n_classes, held_out = choose_n_classes(stats, trial, rng=rng, progress=progress)
    result = learn(stats, n_classes, rng=rng, progress=progress, **settings)
    provenance = {
        "learner": learner,
        "n_users": stats.n_users,
        "n_events": stats.n_events,
        "n_steps": result.n_steps,
        "converged": result.converged,
        **({"n_classes_chosen_by": "held-out users" if held_out else "the sampler"} if chosen else {}),
        **{name: value for name, value in settings.items() if isinstance(value, str | int | float)},
    }
    return replace(result, models=result.models.with_provenance(provenance), held_out=held_out)
