"""mUCB: the best arm of any class that the rewards have not refuted (Hong et al. 2020, arXiv:2006.08714, Algorithm 1).

A decision is credited to the class whose expected reward made the arm the best, and its reward tests that class:

    count_h  = number of rewards of decisions credited to class h
    gap_h    = sum of (beta_h . x - epsilon - r) over these rewards
    C        = { h : gap_h <= width * noise_h sqrt(6 count_h log n_steps) }
    play argmax_a max_{h in C} beta_h . x_a                          credited to the class that attains it

`epsilon` bounds the error of the models' expected rewards (the publication's misspecified models), `noise_h` is the
standard deviation of class h's rewards, `n_steps` the number of decisions per user (1000 if unknown); the publication's
`width` is 1.  If the rewards refute every class, the one that exceeds its bound the least is played.  Classes with
equal expected rewards are all credited; an arm drawn at random is credited to the classes whose best arm it is.

The rule is deterministic: the propensity is 1, or 1 / ties.  A decision costs O(N K d), an update O(N d).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context, check_reward
from lcb.errors import InputError
from lcb.models import LatentModels


@dataclass(frozen=True)
class MUCB:
    """Settings only; the state is the counts and the gaps of the classes, (2 N,).

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 0.9]], sigma2=[0.01, 0.01])
    >>> bandit, rng = MUCB(models, n_steps=20), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> decision = bandit.choose(state, np.eye(2), rng)
    >>> decision.arm, decision.advice  # credited to the first class, which expects 1.0
    (0, array([1., 0.]))
    >>> state = bandit.update(state, decision, reward=0.1)  # 0.9 short of it; allowed are 0.1 sqrt(6 log 20) = 0.42
    >>> state.round(3), bandit.consistent(state), bandit.choose(state, np.eye(2), rng).arm
    (array([1. , 0. , 0.9, 0. ]), array([False,  True]), 1)
    """

    traits: ClassVar[Traits] = Traits("models", state="2 N", cost="N K d")

    models: LatentModels = field(repr=False)
    n_steps: int = 1000
    width: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise InputError(f"n_steps={self.n_steps}; it is the number of decisions for a user, at least 1")
        for name in ("width", "epsilon"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name}={getattr(self, name)}; it must be 0 or more")

    @cached_property
    def bound(self) -> Floats:
        """The largest gap that does not refute a class after one reward, (N,)."""
        return np.asarray(self.width * self.models.noise * np.sqrt(6 * np.log(self.n_steps)))

    def start(self) -> Floats:
        return np.zeros(2 * self.models.n_classes)

    def consistent(self, state: Floats) -> NDArray[np.bool_]:
        """Return which classes the rewards have not refuted, (N,); the least refuted one if all are."""
        count, gap = state.reshape(2, -1)
        excess = gap - self.bound * np.sqrt(count)
        return np.asarray(excess <= max(0.0, excess.min()))

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = check_context(context, self.models.n_features)
        consistent, promised = self.consistent(state), self.models.beta @ context.T
        promised[~consistent] = -np.inf
        best = promised.max(axis=0)
        decision = Decision.best(best, context, rng.random())
        return _credit_classes(decision, promised[:, decision.arm] == best[decision.arm])

    def add_advice(self, decision: Decision, context: Floats) -> Decision:
        """Return a copy of a decision made elsewhere, credited to the classes whose best arm it is."""
        promised = self.models.beta @ context.T
        return _credit_classes(decision, promised[:, decision.arm] == promised.max(axis=1))

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        credited = decision.advice
        if credited is None:
            raise InputError("the decision is not credited to any class, which MUCB needs; use `add_advice`")
        gap = self.models.beta @ decision.x
        gap -= self.epsilon + reward
        gap *= credited
        return state + np.concatenate((credited, gap))

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, 2 N) are updated in place."""
        from lcb.bandits.over_classes._mucb_numba import serve_mucb

        arms = np.empty(uniforms.shape, np.int64)
        serve_mucb(states, contexts, rewards, uniforms, arms, self.models.beta, self.bound, self.epsilon, n_uniform)
        return arms


def _credit_classes(decision: Decision, credited: NDArray[np.bool_]) -> Decision:
    """Return the decision with the credited classes (N,) as its advice."""
    taken = decision.arm, decision.propensity, decision.x, decision.distribution, decision.at_random
    return Decision(*taken, credited.astype(np.float64))
