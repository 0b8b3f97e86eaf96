"""Personal classes: the arm with the best mean plus a bonus for its uncertainty, for users who differ within a class.

In models of the learner `personal`, the weights of a user of class h are distributed as N(beta_h, covariance_h).
A user's rewards update each class's normal distribution and the probabilities of the classes by Bayes' rule:

    P_h      = (covariance_h^-1 + sum x x' / s2)^-1           s2: the noise, of the arm where it is known
    m_h      = P_h (covariance_h^-1 beta_h + sum r x / s2)
    w_h        proportional to pi_h p(rewards | class h), the user's weights integrated out
    mu_a     = sum_h w_h m_h . x_a            sd_a^2 = sum_h w_h ((m_h . x_a - mu_a)^2 + x_a' P_h x_a)
    p_a      = (1 - uniform) [a = argmax_b mu_b + bonus sd_b] + uniform / K           tied arms share equally

sd_a is the uncertainty of the expected reward of arm a, without the noise of a single reward.  With one class this is
the linear mixed model.  The state is sums over the user's rewards, so their order does not matter.  A decision costs
O(N (d^3 + K d^2)) and an update O(d^2), for any number of rewards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats, lay_out
from lcb.bandits.bandit import Arms
from lcb.bandits.over_classes._uncertain import UncertainClasses
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context, check_reward, rescale
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.models.item_effects import ITEM_HORIZON, ArmEffects, check_item_bonus, choose_by_scores
from lcb.stats import add_row


@dataclass(frozen=True)
class PersonalClasses(UncertainClasses):
    """Settings only; the state is the user's statistics as `UserStats` packs them, (d (d + 1) / 2 + d + 2,).

    If the models have noise per arm, a row has weight sigma2 / arm_sigma2.

    >>> models = LatentModels(pi=[1.0], beta=[[0.5, 0.5]], sigma2=[0.01], covariance=[np.diag([0.0001, 0.04])])
    >>> bandit, rng = PersonalClasses(models), np.random.default_rng(0)
    >>> bandit.scores(bandit.start(), np.eye(2))  # the second weight is uncertain: 0.5 + 0.5 * 0.2
    array([0.505, 0.6  ])
    >>> decision = bandit.choose(bandit.start(), np.eye(2), rng)
    >>> state = bandit.update(bandit.start(), decision, reward=0.3)
    >>> decision.arm, bandit.means(state).round(3)  # 0.5 - 0.2 * 0.04 / (0.04 + 0.01)
    (1, array([[0.5 , 0.34]]))
    """

    traits: ClassVar[Traits] = Traits("models", state="d (d + 1) / 2 + d + 2", cost="N (d³ + K d²)", takes_effects=True)

    models: LatentModels = field(repr=False)
    bonus: float = 0.5
    uniform: float = 0.0
    item_bonus: float = 0.0  # weight of the uncertainty of item effects
    item_horizon: float = ITEM_HORIZON  # offers of an item that are still to come
    item_share: float = 1.0  # of offers that many newcomers may take by this bonus

    def __post_init__(self) -> None:
        check_item_bonus(self.item_bonus, self.item_horizon, self.item_share)
        if self.models.covariance is None:
            raise InputError(
                "the models have no covariance, which PersonalClasses needs; learn them with the learner 'personal', "
                "or use PosteriorMean"
            )
        if not 0 <= self.bonus < np.inf:
            raise InputError(f"bonus={self.bonus}; it must be a finite number, at least 0")
        if not 0 <= self.uniform <= 1:
            raise InputError(f"uniform={self.uniform}; the uniform share must lie in [0, 1]")

    def scores(self, state: Floats, context: Floats) -> Floats:
        """Return the expected reward plus the bonus of each arm, (K,)."""
        return self._scores_and_means(state, context)[0]

    def choose(
        self, state: Floats, context: Floats, rng: np.random.Generator, effects: ArmEffects | None = None
    ) -> Decision:
        context = check_context(context, self.models.n_features)
        if not np.isfinite(context.sum()):
            raise InputError("the context contains NaN or infinity; give finite features")
        uniform = rng.random()
        scores, means = self._scores_and_means(state, context)
        rest = rescale(uniform, self.uniform)
        if effects is None:
            decision = Decision.best(scores, context, rest)
        else:
            weighs = self.item_bonus, self.item_horizon, self.item_share
            decision = choose_by_scores(scores, means, effects, *weighs, context, rest)
        return decision.with_uniform(self.uniform, context, uniform) if self.uniform else decision

    def _scores_and_means(self, state: Floats, context: Floats) -> tuple[Floats, Floats]:
        from lcb.bandits.over_classes._personal_classes_numba import score_arms

        context, scores, means = lay_out(context), np.empty(len(context)), np.empty(len(context))
        score_arms(context, self._terms, self.bonus, *self._posterior(state), scores, means)
        return scores, means

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        scale = self._scale_of(decision.x)
        return add_row(state, scale * decision.x, scale * (reward - decision.effect))

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` are updated in place."""
        from lcb.bandits.over_classes._personal_classes_numba import serve_personal_classes

        arms = np.empty(uniforms.shape, np.int64)
        settings = n_uniform, self.uniform, self.bonus
        serve_personal_classes(states, contexts, rewards, uniforms, arms, self._terms, *self._scales, *settings)
        return arms

    def _scale_of(self, x: Floats) -> float:
        """Return the factor by which a row is multiplied so that its noise is `sigma2`."""
        if self.models.arms is None:
            return 1.0
        return float(np.sqrt(self.models.sigma2[0] / self.models.noise_of(x[None])[0]))

    @cached_property
    def _scales(self) -> tuple[Floats, Floats]:
        """The arms of known noise (A, d) and the factors of their rows (A,)."""
        models = self.models
        if models.arms is None or models.arm_sigma2 is None:
            return np.empty((0, models.n_features)), np.empty(0)
        return np.array(models.arms), np.sqrt(models.sigma2[0] / models.arm_sigma2)
