"""Latent classes and their number by collapsed Gibbs sampling (Neal 2000, algorithm 3; used in the paper).

    alpha ~ Gamma(concentration)     c ~ Chinese restaurant process(alpha)     (beta_h, sigma2_h) ~ Prior
    rewards of user u ~ N(X_u beta_c, sigma2_c),  c = c_u

beta and sigma2 are integrated out; a sweep draws each user's class given all others':

    p(c_u = h)   ~  n_h * evidence(h with u) / evidence(h)        n_h: its users without u
    p(c_u = new) ~  alpha * evidence(u)

With `n_classes` N given, the weights are n_h + alpha/N and there is no new class.  After each sweep come split-merge
moves and draws of alpha and, with `variance="shared"`, of the one sigma2 (beta integrated out).  Evidence is computed
from sums of statistics, so a sweep costs O(users * classes * d^3), for any number of events.  Chains run in threads,
each with its own random stream: the draws do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from lcb.errors import InputError
from lcb.learners.gibbs._consensus import assign_most_probable
from lcb.learners.gibbs.draws import Chain, Concentration, GibbsFit, summarise
from lcb.learners.registry import Learner, list_settings
from lcb.learners.shared.starts import kmeans_starts
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.progress import Progress, silent
from lcb.runtime import parallel
from lcb.stats import UserStats

Start = Literal["split", "one"] | tuple[Literal["split", "one"], ...] | ArrayLike
_SPLIT_INTO = 40  # classes of a "split" start
_START_USERS = 5_000  # users that are clustered for a "split" start
_N_KEPT = 50  # most draws of a chain whose classes are kept


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainSettings:
    """Settings of both samplers.

    `concentration` is alpha, or the (shape, rate) of its Gamma prior.  `start` is "split" (more classes than are
    likely), "one" (all users in one), several of these in turn for the chains, or a class for each user.  The first
    `n_burn` sweeps (half, if not given) of each chain are dropped.  `watch` are positions of users whose classes are
    kept at every draw, for `co_assignment`.
    """

    prior: Prior | None = None
    variance: Literal["class", "shared"] = "class"
    concentration: Concentration = (1.0, 1.0)
    start: Start = "split"
    n_sweeps: int = 200
    n_burn: int | None = None
    n_chains: int = 2
    n_split_merge: int = 3
    n_scans: int = 2
    watch: ArrayLike = ()
    n_threads: int | None = None

    def __post_init__(self) -> None:
        if self.variance not in ("class", "shared"):
            raise InputError(f"variance={self.variance!r}; it is 'class' (one per class) or 'shared' (one for all)")
        alpha = self.concentration
        values = alpha if isinstance(alpha, tuple) and len(alpha) == 2 else (alpha,)
        if not all(isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0 for value in values):
            raise InputError(f"concentration={alpha}; it is a positive number, or the (shape, rate) of a Gamma")
        n_burn, n_sweeps = self.n_dropped, self.n_sweeps
        if self.n_chains < 1 or not 0 <= n_burn < n_sweeps or n_sweeps - n_burn < 4:
            raise InputError(
                f"n_chains={self.n_chains}, n_sweeps={n_sweeps}, n_burn={n_burn}; keep at least 4 sweeps of a chain"
            )

    @property
    def n_dropped(self) -> int:
        return self.n_sweeps // 2 if self.n_burn is None else self.n_burn


def fit(
    stats: UserStats, n_classes: int | None = None, *, rng: Generator, progress: Progress = silent, **settings: Any
) -> GibbsFit:
    """Sample the users' classes; without `n_classes` their number is sampled too.  `settings`: see `ChainSettings`.

    >>> rewards = [0.9, 1.0] * 10 + [0.1, 0.0] * 10
    >>> stats = UserStats.from_rows(user=np.repeat(range(8), 5), x=np.ones((40, 1)), reward=rewards)
    >>> found = fit(stats, rng=np.random.default_rng(0), n_sweeps=100)
    >>> found.models.n_classes, found.label.tolist()
    (2, [0, 0, 0, 0, 1, 1, 1, 1])
    """
    chosen = ChainSettings(**settings)
    check(stats, n_classes)
    progress("compiling", 0, None)
    from lcb.learners.gibbs._collapsed_step import step

    return run_chains(step, chosen, stats, n_classes, rng, progress, n_threads=chosen.n_threads)


def run_chains(
    step: Callable[..., None],
    settings: ChainSettings,
    stats: UserStats,
    n_classes: int | None,
    rng: Generator,
    progress: Progress,
    *,
    n_threads: int | None = 1,
    drop_empty: bool = False,
) -> GibbsFit:
    """Run the chains in threads and summarise their draws; `step` is one step of a chain."""
    from lcb.learners.gibbs._collapsed_step import log_prior
    from lcb.learners.gibbs._partition import Design, Partition

    watched = check_watched(settings.watch, stats.n_users)
    prior, alpha = settings.prior or Prior.scaled(stats), settings.concentration
    n_sweeps, n_burn, shared = settings.n_sweeps, settings.n_dropped, settings.variance == "shared"
    design = Design.make(stats, prior)
    lock, done = threading.Lock(), 0

    def run(task: tuple[int, Generator]) -> Chain:
        nonlocal done
        number, own_rng = task
        label = make_start_labels(stats, prior, n_classes, settings.start, number, own_rng)
        state = Partition(design, label, n_classes, shared)
        state.concentration = 1.0 if isinstance(alpha, tuple) else float(alpha)
        chain = Chain(n_sweeps, n_burn, watched, max(1, (n_sweeps - n_burn) // _N_KEPT), drop_empty)
        for sweep in range(n_sweeps):
            step(state, alpha, settings.n_split_merge, settings.n_scans, rng=own_rng)
            chain.record(sweep, state, log_prior(state, alpha))
            with lock:
                done += 1
                progress("Gibbs sweeps", done, settings.n_chains * n_sweeps)
        return chain

    with parallel.threads(n_threads) as map_chains:
        chains = map_chains(run, list(enumerate(rng.spawn(settings.n_chains))))
    return summarise(stats, prior, design, chains, shared)


def check(stats: UserStats, n_classes: int | None) -> None:
    """Raise InputError for data that cannot be sampled from."""
    if n_classes is not None and n_classes < 1:
        raise InputError(f"n_classes={n_classes}; give at least 1, or leave it out")
    if stats.n_users < 1 or not stats.n_events:
        raise InputError("no rewards to learn from; give at least one user with one reward")
    if not np.isfinite(stats.packed).all():
        raise InputError("the statistics contain numbers that are not finite; check the rows they were made from")


def check_watched(watch: ArrayLike, n_users: int) -> NDArray[np.intp]:
    watched = np.atleast_1d(np.asarray(watch, dtype=np.intp))
    if watched.size and not (watched.min() >= 0 and watched.max() < n_users):
        raise InputError(f"watch has a position outside 0..{n_users - 1}; give positions of users")
    return watched


def make_start_labels(
    stats: UserStats, prior: Prior, n_classes: int | None, start: Start, chain: int, rng: Generator
) -> NDArray[np.intp]:
    """Return the class of every user at the start of this chain."""
    if isinstance(start, tuple) and start and all(isinstance(one, str) for one in start):
        start = start[chain % len(start)]
    if isinstance(start, str):
        if start == "one":
            return np.zeros(stats.n_users, np.intp)
        if start != "split":
            raise InputError(f"start={start!r}; it is 'split', 'one' or a class for each user")
        sample = stats
        if stats.n_users > _START_USERS:
            sample = stats.take(np.sort(rng.choice(stats.n_users, _START_USERS, replace=False)))
        n = min(n_classes or _SPLIT_INTO, stats.n_users)
        label = next(kmeans_starts(sample, n, prior, 1, rng)).label
        if sample is stats:
            return label
        sums = np.stack([sample.packed[:, label == h].sum(axis=1, dtype=np.float64) for h in range(n)], axis=1)
        beta, sigma2 = prior.mode(UserStats(sums, stats.n_features), shared=False)
        return assign_most_probable(LatentModels(np.full(n, 1 / n), beta, sigma2, stats.features), stats)
    label = np.asarray(start)
    if label.shape != (stats.n_users,) or label.dtype.kind not in "iu":
        raise InputError(f"start has shape {label.shape} of {label.dtype}; wanted a whole number for each user")
    label = np.unique(label, return_inverse=True)[1]
    if n_classes is not None and label.max() >= n_classes:
        raise InputError(f"start has {label.max() + 1} classes, n_classes={n_classes}; start with at most as many")
    return label.astype(np.intp)


LEARNER = Learner(
    "collapsed Gibbs sampling over a Dirichlet process",
    lambda log, n_classes, **settings: fit(log.stats, n_classes, **settings),
    list_settings(ChainSettings),
    finds_n_classes=True,
    start="labels",
    only_here="a sweep draws one user after the other",
)
