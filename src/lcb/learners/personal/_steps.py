"""EM steps of personal classes under a fixed prior: what they maximise, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lcb.arrays import Floats, add_up
from lcb.marginal import Rewards
from lcb.progress import Progress

_SPAN = 1024  # users a thread takes at a time; sums are added span by span, so threads change nothing
Map = Callable[[Callable[[slice], Any], Sequence[slice]], list[Any]]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Of all classes; one covariance, (1, d, d), may stand for all."""

    pi: Floats  # (N,)
    mu: Floats  # (N, d)
    sigma: Floats  # (N, d, d) or (1, d, d)
    noise: Floats  # (A,)


@dataclass(frozen=True, eq=False)
class SpreadPrior:
    """The prior of one fit; up to a constant its log density is

        - 1/2 sum_h (mu_h - mean)' precision (mu_h - mean)          Normal
        - weight/2 sum_h (log|Sigma_h| + tr(spread Sigma_h^-1))     inverse Wishart, mode `spread`
        - noise_weight/2 sum_a (log s2_a + noise / s2_a)            inverse Gamma, mode `noise`
        + 1/N sum_h log pi_h                                        Dirichlet

    Weights are in users and in rewards.
    """

    mean: Floats  # (d,)
    precision: Floats  # (d, d)
    spread: Floats  # (d, d)
    weight: float
    noise: float
    noise_weight: float = 10.0

    def log_density(self, at: Parameters) -> float:
        offset = at.mu - self.mean
        value = -0.5 * float(np.einsum("hi,ij,hj->", offset, self.precision, offset))
        size = np.linalg.slogdet(at.sigma)[1] + np.einsum("ij,hji->h", self.spread, np.linalg.inv(at.sigma))
        value -= 0.5 * self.weight * float(size.sum())
        value -= 0.5 * self.noise_weight * float((np.log(at.noise) + self.noise / at.noise).sum())
        return value + float(np.log(at.pi).mean())


@dataclass(frozen=True, eq=False)
class Expected:
    """What the E-step adds up; see `_expect_numba.expect`."""

    evidence: float
    mass: Floats  # (N,)
    first: Floats  # (N, d)
    second: Floats  # (N, d, d)
    spread: Floats  # (N, d, d) or (1, d, d)
    residuals: Floats  # (A,)


def climb(
    rewards: Rewards,
    at: Parameters,
    prior: SpreadPrior,
    tol: float,
    max_steps: int,
    map_spans: Map,
    progress: Progress,
    what: str,
) -> tuple[Parameters, list[float]]:
    """Step until the gain per user falls to `tol`; the parameters, and the log posterior before and after each step."""
    expected = sum_expected(rewards, at, map_spans)
    trace = [expected.evidence + prior.log_density(at)]
    while len(trace) <= max_steps:
        at = maximise(rewards, at, expected, prior)
        expected = sum_expected(rewards, at, map_spans)
        trace.append(expected.evidence + prior.log_density(at))
        progress(what, len(trace) - 1, max_steps)
        if has_settled(trace, tol, rewards.n_users):
            break
    return at, trace


def has_settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return len(trace) > 1 and trace[-1] - trace[-2] <= tol * n_users


def sum_expected(rewards: Rewards, at: Parameters, map_spans: Map) -> Expected:
    """Run the E-step over all users, span by span."""
    spans = [slice(i, min(i + _SPAN, rewards.n_users)) for i in range(0, rewards.n_users, _SPAN)]
    parts = map_spans(lambda span: _expect_span(rewards, at, span)[0], spans)
    return Expected(*(add_up(part[i] for part in parts) for i in range(6)))


def user_means(rewards: Rewards, at: Parameters, map_spans: Map) -> Floats:
    """Return the expected weights of each user, (users, d)."""
    spans = [slice(i, min(i + _SPAN, rewards.n_users)) for i in range(0, rewards.n_users, _SPAN)]
    return np.concatenate(map_spans(lambda span: _expect_span(rewards, at, span)[1], spans))


def expect_users(rewards: Rewards, at: Parameters, users: slice) -> tuple[Floats, Floats]:
    """Return the expected weights w of some users (n, d), and the upper triangles of E[w w'] (n, d (d + 1) / 2)."""
    _, mean, square = _expect_span(rewards, at, users)
    return mean, square


def _expect_span(rewards: Rewards, at: Parameters, span: slice) -> tuple[tuple[Any, ...], Floats, Floats]:
    from lcb.learners.personal._expect_numba import expect

    gram, moment, constant = (np.ascontiguousarray(part) for part in rewards.divide(at.noise, span))
    precision = np.linalg.inv(at.sigma)
    half_log = -0.5 * np.linalg.slogdet(at.sigma)[1]
    mass, first, second = np.zeros(len(at.mu)), np.zeros(at.mu.shape), np.zeros((*at.mu.shape, at.mu.shape[1]))
    spread, mean, square = np.zeros(at.sigma.shape), np.empty(moment.shape), np.empty(gram.shape)
    with np.errstate(divide="ignore"):
        log_pi = np.log(at.pi)
    out = (mass, first, second, spread, mean, square)
    evidence = expect(gram, moment, constant, log_pi, at.mu, precision, half_log, *out)
    residuals = rewards.sum_residuals(span, mean, square)
    return (evidence, mass, first, _mirror(second), _mirror(spread), residuals), mean, square


def maximise(rewards: Rewards, at: Parameters, expected: Expected, prior: SpreadPrior) -> Parameters:
    """Run the M-step: mu given Sigma, then Sigma given the new mu; the noise and pi separately."""
    mass, first = expected.mass, expected.first
    n, d = at.mu.shape
    own = np.linalg.inv(at.sigma)
    left = mass[:, None, None] * own + prior.precision
    right = np.einsum("hij,hj->hi", np.broadcast_to(own, (n, d, d)), first) + (prior.mean - at.mu) @ prior.precision
    move = np.linalg.solve(left, right[..., None])[..., 0]
    cross = first[:, :, None] * move[:, None, :]
    scatter = expected.second - cross - cross.swapaxes(1, 2) + mass[:, None, None] * move[:, :, None] * move[:, None, :]
    users = mass
    if len(at.sigma) == 1:
        scatter, users = scatter.sum(axis=0, keepdims=True), mass.sum(keepdims=True)
    sigma = (scatter + expected.spread + prior.weight * prior.spread) / (users + prior.weight)[:, None, None]
    noise = (expected.residuals + prior.noise_weight * prior.noise) / (rewards.count + prior.noise_weight)
    noise = np.maximum(noise, rewards.least)  # rewards without noise would divide by 0
    return Parameters((mass + 1 / n) / (mass.sum() + 1), at.mu + move, (sigma + sigma.swapaxes(1, 2)) / 2, noise)


def _mirror(upper: Floats) -> Floats:
    """Symmetric matrices of their upper triangles."""
    return np.asarray(np.triu(upper) + np.triu(upper, 1).swapaxes(1, 2))
