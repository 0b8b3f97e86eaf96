"""Latent classes by blocked Gibbs sampling, with users in parallel, for large data (Ishwaran & James 2001).

    pi ~ Dirichlet(alpha/N, ..., alpha/N)      (beta_h, sigma2_h) ~ Prior      c_u ~ pi

Given pi, beta and sigma2 the users are independent, so a step draws in turn

    (beta_h, sigma2_h) | classes     Normal-inverse-Gamma, from the summed statistics of class h
    pi | classes                     Dirichlet(n_h + alpha/N)
    c_u | all                        softmax_h( log pi_h + log N(r_u | X_u beta_h, sigma2_h) )

The last is a matrix product and one compiled draw, in threads over fixed spans of users: the draws do not depend on the
number of threads.  Split-merge moves and draws of alpha (and of a shared sigma2) follow, with pi and beta integrated
out, as in `collapsed.py`; pi and beta are redrawn before they are used again, so every move leaves the posterior
invariant.  Without `n_classes`, N is `most` and classes without users are dropped: as N grows this becomes the
Dirichlet process.  A step costs O(users * N * d^2).  Users on other machines are sampled without split-merge moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.random import Generator

from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.learners.gibbs.collapsed import ChainSettings, check, run_chains
from lcb.learners.gibbs.draws import GibbsFit
from lcb.learners.registry import Learner, list_settings
from lcb.learners.shared.users import Users
from lcb.progress import Progress, silent
from lcb.runtime import parallel
from lcb.stats import UserStats


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockedSettings(ChainSettings):
    """`most` is N if the number of classes is sampled."""

    most: int = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most < 1:
            raise InputError(f"most={self.most}; allow at least 1 class")


def fit(
    data: UserStats | Users,
    n_classes: int | None = None,
    *,
    rng: Generator,
    progress: Progress = silent,
    **settings: Any,
) -> GibbsFit:
    """Sample the classes, their parameters and their users.  `settings`: see `BlockedSettings`, `ChainSettings`.

    >>> import numpy as np
    >>> rewards = [0.9, 1.0] * 10 + [0.1, 0.0] * 10
    >>> stats = UserStats.from_rows(user=np.repeat(range(8), 5), x=np.ones((40, 1)), reward=rewards)
    >>> found = fit(stats, rng=np.random.default_rng(0), n_sweeps=200)
    >>> found.models.n_classes, sorted(np.bincount(found.label).tolist())
    (2, [4, 4])
    """
    chosen = BlockedSettings(**settings)
    n = n_classes or min(chosen.most, data.n_users)
    progress("compiling", 0, None)
    if not isinstance(data, UserStats):
        from lcb.learners.gibbs._elsewhere import fit_elsewhere

        return fit_elsewhere(chosen, data, n, rng, progress, drop_empty=n_classes is None)
    check(data, n_classes)
    from lcb.learners.gibbs._blocked_step import step

    with parallel.threads(chosen.n_threads) as map_spans:
        step_spans = partial(step, map_spans=map_spans)
        return run_chains(step_spans, chosen, data, n, rng, progress, drop_empty=n_classes is None)


def _fit_log(log: EventLog | Users, n_classes: int | None, **settings: Any) -> GibbsFit:
    return fit(log.stats if isinstance(log, EventLog) else log, n_classes, **settings)


LEARNER = Learner(
    "blocked Gibbs sampling, users in parallel",
    _fit_log,
    list_settings(BlockedSettings),
    finds_n_classes=True,
    start="labels",
)
