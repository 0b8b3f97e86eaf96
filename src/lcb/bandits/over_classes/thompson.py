"""Generalized Thompson Sampling over the learned classes (Li 2013, arXiv:1310.7163).

    p_a      = (1 - uniform) sum_h w_h policy_h(a) + uniform / K
    log w_h -= eta * loss(beta_h . x, r)

loss:  likelihood   -log p(r | x, class h), the models' likelihood (Gaussian, or Bernoulli for clicks); with eta = 1 the
                    weights w are the exact posterior over classes
       gaussian     -log N(r | beta_h . x, sigma2_h)
       square       (r - beta_h . x)^2
       log          -r log f - (1 - r) log(1 - f), f = beta_h . x kept inside (0, 1); rewards in [0, 1]

A decision costs O(N K d), an update O(N d).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_index, draw_indices
from lcb.bandits.traits import Traits
from lcb.decision import Choices, Decision, check_context, check_reward, check_rewards, rescale, rescale_many
from lcb.errors import InputError
from lcb.models import LatentModels, squash
from lcb.policies import Greedy, Policy, Softmax

LOSSES = ("likelihood", "gaussian", "square", "log")


@dataclass(frozen=True)
class GeneralizedThompson:
    """Settings only; the state is the log weights of the classes, (N,).

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = GeneralizedThompson(models), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> decision = bandit.choose(state, np.eye(2), rng)
    >>> decision.arm, float(decision.propensity)
    (1, 0.5)
    >>> state = bandit.update(state, decision, reward=0.1)
    >>> bandit.choose(state, np.eye(2), rng).distribution.round(6)
    array([1., 0.])
    """

    traits: ClassVar[Traits] = Traits("models", state="N", cost="N K d", keeps_posterior=True)

    models: LatentModels = field(repr=False)
    eta: float = 1.0
    uniform: float = 0.0  # share of decisions that are drawn uniformly
    loss: Literal["likelihood", "gaussian", "square", "log"] = "likelihood"
    policy: Policy = Greedy()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"loss={self.loss!r}; choose from {', '.join(LOSSES)}")
        if not 0 <= self.uniform <= 1:
            raise InputError(f"uniform={self.uniform}; the share of uniform decisions must lie in [0, 1]")
        if not (np.isfinite(self.eta) and self.eta > 0):
            raise InputError(f"eta={self.eta}; it must be a positive number")

    def start(self) -> Floats:
        return self.models.log_pi.copy()

    def weights(self, state: Floats) -> Floats:
        """Return the probability of each class, (N,)."""
        return np.exp(state)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = check_context(context, self.models.n_features)
        weights, number = np.exp(state), rng.random()
        policies = self.policy(self.models.beta @ context.T)
        h, rest = draw_index(weights, rescale(number, self.uniform) if self.uniform else number)
        own = policies[h]
        arm = int(own.argmax())
        if own[arm] != 1:
            arm = draw_index(own, rest)[0]
        distribution = weights @ policies
        decision = Decision(arm, distribution[arm], context[arm], distribution)
        return decision.with_uniform(self.uniform, context, number) if self.uniform else decision

    def choose_many(self, states: Floats, context: Floats, uniforms: Floats) -> Choices:
        """Do the same as `choose` for many users, `states` (B, N), with one uniform number each."""
        context = check_context(context, self.models.n_features)
        weights = np.exp(states)
        policies = self.policy(self.models.beta @ context.T)
        numbers = rescale_many(uniforms, self.uniform) if self.uniform else uniforms
        classes = draw_indices(weights, numbers)
        best = policies.argmax(axis=1)
        arms = best[classes]
        for i in (policies[classes, arms] != 1).nonzero()[0].tolist():
            h, rest = draw_index(weights[i], float(numbers[i]))
            arms[i] = draw_index(policies[h], rest)[0]
        choices = Choices(arms, np.matmul(weights[:, None, :], policies)[:, 0])
        return choices.with_uniform(self.uniform, uniforms) if self.uniform else choices

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        log_w = state - self.eta * self._losses(decision.x, reward)
        log_w -= np.logaddexp.reduce(log_w)  # ten times faster than scipy's on a short array
        return log_w

    def update_many(self, states: Floats, x: Floats, rewards: Floats, effects: Floats) -> Floats:
        """Do the same as `update` for many users, `states` (B, N), with features (B, d) and rewards (B,)."""
        if self.loss == "likelihood":
            check_rewards(rewards)
            log_w = states - self.eta * -self.models.log_density_of_many(x, rewards)
            log_w -= np.logaddexp.reduce(log_w, axis=1, keepdims=True)
            return log_w
        each = zip(states, x, rewards.tolist(), strict=True)
        return np.array([self.update(state, Decision(0, 1.0, one), reward) for state, one, reward in each])

    def _losses(self, x: Floats, reward: float) -> Floats:
        if self.loss == "likelihood":
            return -self.models.log_density(x, reward)
        expected = self.models.beta @ x
        if self.loss == "gaussian":
            constant, slope = self.models.gaussian
            return slope * (reward - expected) ** 2 - constant
        if self.loss == "square":
            return (reward - expected) ** 2
        if not 0 <= reward <= 1:
            raise InputError(f"reward {reward:g} is outside [0, 1], which the log loss needs; scale it, or use square")
        p = squash(expected)[0]
        return -reward * np.log(p) - (1 - reward) * np.log(1 - p)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, N) are updated in place."""
        from lcb.bandits.over_classes._density import gaussian_density, log_loss, own_density, square_loss
        from lcb.bandits.over_classes._thompson_numba import serve_thompson

        density = {
            "likelihood": lambda: own_density(self.models, rewards),
            "gaussian": lambda: gaussian_density(self.models),
            "square": lambda: square_loss(self.models),
            "log": lambda: log_loss(self.models, rewards),
        }[self.loss]()
        arms = np.empty(uniforms.shape, np.int64)
        temperature = self.policy.temperature if isinstance(self.policy, Softmax) else 0.0
        play = states, contexts, rewards, uniforms, arms
        serve_thompson(*play, self.models.beta, density, n_uniform, self.eta, self.uniform, temperature)
        return arms
