"""Latent classes by expectation-maximisation on per-user statistics.

User u belongs to one class h; its rewards are N(X_u beta_h, sigma2_h).  Events enter only through the user's
statistics, so a step is two matrix products, O(users * classes * d^2), for any number of events.

    E   resp_uh  = softmax_h( log pi_h + log N(r_u | X_u beta_h, sigma2_h) )
    M   beta_h   = (G_h + V)^-1 (m_h + V w)                    G_h = sum_u resp_uh X_u'X_u
        sigma2_h = (residual_h + (beta_h - w)'V(beta_h - w) + 2 b) / (n_h + d + 2 a + 2)
        pi_h     = (sum_u resp_uh + c/N) / (U + c)

Every step raises the log posterior under `Prior(mean=w, precision=V, shape=a, rate=b, concentration=c)`; an
emptied class falls back to the prior instead of dividing by zero.  Starts are k-means++ on ridge coefficients;
each is tried for a few steps on a sample of users, and the best goes on with all of them.  Of many classes, up to 16
starts are tried until three of them agree; where they do not, the best four climb longer before one is chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.errors import ConvergenceWarning, InputError
from lcb.event_log import EventLog
from lcb.learners.shared.starts import MANY_CLASSES, Labels, kmeans_starts
from lcb.learners.shared.users import CountNotFinite, Local, Map, Users, find_users, sample_users, scale_prior
from lcb.models import Fit, LatentModels
from lcb.models.prior import Prior
from lcb.progress import Progress, silent
from lcb.runtime import parallel
from lcb.stats import UserStats
from lcb.words import format_count

BLOCK = 256  # users whose statistics and responsibilities stay in the cache together
SPAN = 64 * BLOCK  # users a thread takes at a time; fixed spans make the sums independent of the number of threads
_STARTS, _MOST_STARTS = 4, 16  # of few classes, and of many
_TRIAL_STEPS = 20  # of every start
_LONGER_STEPS = 120  # of the best four, where more starts do not agree
_AGREEING = 3  # starts that reach the same value, after which no more are tried
_SAME = 1e-6  # difference of log posteriors per reward

Variance = Literal["class", "shared"]


def fit(
    data: UserStats | EventLog | Users,
    n_classes: int,
    *,
    rng: np.random.Generator,
    prior: Prior | None = None,
    variance: Variance = "class",
    start: LatentModels | None = None,
    n_starts: int | None = None,
    tol: float = 1e-6,
    max_steps: int = 500,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` latent models from the statistics of past users.

    `start` (last week's models, say) is tried beside the other starts, and is the only one with `n_starts=0`; by
    default there are 4, of 10 classes or more up to 16.  Steps end when the log posterior gains less than `tol` per
    user.  Statistics in float32 take half the memory and time.

    >>> stats = UserStats.from_rows(user=[0, 1], x=[[1.0], [1.0]], reward=[0.9, 0.1])
    >>> fit(stats, 1, rng=np.random.default_rng(0), prior=Prior(precision=1e-9)).models.beta.round(3)
    array([[0.5]])
    """
    if n_starts is None:
        n_starts = _STARTS if n_classes < MANY_CLASSES else _MOST_STARTS
    if n_starts == 0 and start is None:
        raise InputError("n_starts=0 without `start`; give `start`, or at least 1 of n_starts")
    progress("compiling, the first time", 0, None)
    with parallel.threads(n_threads) as map_spans:
        users = find_users(data, map_spans)
        _check(users, n_classes, variance, n_starts, max_steps, tol)
        prior = prior or scale_prior(users)
        shared = variance == "shared"
        if start is not None:
            start.check_features(users)
            if start.n_classes != n_classes:
                raise InputError(f"start has {start.n_classes} classes, n_classes={n_classes}; ask for the same number")
        sample = sample_users(users, rng)
        few = Local(sample, map_spans)
        trials: list[Iterable[LatentModels]] = [] if start is None else [[start]]
        if n_starts:
            labels = kmeans_starts(sample.stats, n_classes, prior, n_starts, rng)
            trials.append(_fit_labels(sample.stats, label, prior, shared) for label in labels)

        climb = partial(_climb, few, prior=prior, shared=shared, tol=tol, progress=silent)
        best, trace = _try_starts(chain(*trials), n_starts, max_steps, _SAME * sample.n_events, climb, progress)
        n_users = users.n_users
        trace = trace if sample.n_users == n_users else []
        if len(trace) < max_steps and not _has_settled(trace, tol, n_users):
            best, values = _climb(users, best, prior, shared, tol, max_steps - len(trace), progress)
            trace = trace + values

    converged = _has_settled(trace, tol, n_users)
    if not converged:
        warnings.warn(
            f"EM stopped at {max_steps} steps, last gain {_gain(trace, n_users):.2g} per user (tol {tol:g}); "
            "raise max_steps, or ask for fewer classes",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Fit(best, np.array(trace), converged)


def _try_starts(
    trials: Iterable[LatentModels],
    n_starts: int,
    max_steps: int,
    same: float,
    climb: Callable[..., tuple[LatentModels, list[float]]],
    progress: Progress,
) -> tuple[LatentModels, list[float]]:
    """Return the best models after some steps from each start, and their trace; equal values differ by `same`."""
    found: list[tuple[LatentModels, list[float]]] = []
    for trial in trials:
        progress("trying starts", len(found), max(n_starts, 1))
        found.append(climb(trial, max_steps=min(_TRIAL_STEPS, max_steps)))
        found.sort(key=lambda one: -one[1][-1])
        if n_starts > _STARTS and len(found) >= _AGREEING and found[0][1][-1] - found[_AGREEING - 1][1][-1] <= same:
            return found[0]
    n_more = min(_LONGER_STEPS, max_steps) - _TRIAL_STEPS
    if n_starts > _STARTS and n_more > 0:
        for i, (models, trace) in enumerate(found[:_STARTS]):
            progress("climbing from the best starts", i, _STARTS)
            if len(trace) == _TRIAL_STEPS:  # others have settled
                models, more = climb(models, max_steps=n_more)
                found[i] = models, trace + more
    return max(found[:_STARTS], key=lambda one: one[1][-1])


def _check(users: Users, n_classes: int, variance: str, n_starts: int, max_steps: int, tol: float) -> None:
    if n_classes < 1:
        raise InputError(f"n_classes={n_classes}; ask for at least 1")
    if users.n_users < n_classes:
        raise InputError(
            f"n_classes={n_classes}, but only {format_count(users.n_users, 'user')} to learn from; ask for fewer"
        )
    if variance not in ("class", "shared"):
        raise InputError(f"variance={variance!r}; it is 'class' (one per class) or 'shared' (one for all)")
    if n_starts < 0 or max_steps < 1:
        raise InputError(f"n_starts={n_starts}, max_steps={max_steps}; at least 0 and at least 1 are needed")
    if not tol > 0:
        raise InputError(f"tol={tol}; it must be a positive number")
    if users.sums(CountNotFinite()):
        raise InputError(
            "the sums of features and rewards are not finite; scale features and rewards down, or use float64"
        )


def _climb(
    users: Users,
    models: LatentModels,
    prior: Prior,
    shared: bool,
    tol: float,
    max_steps: int,
    progress: Progress,
) -> tuple[LatentModels, list[float]]:
    """Step until the gain per user falls to `tol`; return the models, and the log posterior after each step."""
    trace: list[float] = []
    models, _ = step(users, models, prior, shared)
    while True:
        stepped, value = step(users, models, prior, shared)  # value belongs to `models`
        trace.append(value)
        progress("EM steps", len(trace), max_steps)
        if len(trace) >= max_steps or _has_settled(trace, tol, users.n_users):
            return models, trace
        models = stepped


def _gain(trace: Sequence[float], n_users: int) -> float:
    return (trace[-1] - trace[-2]) / n_users if len(trace) > 1 else np.inf


def _has_settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return _gain(trace, n_users) <= tol


def step(users: Users, models: LatentModels, prior: Prior, shared: bool) -> tuple[LatentModels, float]:
    """Take one E and M step; return the next models, and the log posterior of the given ones."""
    value = prior.log_density(models.pi, models.beta, models.sigma2, shared)
    sums = users.sums(Expect(np.ascontiguousarray(models.packed().T), models.log_pi))
    classes = UserStats(sums.statistics, users.n_features, (), users.features)
    return _maximise(classes, sums.mass, prior, shared), value + sums.log_evidence


@dataclass(frozen=True, eq=False)
class Sums:
    """What an E-step adds up."""

    statistics: NDArray[np.float64]  # (p, N) expected, of each class
    mass: NDArray[np.float64]  # (N,) expected users
    log_evidence: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.statistics + other.statistics, self.mass + other.mass, self.log_evidence + other.log_evidence)


@dataclass(frozen=True, eq=False)
class Expect:
    """The E-step under given models."""

    weights: Floats  # (N, p), from `LatentModels.packed`
    log_pi: Floats  # (N,)
    span: int | None = SPAN

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], Sums]:
        packed = log.stats.packed
        weights, log_pi = self.weights.astype(packed.dtype, "C"), self.log_pi.astype(packed.dtype)
        return lambda span, _: _sum_span(packed, weights, log_pi, span)


def _sum_span(packed: NDArray[Any], weights: NDArray[Any], log_pi: NDArray[Any], span: slice) -> Sums:
    from lcb.learners.em._span_numba import sum_blocks

    n_classes, p = weights.shape
    sums, mass = np.zeros((p, n_classes)), np.zeros(n_classes)
    top, total = sum_blocks(packed, weights, log_pi, span, BLOCK, sums, mass)
    return Sums(sums, mass, float(np.log(total).sum(dtype=np.float64) + top.sum(dtype=np.float64)))


def _maximise(classes: UserStats, mass: NDArray[np.float64], prior: Prior, shared: bool) -> LatentModels:
    beta, sigma2 = prior.mode(classes, shared)
    pi = (mass + prior.concentration / len(mass)) / (mass.sum() + prior.concentration)
    return LatentModels(pi, beta, sigma2, classes.features)


def _fit_labels(stats: UserStats, labels: Labels, prior: Prior, shared: bool) -> LatentModels:
    """Return the models of users with given classes, to start from."""
    resp = (labels.label[None, :] == np.arange(labels.n_classes)[:, None]).astype(stats.packed.dtype)
    sums = (stats.packed @ resp.T).astype(np.float64)
    return _maximise(UserStats(sums, stats.n_features, (), stats.features), resp.sum(axis=1), prior, shared)
