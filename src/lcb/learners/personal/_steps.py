"""EM steps of personal classes under a fixed prior: what they maximise, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lcb.arrays import Floats
from lcb.event_log import EventLog
from lcb.learners.shared.users import Map, Users
from lcb.models.marginal import NoisePerArm, Rewards, SharedNoise, Totals
from lcb.progress import Progress

_SPAN = 1024  # users a thread takes at a time; sums are added span by span, so threads change nothing


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

    def __add__(self, other: Expected) -> Expected:
        return Expected(
            self.evidence + other.evidence,
            self.mass + other.mass,
            self.first + other.first,
            self.second + other.second,
            self.spread + other.spread,
            self.residuals + other.residuals,
        )


def get_rewards(log: EventLog, per_arm: bool) -> Rewards:
    """Return the rewards of a log, with a noise for each arm or one for all."""
    if not per_arm:
        return SharedNoise(log.stats)
    assert log.clicks is not None
    return NoisePerArm(log.clicks)


@dataclass(frozen=True)
class CountRewards:
    """The numbers of rewards with each noise, and their squares."""

    per_arm: bool = False
    span: int | None = None

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], Totals]:
        def count(users: slice, _: int) -> Totals:
            rewards = get_rewards(log, self.per_arm)
            return (rewards if users == slice(0, log.n_users) else rewards.take(np.arange(log.n_users)[users])).total()

        return count


@dataclass(frozen=True, eq=False)
class Expect:
    """The E-step at given parameters."""

    at: Parameters
    per_arm: bool = False
    span: int | None = _SPAN

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], Expected]:
        rewards = get_rewards(log, self.per_arm)
        return lambda users, _: _expect_span(rewards, self.at, users)[0]


def climb(
    users: Users,
    totals: Totals,
    at: Parameters,
    prior: SpreadPrior,
    tol: float,
    max_steps: int,
    progress: Progress,
    what: str,
    *,
    per_arm: bool,
) -> tuple[Parameters, list[float]]:
    """Step until the gain per user falls to `tol`; the parameters, and the log posterior before and after each step."""
    expected = users.sums(Expect(at, per_arm))
    trace = [expected.evidence + prior.log_density(at)]
    while len(trace) <= max_steps:
        at = maximise(totals, at, expected, prior)
        expected = users.sums(Expect(at, per_arm))
        trace.append(expected.evidence + prior.log_density(at))
        progress(what, len(trace) - 1, max_steps)
        if has_settled(trace, tol, users.n_users):
            break
    return at, trace


def has_settled(trace: Sequence[float], tol: float, n_users: int) -> bool:
    return len(trace) > 1 and trace[-1] - trace[-2] <= tol * n_users


def user_means(rewards: Rewards, at: Parameters, map_spans: Map) -> Floats:
    """Return the expected weights of each user, (users, d)."""
    spans = [slice(i, min(i + _SPAN, rewards.n_users)) for i in range(0, rewards.n_users, _SPAN)]
    return np.concatenate(map_spans(lambda span: _expect_span(rewards, at, span)[1], spans))


def expect_users(rewards: Rewards, at: Parameters, users: slice) -> tuple[Floats, Floats]:
    """Return the expected weights w of some users (n, d), and the upper triangles of E[w w'] (n, d (d + 1) / 2)."""
    _, mean, square = _expect_span(rewards, at, users)
    return mean, square


def _expect_span(rewards: Rewards, at: Parameters, span: slice) -> tuple[Expected, Floats, Floats]:
    from lcb.learners.personal._expect_numba import expect

    gram, moment, constant = (np.ascontiguousarray(part) for part in rewards.divide(at.noise, span))
    precision = np.linalg.inv(at.sigma)
    half_log = -0.5 * np.linalg.slogdet(at.sigma)[1]
    mass, first, second = np.zeros(len(at.mu)), np.zeros(at.mu.shape), np.zeros((*at.mu.shape, at.mu.shape[1]))
    spread, mean, square = np.zeros(at.sigma.shape), np.empty(moment.shape), np.empty(gram.shape)
    with np.errstate(divide="ignore"):
        log_pi = np.log(at.pi)
    out = (mass, first, second, spread, mean, square)
    mu = np.array(at.mu)  # those of models cannot be written, for which Numba would compile once more
    evidence = expect(gram, moment, constant, log_pi, mu, precision, half_log, *out)
    residuals = rewards.sum_residuals(span, mean, square)
    return Expected(evidence, mass, first, _mirror(second), _mirror(spread), residuals), mean, square


def maximise(totals: Totals, at: Parameters, expected: Expected, prior: SpreadPrior) -> Parameters:
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
    noise = (expected.residuals + prior.noise_weight * prior.noise) / (totals.count + prior.noise_weight)
    noise = np.maximum(noise, totals.least)  # rewards without noise would divide by 0
    return Parameters((mass + 1 / n) / (mass.sum() + 1), at.mu + move, (sigma + sigma.swapaxes(1, 2)) / 2, noise)


def _mirror(upper: Floats) -> Floats:
    """Symmetric matrices of their upper triangles."""
    return np.asarray(np.triu(upper) + np.triu(upper, 1).swapaxes(1, 2))
