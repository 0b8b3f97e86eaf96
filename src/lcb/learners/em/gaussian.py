"""Latent classes by expectation-maximisation on per-user statistics.

User u belongs to one class h; its rewards are N(X_u beta_h, sigma2_h).  Events enter only through the user's
statistics, so a step is two matrix products, O(users * classes * d^2), for any number of events.

    E   resp_uh  = softmax_h( log pi_h + log N(r_u | X_u beta_h, sigma2_h) )
    M   beta_h   = (G_h + V)^-1 (m_h + V w)                    G_h = sum_u resp_uh X_u'X_u
        sigma2_h = (residual_h + (beta_h - w)'V(beta_h - w) + 2 b) / (n_h + d + 2 a + 2)
        pi_h     = (sum_u resp_uh + c/N) / (U + c)

Every step raises the log posterior under `Prior(mean=w, precision=V, shape=a, rate=b, concentration=c)`; an
emptied class falls back to the prior instead of dividing by zero.  Starts are k-means++ on ridge coefficients;
each is tried for a few steps on a sample of users, and the best goes on with all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lcb import parallel
from lcb.arrays import add_up
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.shared.starts import Labels, kmeans_starts, sample_users
from lcb.models import Fit, LatentModels
from lcb.prior import Prior
from lcb.progress import Progress, silent
from lcb.stats import UserStats
from lcb.words import format_count

BLOCK = 1024  # users whose statistics and responsibilities stay in the cache together
SPAN = 16 * BLOCK  # users a thread takes at a time; fixed spans make the sums independent of the number of threads
_TRIAL_STEPS = 20

Variance = Literal["class", "shared"]
Map = Callable[[Callable[[slice], Any], Sequence[slice]], list[Any]]


def fit(
    stats: UserStats,
    n_classes: int,
    *,
    rng: np.random.Generator,
    prior: Prior | None = None,
    variance: Variance = "class",
    start: LatentModels | None = None,
    n_starts: int = 4,
    tol: float = 1e-6,
    max_steps: int = 500,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` latent models from the statistics of past users.

    `start` (last week's models, say) is tried beside the other starts, and is the only one with `n_starts=0`.  Steps
    end when the log posterior gains less than `tol` per user.  Statistics in float32 take half the memory and time.

    >>> stats = UserStats.from_rows(user=[0, 1], x=[[1.0], [1.0]], reward=[0.9, 0.1])
    >>> fit(stats, 1, rng=np.random.default_rng(0), prior=Prior(precision=1e-9)).models.beta.round(3)
    array([[0.5]])
    """
    _check(stats, n_classes, variance, n_starts, max_steps, tol)
    if n_starts == 0 and start is None:
        raise InputError("n_starts=0 without `start`; give `start`, or at least 1 of n_starts")
    prior = prior or Prior.scaled(stats)
    shared = variance == "shared"
    if start is not None:
        start.check_features(stats)
        if start.n_classes != n_classes:
            raise InputError(f"start has {start.n_classes} classes, n_classes={n_classes}; ask for the same number")

    progress("compiling, the first time", 0, None)
    with parallel.threads(n_threads) as map_spans:
        sample = sample_users(stats, rng)
        best: LatentModels | None = None
        trace: list[float] = []
        trials: list[LatentModels | Labels] = []
        if n_starts:
            trials += kmeans_starts(sample, n_classes, prior, n_starts, rng)
        if start is not None:
            trials.append(start)
        for done, trial in enumerate(trials):
            progress("trying starts", done, len(trials))
            models = trial if isinstance(trial, LatentModels) else _fit_labels(sample, trial, prior, shared)
            models, values = _climb(sample, models, prior, shared, tol, min(_TRIAL_STEPS, max_steps), map_spans, silent)
            if best is None or values[-1] > trace[-1]:
                best, trace = models, values
        assert best is not None
        trace = trace if sample is stats else []
        if len(trace) < max_steps and not _has_settled(trace, tol, stats.n_users):
            best, values = _climb(stats, best, prior, shared, tol, max_steps - len(trace), map_spans, progress)
            trace = trace + values

    converged = _has_settled(trace, tol, stats.n_users)
    if not converged:
        warnings.warn(
            f"EM stopped at {max_steps} steps, last gain {_gain(trace, stats.n_users):.2g} per user (tol {tol:g}); "
            "raise max_steps, or ask for fewer classes",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Fit(best, np.array(trace), converged)


def _check(stats: UserStats, n_classes: int, variance: str, n_starts: int, max_steps: int, tol: float) -> None:
    if n_classes < 1:
        raise InputError(f"n_classes={n_classes}; ask for at least 1")
    if stats.n_users < n_classes:
        raise InputError(
            f"n_classes={n_classes}, but only {format_count(stats.n_users, 'user')} to learn from; ask for fewer"
        )
    if variance not in ("class", "shared"):
        raise InputError(f"variance={variance!r}; it is 'class' (one per class) or 'shared' (one for all)")
    if n_starts < 0 or max_steps < 1:
        raise InputError(f"n_starts={n_starts}, max_steps={max_steps}; at least 0 and at least 1 are needed")
    if not tol > 0:
        raise InputError(f"tol={tol}; it must be a positive number")
    if not all(np.isfinite(values).all() for values in stats.packed):
        kind = stats.packed.dtype.name
        raise InputError(f"the sums of features and rewards are too large for {kind}; scale them down, or use float64")


def _climb(
    stats: UserStats,
    models: LatentModels,
    prior: Prior,
    shared: bool,
    tol: float,
    max_steps: int,
    map_spans: Map,
    progress: Progress,
) -> tuple[LatentModels, list[float]]:
    """Step until the gain per user falls to `tol`; return the models, and the log posterior after each step."""
    trace: list[float] = []
    models, _ = _step(stats, models, prior, shared, map_spans)
    while True:
        stepped, value = _step(stats, models, prior, shared, map_spans)  # value belongs to `models`
        trace.append(value)
        progress("EM steps", len(trace), max_steps)
        if len(trace) >= max_steps or _has_settled(trace, tol, stats.n_users):
            return models, trace
        models = stepped


def _gain(trace: Sequence[float], n_users: int) -> float:
    return (trace[-1] - trace[-2]) / n_users if len(trace) > 1 else np.inf


def _has_settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return _gain(trace, n_users) <= tol


def _step(
    stats: UserStats, models: LatentModels, prior: Prior, shared: bool, map_spans: Map
) -> tuple[LatentModels, float]:
    """Take one E and M step; return the next models, and the log posterior of the given ones."""
    value = prior.log_density(models.pi, models.beta, models.sigma2, shared)
    sums, mass, log_evidence = _sum_expected(stats, models, map_spans)
    return _maximise(UserStats(sums, stats.n_features, (), stats.features), mass, prior, shared), value + log_evidence


def _sum_expected(
    stats: UserStats, models: LatentModels, map_spans: Map
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return each class's expected statistics (p, N) and users (N,), and the log evidence of all users."""
    dtype = stats.packed.dtype
    weights = np.ascontiguousarray(models.packed().T, dtype=dtype)  # (N, p)
    log_pi = models.log_pi.astype(dtype)
    spans = [slice(i, min(i + SPAN, stats.n_users)) for i in range(0, stats.n_users, SPAN)]
    parts = map_spans(lambda span: _sum_span(stats.packed, weights, log_pi, span), spans)
    if len(parts) == 1:
        return parts[0]
    return add_up(part[0] for part in parts), add_up(part[1] for part in parts), add_up(part[2] for part in parts)


def _sum_span(
    packed: NDArray[Any], weights: NDArray[Any], log_pi: NDArray[Any], span: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    from lcb.learners.em._softmax_numba import softmax

    n_classes, p = weights.shape
    n, dtype = span.stop - span.start, packed.dtype
    resp = np.empty((n_classes, min(BLOCK, n)), dtype)
    top, total = np.empty(n, dtype), np.empty(n, dtype)
    sums, mass = np.zeros((p, n_classes)), np.zeros(n_classes)
    for i in range(0, n, BLOCK):
        here = slice(i, min(i + BLOCK, n))
        block = packed[:, span.start + here.start : span.start + here.stop]
        size = block.shape[1]
        block_resp = np.matmul(weights, block, out=resp[:, :size])
        softmax(block_resp, log_pi, top[here], total[here], mass)
        sums += block @ block_resp.T
    return sums, mass, float(np.log(total).sum(dtype=np.float64) + top.sum(dtype=np.float64))


def _maximise(classes: UserStats, mass: NDArray[np.float64], prior: Prior, shared: bool) -> LatentModels:
    beta, sigma2 = prior.mode(classes, shared)
    pi = (mass + prior.concentration / len(mass)) / (mass.sum() + prior.concentration)
    return LatentModels(pi, beta, sigma2, classes.features)


def _fit_labels(stats: UserStats, labels: Labels, prior: Prior, shared: bool) -> LatentModels:
    """Return the models of users with given classes, to start from."""
    resp = (labels.label[None, :] == np.arange(labels.n_classes)[:, None]).astype(stats.packed.dtype)
    sums = (stats.packed @ resp.T).astype(np.float64)
    return _maximise(UserStats(sums, stats.n_features, (), stats.features), resp.sum(axis=1), prior, shared)
