"""Latent classes of clicks: EM with a Bernoulli likelihood whose mean is linear in the features.

User u belongs to one class h; a reward is `high` with probability P_h(x) = (beta_h . x - low) / (high - low), held inside
(0, 1), else `low`.  Users enter through counts per arm, so a step costs O(pairs * N + A * N * d^2) for the different
(user, arm) pairs and the A different arms, whatever the number of events.

    E   resp_uh = softmax_h( log pi_h + clicked_u . log P_h + passed_u . log(1 - P_h) )
    M   C = clicked' resp, D = passed' resp                                            both (A, N)
        beta_h climbs  C_h . log P_h + D_h . log(1 - P_h) - (beta_h - w)' V (beta_h - w) / (2 noise)
        by one step of Fisher scoring, halved until the value does not fall

Every step raises the log posterior.  A Gaussian is biased here: with few rewards per user it mistakes the spread of a
click for differences between users.  EM on the statistics, with one shared variance, gives the start.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import gammaln

from lcb.clicks import Clicks, EventLog
from lcb.errors import ConvergenceWarning, InputError
from lcb.events import Floats
from lcb.learners import em
from lcb.models import EDGE, Fit, LatentModels
from lcb.prior import Prior
from lcb.progress import Progress, silent
from lcb.stats import upper

_HALVINGS = 12
_BLOCK = 65_536  # arms whose products are formed at a time


def fit(
    log: EventLog,
    n_classes: int,
    *,
    rng: np.random.Generator,
    prior: Prior | None = None,
    start: LatentModels | None = None,
    n_starts: int = 4,
    tol: float = 1e-5,
    max_steps: int = 300,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` latent models from a log of rewards that take exactly two values.

    >>> log = EventLog.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[1, 1, 0, 1])
    >>> fit(log, 1, rng=np.random.default_rng(0), prior=Prior(precision=1e-9)).models.beta.round(2)
    array([[0.75]])
    """
    clicks = _checked(log)
    prior = prior or Prior.scaled(log.stats)
    if start is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is a start
            start = em.fit(
                log.stats, n_classes, rng=rng, prior=prior, variance="shared", n_starts=n_starts, n_threads=n_threads,
                max_steps=100, progress=progress,
            ).models  # fmt: skip
    elif start.n_classes != n_classes:
        raise InputError(f"start has {start.n_classes} classes, n_classes={n_classes}; ask for the same number")
    problem = _Problem(clicks, prior, log.stats.n_features)
    models = replace(start, likelihood="bernoulli", levels=(clicks.low, clicks.high))
    trace: list[float] = []
    while True:
        resp, value = problem.expect(log, models)
        trace.append(value)
        progress("EM steps on clicks", len(trace), None)
        if len(trace) > max_steps or _settled(trace, tol, log.n_users):
            break
        models = problem.maximise(models, resp)
    converged = _settled(trace, tol, log.n_users)
    if not converged:
        warnings.warn(
            f"EM on clicks stopped at {max_steps} steps, last gain "
            f"{(trace[-1] - trace[-2]) / log.n_users:.2g} per user (tol {tol:g}); raise max_steps, or ask for fewer "
            "classes",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Fit(models, np.array(trace), converged)


def _checked(log: EventLog) -> Clicks:
    if log.clicks is None:
        reason = "there are too many different (user, arm) pairs to count" if log.two_valued else "they do not"
        raise InputError(f"a Bernoulli likelihood needs rewards of exactly two values, counted; {reason}: use gaussian")
    return log.clicks


def _settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return len(trace) > 1 and (trace[-1] - trace[-2]) / n_users <= tol


class _Problem:
    """The counts and the prior, in the form the steps want them."""

    def __init__(self, clicks: Clicks, prior: Prior, n_features: int) -> None:
        self.clicks, self.concentration = clicks, prior.concentration
        self.mean, precision = prior.arrays(n_features)
        self.precision = precision / prior.rate * prior.shape  # in units of the noise the prior expects
        self.span = clicks.high - clicks.low

    def expect(self, log: EventLog, models: LatentModels) -> tuple[Floats, float]:
        """Responsibilities (users, N) and the log posterior."""
        log_joint = models.user_log_likelihood(log) + models.log_pi
        evidence = np.logaddexp.reduce(log_joint, axis=1)
        value = float(evidence.sum() + self._log_prior(models.pi, models.beta))
        return np.exp(log_joint - evidence[:, None]), value

    def maximise(self, models: LatentModels, resp: Floats) -> LatentModels:
        clicked, passed = self.clicks.clicked.T @ resp, self.clicks.passed.T @ resp  # (A, N)
        beta = self._scored(models.beta, clicked, passed)
        mass = resp.sum(axis=0)
        pi = (mass + self.concentration / len(mass)) / (mass.sum() + self.concentration)
        p = self._probability(beta)
        rows = clicked + passed
        sigma2 = self.span**2 * ((rows * p * (1 - p)).sum(axis=0) + EDGE) / (rows.sum(axis=0) + 1)
        return replace(models, pi=pi, beta=beta, sigma2=sigma2)

    def _scored(self, beta: Floats, clicked: Floats, passed: Floats) -> Floats:
        """One step of Fisher scoring for every class, each halved until its value does not fall."""
        raw = (self.clicks.arms @ beta.T - self.clicks.low) / self.span
        p = np.clip(raw, EDGE, 1 - EDGE)
        pull = clicked / p - passed / (1 - p)
        inside = ~(((raw <= EDGE) & (pull < 0)) | ((raw >= 1 - EDGE) & (pull > 0)))  # outside the value is flat
        gradient = (pull * inside).T @ self.clicks.arms / self.span - (beta - self.mean) @ self.precision
        weight = (clicked + passed) / (p * (1 - p)) * inside / self.span**2
        curvature = self._weighted_grams(weight) + self.precision
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        before, size = self._values(beta, clicked, passed), np.ones(len(beta))
        for _ in range(_HALVINGS):
            fell = self._values(beta + size[:, None] * step, clicked, passed) < before
            if not fell.any():
                break
            size = np.where(fell, size / 2, size)
        else:
            size = np.where(fell, 0.0, size)
        return beta + size[:, None] * step

    def _values(self, beta: Floats, clicked: Floats, passed: Floats) -> Floats:
        """What the M step climbs, for every class."""
        p = self._probability(beta)
        offset = beta - self.mean
        fit = (clicked * np.log(p) + passed * np.log(1 - p)).sum(axis=0)
        return fit - 0.5 * np.einsum("ni,ij,nj->n", offset, self.precision, offset)

    def _probability(self, beta: Floats) -> Floats:
        """P(click) of every arm under every class, (A, N)."""
        return np.clip((self.clicks.arms @ beta.T - self.clicks.low) / self.span, EDGE, 1 - EDGE)

    def _weighted_grams(self, weight: Floats) -> Floats:
        """sum over arms of weight x x' for every class, (N, d, d)."""
        n_arms, d = self.clicks.arms.shape
        rows, columns = upper(d)
        packed = np.zeros((len(rows), weight.shape[1]))
        for i in range(0, n_arms, _BLOCK):
            x = self.clicks.arms[i : i + _BLOCK]
            packed += (x[:, rows] * x[:, columns]).T @ weight[i : i + _BLOCK]
        grams = np.empty((weight.shape[1], d, d))
        grams[:, rows, columns] = packed.T
        grams[:, columns, rows] = packed.T
        return grams

    def _log_prior(self, pi: Floats, beta: Floats) -> Any:
        n = len(pi)
        offset = beta - self.mean
        share = self.concentration / n
        dirichlet = gammaln(n + self.concentration) - n * gammaln(1 + share) + share * np.log(pi).sum()
        return dirichlet - 0.5 * np.einsum("ni,ij,nj->", offset, self.precision, offset)
