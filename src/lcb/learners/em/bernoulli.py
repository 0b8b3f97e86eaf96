"""EM with a Bernoulli likelihood whose mean is linear in the features, for rewards of two values (clicks).

User u belongs to one class h; a reward is `high` with probability P_h(x) = (beta_h . x - low) / (high - low), kept
inside (0, 1) by slow tails, else `low`.  Users enter through counts per arm, so a step costs O(pairs * N + A * N * d^2)
for the different (user, arm) pairs and the A different arms, for any number of events.

    E   resp_uh = softmax_h( log pi_h + clicked_u . log P_h + passed_u . log(1 - P_h) )
    M   C = clicked' resp, D = passed' resp                                            both (A, N)
        beta_h increases  C_h . log P_h + D_h . log(1 - P_h) - (beta_h - w)' V (beta_h - w) / (2 noise)
        by one step of Fisher scoring, halved while the value falls

After every second step the last two are extrapolated if that is better; the log posterior never falls.  A Gaussian
would be biased: with few rewards per user it takes the variance of clicks for differences between users.  EM on the
statistics, with one shared variance, gives the start.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln

from lcb.arrays import Floats, add_up
from lcb.errors import ConvergenceWarning, InputError
from lcb.event_log import EventLog
from lcb.learners.em import gaussian as em
from lcb.learners.shared.users import Map, Users, find_users, scale_prior
from lcb.models import EDGE, Fit, LatentModels, squash
from lcb.models.prior import Prior
from lcb.progress import Progress, silent
from lcb.runtime import parallel
from lcb.stats import upper

_HALVINGS = 12
_SMALLEST_SHARE = 1e-9
_BLOCK = 4096  # arms whose probabilities under all classes stay in the cache together


def fit(
    log: EventLog | Users,
    n_classes: int,
    *,
    rng: np.random.Generator,
    prior: Prior | None = None,
    start: LatentModels | None = None,
    n_starts: int | None = None,
    tol: float = 1e-6,
    max_steps: int = 300,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` latent models from a log of rewards that take exactly two values.

    >>> log = EventLog.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[1, 1, 0, 1])
    >>> fit(log, 1, rng=np.random.default_rng(0), prior=Prior(precision=1e-9)).models.beta.round(2)
    array([[0.75]])
    """
    with parallel.threads(n_threads) as map_blocks:
        users = find_users(log, map_blocks)
        _check(users, tol, max_steps)
        prior = prior or scale_prior(users)
        if start is None:
            start = _fit_start(users, n_classes, prior, n_starts, rng, n_threads, progress)
        start.check_features(users)
        if start.n_classes != n_classes:
            raise InputError(f"start has {start.n_classes} classes, n_classes={n_classes}; ask for the same number")
        pi = (start.pi + _SMALLEST_SHARE) / (1 + n_classes * _SMALLEST_SHARE)  # a share of 0 would stay 0
        models = replace(start, pi=pi, likelihood="bernoulli", levels=users.levels)
        problem = _Problem(users, prior, map_blocks)
        counts, value = problem.expect(models)
        trace = [value]
        path = [models]
        while len(trace) <= max_steps and not _has_settled(trace, tol, users.n_users):
            progress("EM steps on clicks", len(trace), max_steps)
            models, counts, value = problem.climb(models, counts, value)
            path.append(models)
            if len(path) == 3:
                models, counts, value = problem.extrapolate(path, counts, value)
                path = [models]
            trace.append(value)
    converged = _has_settled(trace, tol, users.n_users)
    if not converged:
        gain = (trace[-1] - trace[-2]) / users.n_users
        warnings.warn(
            f"EM on clicks stopped at {max_steps} steps, last gain {gain:.2g} per user (tol {tol:g}); "
            "raise max_steps, or ask for fewer classes",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Fit(models, np.array(trace), converged)


def _check(users: Users, tol: float, max_steps: int) -> None:
    if not tol > 0 or max_steps < 1:
        raise InputError(f"tol={tol}, max_steps={max_steps}; tol must be positive, max_steps at least 1")
    if users.arms is None:
        why = "this log has too many (user, arm) pairs to count" if users.two_valued else "this log has no such counts"
        raise InputError(f"a Bernoulli likelihood needs rewards of exactly two values, counted; {why}: use gaussian")


def _fit_start(
    users: Users,
    n_classes: int,
    prior: Prior,
    n_starts: int | None,
    rng: np.random.Generator,
    n_threads: int | None,
    progress: Progress,
) -> LatentModels:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not converge
        shared: dict[str, Any] = {"variance": "shared", "n_starts": n_starts, "n_threads": n_threads, "max_steps": 100}
        return em.fit(users, n_classes, rng=rng, prior=prior, progress=progress, **shared).models


def _has_settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return len(trace) > 1 and (trace[-1] - trace[-2]) / n_users <= tol


@dataclass(frozen=True, eq=False)
class Counts:
    """What an E-step on clicks adds up: the expected clicks and passes of each arm by class."""

    clicked: Floats  # (A, N)
    passed: Floats  # (A, N)
    mass: Floats  # (N,) expected users
    log_evidence: float

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.clicked + other.clicked,
            self.passed + other.passed,
            self.mass + other.mass,
            self.log_evidence + other.log_evidence,
        )


@dataclass(frozen=True, eq=False)
class ExpectClicks:
    """The E-step under given classes."""

    beta: Floats  # (N, d)
    log_pi: Floats  # (N,)
    span: int | None = None

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], Counts]:
        clicks, n_classes = log.clicks, len(self.beta)
        assert clicks is not None
        n_arms = len(clicks.arms)
        log_p, log_q = np.empty((n_arms, n_classes)), np.empty((n_arms, n_classes))

        def logs(block: slice) -> None:
            p = _find_probability(clicks.arms[block], self.beta, clicks.low, clicks.high)[0]
            np.log(p, out=log_p[block])
            np.log(np.subtract(1, p, out=p), out=log_q[block])

        def count(users: slice, _: int) -> Counts:
            clicked, passed = clicks.clicked, clicks.passed
            if users != slice(0, log.n_users):
                clicked, passed = clicked[users], passed[users]
            log_joint = clicked @ log_p
            log_joint += passed @ log_q
            log_joint += self.log_pi
            top = log_joint.max(axis=1)
            log_joint -= top[:, None]
            resp = np.exp(log_joint, out=log_joint)
            total = resp.sum(axis=1)
            resp /= total[:, None]
            log_evidence = float(top.sum() + np.log(total).sum())
            return Counts(clicked.T @ resp, passed.T @ resp, resp.sum(axis=0), log_evidence)

        map_spans(logs, _split_arms(n_arms))
        return count


def _find_probability(arms: Floats, beta: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return P(click) of arms (n, d) under every class, (n, N), and its slope."""
    return squash((arms @ beta.T - low) / (high - low))


def _split_arms(n_arms: int) -> list[slice]:
    return [slice(i, min(i + _BLOCK, n_arms)) for i in range(0, n_arms, _BLOCK)]


class _Problem:
    """The users and the prior, in the form that the steps use."""

    def __init__(self, users: Users, prior: Prior, map_blocks: Map) -> None:
        assert users.arms is not None
        assert users.levels is not None
        self.users, self.concentration, self.map = users, prior.concentration, map_blocks
        self.arms, (self.low, self.high) = users.arms, users.levels
        self.d = users.n_features
        self.mean, precision = prior.arrays(self.d)
        self.precision = precision / prior.rate * prior.shape  # in units of the noise the prior expects
        self.span = self.high - self.low
        self.blocks = _split_arms(len(self.arms))

    def expect(self, models: LatentModels) -> tuple[Counts, float]:
        """Return the expected counts and the log posterior."""
        counts = self.users.sums(ExpectClicks(models.beta, models.log_pi))
        return counts, counts.log_evidence + self._log_prior(models)

    def climb(self, models: LatentModels, counts: Counts, value: float) -> tuple[LatentModels, Counts, float]:
        """Return the next models, their expected counts and their log posterior, which is at least `value`."""
        beta, sigma2 = self._maximise(models.beta, counts)
        mass = counts.mass
        pi = (mass + self.concentration / len(mass)) / (mass.sum() + self.concentration)
        stepped = replace(models, pi=pi, beta=beta, sigma2=sigma2)
        stepped_counts, stepped_value = self.expect(stepped)
        if stepped_value < value:  # by rounding alone: every class's own value rose
            return models, counts, value
        return stepped, stepped_counts, stepped_value

    def _maximise(self, beta: Floats, counts: Counts) -> tuple[Floats, Floats]:
        """Take one step of Fisher scoring, halved for each class separately until its value does not fall."""
        gradient, curvature, sigma2, before = self._compute_scores(beta, counts)
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        size = np.ones(len(beta))
        for _ in range(_HALVINGS):
            fell = self._compute_values(beta + size[:, None] * step, counts) < before - 1e-12 * np.abs(before)
            if not fell.any():
                break
            size = np.where(fell, size / 2, size)
        else:
            size = np.where(fell, 0.0, size)
        return beta + size[:, None] * step, sigma2

    def extrapolate(self, path: list[LatentModels], counts: Counts, value: float) -> tuple[LatentModels, Counts, float]:
        """Extrapolate the last two steps (SQUAREM, Varadhan & Roland 2008) if that is better."""
        before, middle, after = (np.column_stack([models.beta, models.log_pi]) for models in path)
        first, change = middle - before, after - 2 * middle + before
        length = -np.linalg.norm(first) / max(float(np.linalg.norm(change)), 1e-300)
        if length >= -1:
            return path[-1], counts, value
        target = before - 2 * length * first + length**2 * change
        log_pi = target[:, -1] - np.logaddexp.reduce(target[:, -1])
        new = replace(path[-1], beta=target[:, :-1], pi=np.exp(log_pi))
        new_counts, new_value = self.expect(new)
        return (new, new_counts, new_value) if new_value > value else (path[-1], counts, value)

    def _compute_scores(self, beta: Floats, counts: Counts) -> tuple[Floats, Floats, Floats, Floats]:
        """Return gradient (N, d), expected curvature (N, d, d), variances (N,) and value (N,) of the M step."""
        rows, columns = upper(self.d)

        def part(block: slice) -> tuple[Floats, Floats, Floats, Floats, Floats]:
            p, slope = self._probability(beta, block)
            clicked, passed = counts.clicked[block], counts.passed[block]
            n, variance, x = clicked + passed, p * (1 - p), self.arms[block]
            pull = (clicked / p - passed / (1 - p)) * slope
            packed = (x[:, rows] * x[:, columns]).T @ (n * slope**2 / variance)
            value = (clicked * np.log(p) + passed * np.log(1 - p)).sum(axis=0)
            return pull.T @ x, packed, (n * variance).sum(axis=0), n.sum(axis=0), value

        gradient, packed, variance, n, value = (
            add_up(parts) for parts in zip(*self.map(part, self.blocks), strict=True)
        )
        curvature = np.empty((len(beta), self.d, self.d))
        curvature[:, rows, columns] = packed.T
        curvature[:, columns, rows] = packed.T
        return (
            gradient / self.span - (beta - self.mean) @ self.precision,
            curvature / self.span**2 + self.precision,
            self.span**2 * (variance + EDGE) / (n + 1),
            value - self._penalty(beta),
        )

    def _compute_values(self, beta: Floats, counts: Counts) -> Floats:
        """Return the objective of the M step, (N,)."""

        def part(block: slice) -> Floats:
            p = self._probability(beta, block)[0]
            clicked, passed = counts.clicked[block], counts.passed[block]
            return (clicked * np.log(p) + passed * np.log(1 - p)).sum(axis=0)

        return add_up(self.map(part, self.blocks)) - self._penalty(beta)

    def _penalty(self, beta: Floats) -> Floats:
        """Return the penalty of each class's distance to the prior's mean, (N,)."""
        offset = beta - self.mean
        return 0.5 * np.einsum("ni,ij,nj->n", offset, self.precision, offset)

    def _probability(self, beta: Floats, block: slice) -> tuple[Floats, Floats]:
        """Return P(click) of a block of arms under every class, and its slope."""
        return _find_probability(self.arms[block], beta, self.low, self.high)

    def _log_prior(self, models: LatentModels) -> float:
        n, share = models.n_classes, self.concentration / models.n_classes
        dirichlet = gammaln(n + self.concentration) - n * gammaln(1 + share) + share * models.log_pi.sum()
        return float(dirichlet - self._penalty(models.beta).sum())
