"""LinUCB with one weight vector for all arms (Li et al. 2010, arXiv:1003.0146; "hybrid" without the per-arm part).

    theta = A^-1 b        A = ridge I + sum x x'        b = sum r x
    play argmax_a  theta . x_a + width * sqrt(x_a' A^-1 x_a)          (width is the publication's alpha)

The state is A^-1 and theta side by side, updated by each reward (Sherman-Morrison):

    [w, m] = x' [A^-1, theta]       [A^-1, theta] -= w [w, m - r]' / (1 + w . x)

so a decision costs O(K d^2) and an update O(d^2).  The rule is deterministic: the propensity is 1, or 1 / ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_uniform_arms
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context, check_reward
from lcb.errors import InputError
from lcb.models.item_effects import ArmEffects
from lcb.stats import UserStats


@dataclass(frozen=True)
class LinUCB:
    """Settings only; the state is [A^-1, theta], (d, d + 1), flattened.

    >>> bandit = LinUCB(n_features=2, width=0.5)
    >>> decision = bandit.choose(bandit.start(), np.array([[1.0, 0.0], [0.0, 0.5]]), np.random.default_rng(0))
    >>> decision.arm, float(decision.propensity)
    (0, 1.0)
    >>> state = bandit.update(bandit.start(), decision, reward=1.0)
    >>> bandit.theta(state)
    array([0.5, 0. ])
    """

    traits: ClassVar[Traits] = Traits("n_features", state="d (d + 1)", cost="K d²", takes_effects=True)

    n_features: int
    width: float = 0.5
    ridge: float = 1.0

    def __post_init__(self) -> None:
        if self.n_features < 1:
            raise InputError(f"n_features={self.n_features}; there must be at least 1")
        if not (np.isfinite(self.width) and self.width >= 0):
            raise InputError(f"width={self.width}; it must be 0 or more")
        if not (np.isfinite(self.ridge) and self.ridge > 0):
            raise InputError(f"ridge={self.ridge}; it must be a positive number")

    def start(self) -> Floats:
        return np.eye(self.n_features, self.n_features + 1).ravel() / self.ridge

    def train(self, stats: UserStats) -> Floats:
        """Return the state after all rewards of a log."""
        total = stats.total
        inverse = np.linalg.inv(self.ridge * np.eye(self.n_features) + total.gram[0])
        return np.concatenate([inverse, (inverse @ total.moment[0])[:, None]], axis=1).ravel()

    def theta(self, state: Floats) -> Floats:
        """Return the weights, (d,)."""
        return self._matrix(state)[:, -1]

    def inverse(self, state: Floats) -> Floats:
        """Return A^-1, (d, d)."""
        return self._matrix(state)[:, :-1]

    def choose(
        self, state: Floats, context: Floats, rng: np.random.Generator, effects: ArmEffects | None = None
    ) -> Decision:
        context = check_context(context, self.n_features)
        products = context @ state.reshape(self.n_features, -1)
        scores = np.vecdot(products[:, :-1], context)
        np.sqrt(np.maximum(scores, 0.0, out=scores), scores)  # rounding may leave them below 0
        scores *= self.width
        scores += products[:, -1]
        if effects is None:
            return Decision.best(scores, context, rng.random())
        scores += effects.effect
        return Decision.best(scores, context, rng.random(), None, effects.effect, products[:, -1])

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        matrix, x = state.reshape(self.n_features, -1), decision.x
        product = x @ matrix
        w = product[:-1]
        spread = w @ x
        if not spread > 0:  # the direction x is known up to rounding
            return state
        step = w / (1 + spread)
        product[-1] -= reward - decision.effect
        change = step[:, None] * product
        return np.subtract(matrix, change, change).ravel()

    def revise(self, state: Floats, decision: Decision, before: float, after: float) -> Floats:
        """Return the state with the reward of this decision changed from `before` to `after`."""
        matrix = self._matrix(state).copy()
        matrix[:, -1] += (after - before) * (matrix[:, :-1] @ decision.x)
        return matrix.ravel()

    def _matrix(self, state: Floats) -> Floats:
        return state.reshape(self.n_features, -1)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, d (d + 1)) are updated in place."""
        from lcb.bandits.linear._linucb_numba import serve_linucb

        arms = draw_uniform_arms(uniforms, contexts.shape[2], n_uniform)
        serve_linucb(states, contexts, rewards, uniforms, arms, self.width)
        return arms
