"""Posterior mean: the arm that is best on average over the classes a user may belong to.

    mu_a     = sum_h w_h beta_h . x_a                         sd_a^2 = sum_h w_h (beta_h . x_a - mu_a)^2
    p_a      = (1 - uniform) [a = argmax_b mu_b + bonus sd_b] + uniform / K           tied arms share equally
    log w_h += log p(r | x, class h)                          the models' own likelihood

With `bonus` = 0 it does not explore; over a few dozen steps this has less regret than drawing a class.  sd_a measures
how much the classes disagree about an arm; a bonus of about 0.5 tries arms that may be much better, and vanishes once
the class is known.  Propensities are 0 or 1 with `uniform` = 0: set `uniform` above 0 if the log is to support
off-policy estimates.  The weights of the classes are taken as certain; `PersonalClasses` is the rule for uncertain
ones.  A decision costs O(N d + K d), with a bonus O(N K d); an update O(N d).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.bandits.traits import Traits
from lcb.decision import Choices, Decision, check_context, check_reward, check_rewards, rescale, rescale_many
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.models.item_effects import ITEM_HORIZON, ArmEffects, check_item_bonus, choose_by_classes, choose_by_means


@dataclass(frozen=True)
class PosteriorMean:
    """Settings only; the state is the log weights of the classes, (N,).

    >>> models = LatentModels(pi=[0.75, 0.25], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit = PosteriorMean(models, uniform=0.1)
    >>> bandit.choose(bandit.start(), np.eye(2), np.random.default_rng(0)).distribution
    array([0.95, 0.05])
    >>> PosteriorMean(models, bonus=2.0).scores(bandit.start(), np.eye(2)).round(3)
    array([1.616, 1.116])
    """

    traits: ClassVar[Traits] = Traits(
        "models", state="N", cost="N d + K d, with a bonus N K d", keeps_posterior=True, takes_effects=True
    )

    models: LatentModels = field(repr=False)
    uniform: float = 0.0
    bonus: float = 0.0
    item_bonus: float = 0.0  # weight of the uncertainty of item effects
    item_horizon: float = ITEM_HORIZON  # offers of an item that are still to come
    item_share: float = 1.0  # of offers that many newcomers may take by this bonus

    def __post_init__(self) -> None:
        check_item_bonus(self.item_bonus, self.item_horizon, self.item_share)
        if not 0 <= self.bonus < np.inf:
            raise InputError(f"bonus={self.bonus}; it must be a finite number, at least 0")
        if not 0 <= self.uniform <= 1:
            raise InputError(f"uniform={self.uniform}; the uniform share must lie in [0, 1]")

    def start(self) -> Floats:
        return self.models.log_pi.copy()

    def weights(self, state: Floats) -> Floats:
        """Return the probability of each class, (N,)."""
        return np.exp(state)

    def scores(self, state: Floats, context: Floats) -> Floats:
        """Return the expected reward plus the bonus of each arm, (K,)."""
        return self._add_bonus(*self._moments(state, context))

    def choose(
        self, state: Floats, context: Floats, rng: np.random.Generator, effects: ArmEffects | None = None
    ) -> Decision:
        context = check_context(context, self.models.n_features)
        uniform = rng.random()
        rest = rescale(uniform, self.uniform)
        if effects is None:
            decision = Decision.best(self._add_bonus(*self._moments(state, context)), context, rest)
        else:
            decision = self._choose_with(effects, state, context, rest)
        return decision.with_uniform(self.uniform, context, uniform) if self.uniform else decision

    def _choose_with(
        self, effects: ArmEffects, state: Floats, context: Floats, uniform: float, expected: Floats | None = None
    ) -> Decision:
        weighs = self.item_bonus, self.item_horizon, self.item_share
        if not self.bonus or len(context) == 1:
            mean, _ = self._moments(state, context)
            return choose_by_means(mean, effects, *weighs, context, uniform)
        expected = self._expected(context) if expected is None else expected
        return choose_by_classes(np.exp(state), expected, self.bonus, effects, *weighs, context, uniform)

    def choose_many(
        self, states: Floats, context: Floats, uniforms: Floats, effects: ArmEffects | None = None
    ) -> Choices:
        """Do the same as `choose` for many users, `states` (B, N), with one uniform number each."""
        context = check_context(context, self.models.n_features)
        rest = rescale_many(uniforms, self.uniform)
        if effects is None:
            choices = Choices.best(self._add_bonus(*self._moments_of_many(states, context)), rest)
        else:
            expected = self._expected(context) if self.bonus else None
            size = len(states), len(context)
            choices = Choices(np.empty(len(states), np.intp), np.empty(size), means := np.empty(size))
            for i, number in enumerate(rest.tolist()):
                one = self._choose_with(effects, states[i], context, number, expected)
                choices.arms[i], choices.distributions[i], means[i] = one.arm, one.distribution, one.means
        return choices.with_uniform(self.uniform, uniforms) if self.uniform else choices

    def _add_bonus(self, mean: Floats, spread: Floats | None) -> Floats:
        return mean if spread is None else np.asarray(mean + self.bonus * np.sqrt(spread))

    def _expected(self, context: Floats) -> Floats:
        """Return the expected reward of every arm under every class, (N, K)."""
        return np.einsum("hj,kj->hk", self.models.beta, context)  # unlike BLAS, gives equal arms equal sums

    def _moments(self, state: Floats, context: Floats) -> tuple[Floats, Floats | None]:
        """Return the mean of the expected reward of each arm, (K,), and its variance, which only a bonus needs."""
        w = np.exp(state)
        if not self.bonus:
            return np.asarray(context @ (w @ self.models.beta)), None
        expected = self._expected(context)
        mean = (w[:, None] * expected).sum(axis=0)
        return mean, (w[:, None] * (expected - mean) ** 2).sum(axis=0)

    def _moments_of_many(self, states: Floats, context: Floats) -> tuple[Floats, Floats | None]:
        """Do the same for many users, (B, K) each."""
        if not self.bonus:
            return np.array([self._moments(state, context)[0] for state in states]), None
        w, expected = np.exp(states)[:, :, None], self._expected(context)
        means = (w * expected).sum(axis=1)
        return means, (w * (expected - means[:, None]) ** 2).sum(axis=1)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        log_w = state + self.models.log_density(decision.x, reward - decision.effect)
        log_w -= np.logaddexp.reduce(log_w)
        return log_w

    def update_many(self, states: Floats, x: Floats, rewards: Floats, effects: Floats) -> Floats:
        """Do the same as `update` for many users, `states` (B, N), with features (B, d), rewards and effects (B,)."""
        check_rewards(rewards)
        log_w = states + self.models.log_density_of_many(x, rewards - effects)
        log_w -= np.logaddexp.reduce(log_w, axis=1, keepdims=True)
        return log_w

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, N) are updated in place."""
        from lcb.bandits.over_classes._density import own_density
        from lcb.bandits.over_classes._posterior_mean_numba import serve_posterior_mean

        arms = np.empty(uniforms.shape, np.int64)
        density = own_density(self.models, rewards)
        serve_posterior_mean(
            states, contexts, rewards, uniforms, arms, self.models.beta, density, n_uniform, self.uniform, self.bonus
        )
        return arms
