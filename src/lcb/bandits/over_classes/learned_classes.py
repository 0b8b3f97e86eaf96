"""Learned classes of either kind, point or personal, for a user known by statistics alone.

    w_h        proportional to pi_h p(rewards | class h)                 Gaussian; the user's own weights integrated out
    p_a      = (1 - uniform) [a = argmax_b mu_b + bonus sd_b] + uniform / K           tied arms share equally

With `lcb.models.item_effects` scores gain a_i and its uncertainty, and updates leave a_i out of the reward.
mu and sd are those of `PosteriorMean` for point classes and of `PersonalClasses` for personal ones.  The state is the
user's statistics, whatever the classes: a user can be served by new classes at once, with all that is known about them.
Noise is one number: noise per arm would weigh the statistics by the classes.  A decision costs O(N (d^3 + K d^2)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.traits import Traits
from lcb.decision import Choices, Decision, check_reward
from lcb.models import LatentModels
from lcb.models.item_effects import ITEM_HORIZON, ArmEffects
from lcb.stats import add_row, n_packed

_DEFAULT_BONUS = 0.5
_MOST_AT_ONCE = 100_000  # numbers: statistics times classes times users


@dataclass(frozen=True)
class LearnedClasses:
    """Settings only; the state is the user's statistics as `UserStats` packs them, (d (d + 1) / 2 + d + 2,).

    Without `bonus` it is the one that was chosen with the classes, else 0.5.

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[0.9, 0.1], [0.1, 0.9]], sigma2=[0.25, 0.25])
    >>> bandit = LearnedClasses(models)
    >>> state = bandit.update(bandit.start(), Decision(0, 1.0, np.array([1.0, 0.0])), reward=1.0)
    >>> bandit.weights(state).round(2), bandit.scores(state, np.eye(2)).round(2)
    (array([0.83, 0.17]), array([0.92, 0.38]))
    """

    traits: ClassVar[Traits] = Traits(
        "models",
        state="d (d + 1) / 2 + d + 2",
        cost="N (d³ + K d²)",
        keeps_posterior=True,
        takes_effects=True,
        keeps_statistics=True,
    )

    models: LatentModels = field(repr=False)
    bonus: float | None = None
    uniform: float = 0.0
    item_bonus: float = 0.0  # weight of the uncertainty of item effects
    item_horizon: float = ITEM_HORIZON  # offers of an item that are still to come
    item_share: float = 1.0  # of offers that many newcomers may take by this bonus

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", replace(self.models, arms=None, arm_sigma2=None))
        _ = self._rule

    @cached_property
    def _rule(self) -> PersonalClasses | PosteriorMean:
        bonus = self.models.provenance.get("bonus", _DEFAULT_BONUS) if self.bonus is None else self.bonus
        of_items = self.item_bonus, self.item_horizon, self.item_share
        if self.models.personal:
            return PersonalClasses(self.models, bonus, self.uniform, *of_items)
        return PosteriorMean(self.models, self.uniform, bonus, *of_items)

    @cached_property
    def _log_likelihood(self) -> Floats:
        return np.ascontiguousarray(self.models.packed().T)

    def start(self) -> Floats:
        return np.zeros(n_packed(self.models.n_features))

    def weights(self, state: Floats) -> Floats:
        """Return the probability of each class, (N,)."""
        if isinstance(self._rule, PersonalClasses):
            return self._rule.weights(state)
        return np.exp(self._log_weights(state))

    def weights_of_many(self, states: Floats) -> Floats:
        """Return the same for many states, (B, N); the last bits may differ."""
        if isinstance(self._rule, PersonalClasses):
            return self._rule.weights_of_many(states)
        return np.exp(self._log_weights_of_many(states))

    def scores(self, state: Floats, context: Floats) -> Floats:
        """Return the expected reward plus the bonus of each arm, (K,)."""
        return self._rule.scores(self._state_of_rule(state), context)

    def choose(
        self, state: Floats, context: Floats, rng: np.random.Generator, effects: ArmEffects | None = None
    ) -> Decision:
        return self._rule.choose(self._state_of_rule(state), context, rng, effects)

    @property
    def choose_many(self) -> Callable[..., Choices] | None:
        """The method that does the same as `choose` for many users, `states` (B, S); point classes have it alone."""
        return self._choose_many if isinstance(self._rule, PosteriorMean) else None

    def _choose_many(
        self, states: Floats, context: Floats, uniforms: Floats, effects: ArmEffects | None = None
    ) -> Choices:
        assert isinstance(self._rule, PosteriorMean)
        return self._rule.choose_many(self._log_weights_of_many(states), context, uniforms, effects)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        return add_row(state, decision.x, reward - decision.effect)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` are updated in place."""
        if isinstance(self._rule, PersonalClasses):
            return self._rule.serve(states, contexts, rewards, uniforms, n_uniform)
        rule = replace(self._rule, models=replace(self.models, likelihood="gaussian", levels=None))
        log_w = np.array([self._log_weights(state) for state in states])
        arms = rule.serve(log_w, contexts, rewards, uniforms, n_uniform)
        for u, t in np.ndindex(arms.shape):
            states[u] = add_row(states[u], contexts[u, t, arms[u, t]], float(rewards[u, t, arms[u, t]]))
        return arms

    def _state_of_rule(self, state: Floats) -> Floats:
        return state if isinstance(self._rule, PersonalClasses) else self._log_weights(state)

    def _log_weights(self, state: Floats) -> Floats:
        log_w = self.models.log_pi + (self._log_likelihood * state).sum(axis=1)
        return np.asarray(log_w - np.logaddexp.reduce(log_w))

    def _log_weights_of_many(self, states: Floats) -> Floats:
        """Return the same for many users, (B, N); few at a time where statistics are large."""
        log_likelihood = self._log_likelihood
        n = max(1, _MOST_AT_ONCE // log_likelihood.size)
        parts = [(log_likelihood * states[start : start + n, None]).sum(axis=2) for start in range(0, len(states), n)]
        log_w = self.models.log_pi + np.concatenate(parts)
        return np.asarray(log_w - np.logaddexp.reduce(log_w, axis=1)[:, None])
