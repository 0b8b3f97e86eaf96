"""Latent models: the parameters of each class, and the likelihood of a user's rewards under each.

    pi (N,)  share of users      beta (N, d)  weights      sigma2 (N,)  variance of the noise
    log p(rewards of u | class h) = -count/2 log(2 pi sigma2_h)
                                    - (square_sum - 2 beta_h . moment + beta_h' gram beta_h) / (2 sigma2_h)

This is linear in the user's statistics: one matrix product computes it for all users and classes.  Rewards of two
values are clicks with P(high) = (beta_h . x - low) / (high - low), kept inside (0, 1) by slow tails:

    log p(rewards of u | class h) = sum over arms  clicked_ua log P_ha + passed_ua log(1 - P_ha)

This is linear in the user's counts.  In both cases the expected reward is beta_h . x.

The weights are estimates; `covariance` (N, d, d) is their uncertainty, for bandits that use it.  In personal models
(`personal` is true) it is how much the people of a class differ: a user's own weights are N(beta_h, covariance_h), the
likelihood above is then the one of `lcb.models.marginal`, and the noise may be known per arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from lcb.arrays import Floats, Index
from lcb.displays import Displayed, DisplayTable
from lcb.errors import InputError, ModelError
from lcb.event_log import EventLog
from lcb.models.checks import check_covariance, check_likelihood, check_sums
from lcb.models.item_effects import ItemEffects
from lcb.models.marginal import NoisePerArm, Rewards, SharedNoise, marginal_log_likelihood
from lcb.stats import UserStats, upper
from lcb.words import format_count

_LOG_2PI = float(np.log(2 * np.pi))
EDGE = 1e-3  # the probability of a click is linear between EDGE and 1 - EDGE
Likelihood = Literal["gaussian", "bernoulli"]


class HasFeatures(Protocol):
    """Data of named features."""

    @property
    def n_features(self) -> int: ...
    @property
    def features(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class LatentModels(Displayed):
    """The parameters of all classes; checked on construction.

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> models.n_classes, models.n_features, models.features
    (2, 2, ('x0', 'x1'))
    >>> models.log_density(np.array([1.0, 0.0]), reward=1.0).round(2)
    array([  1.38, -48.62])
    """

    pi: Floats
    beta: Floats
    sigma2: Floats
    features: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)  # how the classes were learned; JSON values
    likelihood: Likelihood = "gaussian"
    levels: tuple[float, float] | None = None  # the two rewards of a Bernoulli likelihood, the lower first
    covariance: Floats | None = None  # (N, d, d) of each class's weights: see `weight_covariance`; None: not known
    personal: bool = False  # `covariance` is of the people of a class: a user's weights are N(beta_h, covariance_h)
    arms: Floats | None = field(default=None, repr=False)  # (A, d) arms whose noise is known, of personal models
    arm_sigma2: Floats | None = field(default=None, repr=False)  # (A,) their noise; `sigma2` for any other arm
    sums: Floats | None = field(default=None, repr=False)  # (N, p) packed statistics of each class of a mixture: 0 for
    # the class of which nobody has been seen, the new class
    item_effects: ItemEffects | None = None  # what items are liked beyond their features; classes are then of r - a_i

    def __post_init__(self) -> None:
        given = (getattr(self, name) for name in ("pi", "beta", "sigma2"))
        pi, beta, sigma2 = (np.array(values, np.float64, order="C") for values in given)
        if beta.ndim != 2 or beta.size == 0 or pi.shape != (len(beta),) or sigma2.shape != (len(beta),):
            raise ModelError(
                f"pi has shape {pi.shape}, beta {beta.shape}, sigma2 {sigma2.shape}; wanted (N,), (N, d) and (N,)"
            )
        for name, values in (("pi", pi), ("beta", beta), ("sigma2", sigma2)):
            if not np.isfinite(values).all():
                raise ModelError(f"{name} has {int((~np.isfinite(values)).sum())} values that are not finite numbers")
        if (pi < 0).any() or abs(pi.sum() - 1) > 1e-6:
            raise ModelError(f"pi sums to {pi.sum():g} with smallest {pi.min():g}; shares must be >= 0 and sum to 1")
        if (sigma2 <= 0).any():
            raise ModelError(f"sigma2 has {sigma2.min():g}; every variance must be above 0")
        check_likelihood(self.likelihood, self.levels)
        if self.item_effects is not None and self.likelihood != "gaussian":
            raise ModelError("rewards less item effects are not two-valued; item effects need a Gaussian likelihood")
        features = tuple(self.features) or tuple(f"x{j}" for j in range(beta.shape[1]))
        if len(features) != beta.shape[1] or len(set(features)) != len(features):
            raise ModelError(f"{len(set(features))} different feature names for {beta.shape[1]} weights per class")
        if abs(pi.sum() - 1) > 1e-12:  # do not change the bits of normalised shares
            pi /= pi.sum()
        covariance = None if self.covariance is None else check_covariance(self.covariance, beta)
        arms, arm_sigma2 = _check_personal(self, beta)
        sums = None if self.sums is None else check_sums(self.sums, beta)
        for values in (pi, beta, sigma2):
            values.setflags(write=False)
        object.__setattr__(self, "pi", pi)
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "sigma2", sigma2)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "arm_sigma2", arm_sigma2)
        object.__setattr__(self, "sums", sums)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy cannot be sent to our processes
        values = (getattr(self, one.name) for one in fields(self))
        return LatentModels, tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in values)

    def with_provenance(self, provenance: Mapping[str, Any]) -> LatentModels:
        """Return a copy with this provenance."""
        return replace(self, provenance=provenance)

    def with_covariance(self, covariance: Floats | None) -> LatentModels:
        """Return a copy with this covariance."""
        return replace(self, covariance=covariance)

    def chart(self, title: str | None = None) -> Any:
        """Draw the classes as a heat map (extra `plots`)."""
        import lcb

        return lcb.charts.heat_map(self, title)

    def _table(self) -> DisplayTable:
        columns = {"share": self.pi.tolist(), "noise": np.sqrt(self.sigma2).tolist()}
        weights = dict(zip(self.features, self.beta.T.tolist(), strict=True))
        names = ["new" if h == self.new_class else h + 1 for h in range(self.n_classes)]
        caption = f"{format_count(self.n_classes, 'class')}: share of users, noise of rewards, weight of each feature"
        return DisplayTable(caption, "class", names, {**columns, **weights})

    def take(self, classes: Index) -> LatentModels:
        """Select the classes at these positions; their shares are scaled to sum to 1."""
        covariance = None if self.covariance is None else self.covariance[classes]
        sums = None if self.sums is None else self.sums[classes]
        pi, beta = self.pi[classes] / self.pi[classes].sum(), self.beta[classes]
        return replace(self, pi=pi, beta=beta, sigma2=self.sigma2[classes], covariance=covariance, sums=sums)

    def without_spread(self) -> LatentModels:
        """Return the classes as points: without covariance and without noise per arm."""
        return replace(self, covariance=None, personal=False, arms=None, arm_sigma2=None, sums=None)

    @property
    def n_classes(self) -> int:
        return len(self.beta)

    @property
    def n_features(self) -> int:
        return self.beta.shape[1]

    @property
    def new_class(self) -> int | None:
        """The position of the class of which nobody has been seen, in a mixture; None if there is none."""
        if self.sums is None or self.sums[:, -1].all():
            return None
        return int(self.sums[:, -1].argmin())

    @cached_property
    def spread(self) -> Floats | None:
        """Standard deviations of the weights of the people of each class, (N, d); None for point classes."""
        if not self.personal or self.covariance is None:
            return None
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @cached_property
    def log_pi(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.pi))

    @cached_property
    def gaussian(self) -> tuple[Floats, Floats]:
        """log N(r | m, sigma2) = first - second * (r - m)^2"""
        return -0.5 * (_LOG_2PI + np.log(self.sigma2)), 0.5 / self.sigma2

    @cached_property
    def noise(self) -> Floats:
        """Sub-Gaussian parameter of each class's noise, (N,); for clicks, half the difference of the two rewards."""
        if self.levels is None:
            return np.sqrt(self.sigma2)
        return np.full(self.n_classes, (self.levels[1] - self.levels[0]) / 2)

    @cached_property
    def _noise_by_arm(self) -> dict[bytes, float]:
        if self.arms is None or self.arm_sigma2 is None:
            return {}
        return {(x + 0.0).tobytes(): s2 for x, s2 in zip(self.arms, self.arm_sigma2.tolist(), strict=True)}

    def noise_of(self, context: Floats) -> Floats:
        """Variance of the noise of each arm of a personal model, (K,)."""
        known, other = self._noise_by_arm, float(self.sigma2[0])
        if not known:
            return np.full(len(context), other)
        return np.array([known.get((x + 0.0).tobytes(), other) for x in context])  # -0.0 is 0.0

    def log_density(self, x: Floats, reward: float) -> Floats:
        """Log density of one reward for features `x` (d,) under each class, (N,); of weights beta_h, without spread."""
        if self.levels is not None:
            low, high = self.levels
            if not low <= reward <= high:
                raise InputError(
                    f"reward {reward:g} is outside [{low:g}, {high:g}], the rewards of these models; send one of them"
                )
            p = self.click_probability(self.beta @ x)
            if reward == high:
                return np.log(p, p)
            if reward == low:
                return np.log1p(np.negative(p, p), p)
            click = (reward - low) / (high - low)
            return click * np.log(p) + (1 - click) * np.log(1 - p)
        constant, slope = self.gaussian
        miss = self.beta @ x
        miss -= reward
        miss *= miss
        miss *= slope
        return constant - miss

    def log_density_of_many(self, x: Floats, rewards: Floats) -> Floats:
        """Return `log_density` of each reward (B,) for features `x` (B, d), with the same bits, (B, N)."""
        if self.levels is not None:
            return np.array([self.log_density(*one) for one in zip(x, rewards.tolist(), strict=True)])
        constant, slope = self.gaussian
        miss = np.matmul(self.beta, x[:, :, None])[:, :, 0]  # a product of a matrix and a vector for each
        miss -= rewards[:, None]
        miss *= miss
        miss *= slope
        return constant - miss

    def click_probability(self, expected: Floats) -> Floats:
        """Return the probability of the high level, given the expected reward."""
        assert self.levels is not None
        low, high = self.levels
        z = expected - low
        z /= high - low
        if z.min() >= EDGE and z.max() <= 1 - EDGE:  # squash(z) is z
            return z
        return squash(z)[0]

    def packed(self) -> Floats:
        """Return H (p, N) such that `H.T @ stats.packed` is the log likelihood of every user under every class."""
        rows, columns = upper(self.n_features)
        constant, slope = self.gaussian
        products = self.beta[:, rows] * self.beta[:, columns] * np.where(rows == columns, 1.0, 2.0)
        parts = (products * -slope[:, None], self.beta * (2 * slope[:, None]), -slope[:, None], constant[:, None])
        return np.concatenate(parts, axis=1).T

    def user_log_likelihood(self, data: UserStats | EventLog) -> Floats:
        """Return the log likelihood of all rewards of each user under each class, (users, N)."""
        stats = data.stats if isinstance(data, EventLog) else data
        self.check_features(stats)
        if self.personal:
            assert self.covariance is not None
            counted = data.clicks if isinstance(data, EventLog) and self.arms is not None else None
            rewards: Rewards = SharedNoise(stats) if counted is None else NoisePerArm(counted)
            sigma2 = self.sigma2[:1] if counted is None else self.noise_of(counted.arms)
            return marginal_log_likelihood(rewards, sigma2, self.beta, self.covariance)
        if self.levels is None:
            return stats.packed.T.astype(np.float64, copy=False) @ self.packed()
        clicks = data.clicks if isinstance(data, EventLog) else None
        if clicks is None or (clicks.low, clicks.high) != self.levels:
            raise InputError(f"models of rewards {self.levels} need a log of these rewards with its counts: read_log")
        p = self.click_probability(clicks.arms @ self.beta.T)
        return clicks.clicked @ np.log(p) + clicks.passed @ np.log(1 - p)

    def posterior(self, data: UserStats | EventLog) -> Floats:
        """Return the probability of each class for each user, (users, N)."""
        log_joint = self.user_log_likelihood(data) + self.log_pi
        return np.exp(log_joint - np.logaddexp.reduce(log_joint, axis=1, keepdims=True))

    def user_scores(self, data: UserStats | EventLog) -> Floats:
        """Return the log predictive density of each user's rewards, the class unknown, (users,)."""
        return np.logaddexp.reduce(self.user_log_likelihood(data) + self.log_pi, axis=1)

    def check_features(self, stats: HasFeatures) -> None:
        if stats.n_features != self.n_features:
            raise InputError(
                f"the data has {stats.n_features} features, the models were learned from {self.n_features} "
                f"({', '.join(self.features[:3])}{', ...' if self.n_features > 3 else ''}); send those, or relearn"
            )
        strange = [pair for pair in zip(stats.features, self.features, strict=False) if pair[0] != pair[1]]
        if strange:
            raise InputError(
                f"the data has the feature {strange[0][0]} where the models have {strange[0][1]}; send the features in "
                "the order of learning, or relearn"
            )


def squash(z: Floats) -> tuple[Floats, Floats]:
    """Return z kept inside (0, 1) by slow tails, and its slope.

        p = z between e and 1 - e,   e^2 / (2 e - z) below,   1 - e^2 / (z - 1 + 2 e) above         e = EDGE

    The tails have a slope, so that a learner can leave them, and are slow, so that one click does not rule out a class.

    >>> squash(np.array([-0.3, 0.25, 1.0]))[0].round(7)
    array([3.300e-06, 2.500e-01, 9.995e-01])
    """
    below, above = np.maximum(EDGE - z, 0.0), np.maximum(z - (1 - EDGE), 0.0)
    low, high = EDGE / (EDGE + below), EDGE / (EDGE + above)
    return np.clip(z, EDGE * low, 1 - EDGE * high), (low * high) ** 2


def _check_personal(models: LatentModels, beta: Floats) -> tuple[Floats | None, Floats | None]:
    """Check the noise per arm of personal models; return the arms and their noise."""
    if models.personal and (models.covariance is None or models.levels is not None):
        raise ModelError("personal models without a covariance, or not Gaussian; the learner 'personal' makes them")
    if models.arms is None and models.arm_sigma2 is None:
        return None, None
    if not models.personal or models.arms is None or models.arm_sigma2 is None:
        raise ModelError("noise per arm needs personal models, the arms and their sigma2; give all, or neither")
    arms, sigma2 = np.array(models.arms, np.float64), np.array(models.arm_sigma2, np.float64)
    if arms.shape != (len(sigma2), beta.shape[1]) or sigma2.ndim != 1:
        raise ModelError(f"arms have shape {arms.shape}, their noise {sigma2.shape}; wanted (A, d) and (A,)")
    if not (np.isfinite(arms).all() and np.isfinite(sigma2).all() and (sigma2 > 0).all()):
        raise ModelError("arms or their noise are not finite, or a noise is not above 0; give finite numbers")
    arms.setflags(write=False)
    sigma2.setflags(write=False)
    return arms, sigma2
