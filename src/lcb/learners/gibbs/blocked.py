"""Latent classes by blocked Gibbs sampling: users in parallel, for large data (Ishwaran & James 2001).

    pi ~ Dirichlet(alpha/N, ..., alpha/N)      (beta_h, sigma2_h) ~ Prior      c_u ~ pi

Given pi, beta and sigma2 the users are independent, so a step draws in turn

    (beta_h, sigma2_h) | classes     Normal-inverse-Gamma, from the summed statistics of class h
    pi | classes                     Dirichlet(n_h + alpha/N)
    c_u | all                        softmax_h( log pi_h + log N(r_u | X_u beta_h, sigma2_h) )

The last is a matrix product and one compiled draw, spread over threads in fixed spans of users: the draws are the same
whatever the number of threads.  Split-merge moves and draws of alpha (and of a shared sigma2) follow, with pi and beta
integrated out, as in `collapsed.py`; pi and beta are drawn afresh before they are used again, so every move leaves the
posterior as it is.  Without `n_classes`, N is `most` and the classes without users are left out: as N grows this is the
Dirichlet process.  A step costs O(users * N * d^2).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lcb import parallel
from lcb.errors import InputError
from lcb.learners.gibbs.collapsed import Start, check, check_watched, make_start_labels
from lcb.learners.gibbs.draws import Chain, Concentration, GibbsFit, summarise
from lcb.learners.registry import Learner, list_settings
from lcb.prior import Prior
from lcb.progress import Progress, silent
from lcb.stats import UserStats

_N_KEPT = 50  # draws of a chain whose classes are kept, at most


def fit(
    stats: UserStats,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    prior: Prior | None = None,
    variance: Literal["class", "shared"] = "class",
    concentration: Concentration = (1.0, 1.0),
    most: int = 60,
    start: Start = "split",
    n_sweeps: int = 200,
    n_burn: int | None = None,
    n_chains: int = 2,
    n_split_merge: int = 3,
    n_scans: int = 2,
    watch: ArrayLike = (),
    n_threads: int | None = None,
    progress: Progress = silent,
) -> GibbsFit:
    """Sample the classes, their parameters and their users; settings as in `lcb.learners.gibbs.collapsed.fit`.

    >>> rewards = [0.9, 1.0] * 10 + [0.1, 0.0] * 10
    >>> stats = UserStats.from_rows(user=np.repeat(range(8), 5), x=np.ones((40, 1)), reward=rewards)
    >>> found = fit(stats, rng=np.random.default_rng(0), n_sweeps=200)
    >>> found.models.n_classes, sorted(np.bincount(found.label).tolist())
    (2, [4, 4])
    """
    n_burn = n_sweeps // 2 if n_burn is None else n_burn
    check(stats, n_classes, variance, concentration, n_sweeps, n_burn, n_chains)
    if most < 1:
        raise InputError(f"most={most}; allow at least 1 class")
    watched = check_watched(watch, stats.n_users)
    progress("compiling", 0, None)
    from lcb.learners.gibbs._blocked_step import step
    from lcb.learners.gibbs._collapsed_step import log_prior
    from lcb.learners.gibbs._partition import Design, Partition

    prior = prior or Prior.scaled(stats)
    design = Design.make(stats, prior)
    n, chains = n_classes or min(most, stats.n_users), []
    with parallel.threads(n_threads) as map_spans:
        for number, chain_rng in enumerate(rng.spawn(n_chains)):
            label = make_start_labels(stats, prior, n, start, number, chain_rng)
            state = Partition(design, label, n, variance == "shared")
            state.concentration = 1.0 if isinstance(concentration, tuple) else float(concentration)
            chain = Chain(n_sweeps, n_burn, watched, max(1, (n_sweeps - n_burn) // _N_KEPT), n_classes is None)
            for sweep in range(n_sweeps):
                step(state, concentration, n_split_merge, n_scans, map_spans, chain_rng)
                chain.record(sweep, state, log_prior(state, concentration))
                progress("Gibbs sweeps", number * n_sweeps + sweep + 1, n_chains * n_sweeps)
            chains.append(chain)
    return summarise(stats, prior, design, chains, variance == "shared")


LEARNER = Learner(
    "blocked Gibbs sampling, users in parallel",
    lambda log, n_classes, **settings: fit(log.stats, n_classes, **settings),
    list_settings(fit),
    finds_n_classes=True,
    start="labels",
)
