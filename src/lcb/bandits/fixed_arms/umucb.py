"""mUCB and umUCB: arms without features and a finite set of models (Azar, Lazaric & Brunskill 2013, arXiv:1307.6887).

The expected rewards beta (N, K) of the classes are known to within `epsilon` (0: the publication's mUCB; above 0: its
umUCB).  With n_a rewards of arm a, of mean mean_a:

    r_ha     = width * noise_h sqrt(2 log(N n_steps^2 / delta) / n_a)            infinite before the first reward
    C        = { h : |beta_h[a] - mean_a| <= r_ha + epsilon for every arm a }     the classes that the rewards allow
    B_h(a)   = min(beta_h[a] + epsilon, mean_a + r_ha)                             upper bound of arm a's reward
    play argmax_a max_{h in C} B_h(a)

once every arm was taken `n_first` times (3 in umUCB, because its moments need three rewards of each arm).  For rewards
in [0, 1], noise is 1/2 and r is the publication's.  If no class is allowed, the arm with the highest mean_a + r_ha is
played, as UCB does.  The rule is deterministic: the propensity is 1, or 1 / ties.  A decision costs O(N K).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.fixed_arms._counts import CountingBandit, estimate_means, find_items
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context
from lcb.errors import InputError
from lcb.models import LatentModels


@dataclass(frozen=True)
class UMUCB(CountingBandit):
    """Settings only; the state is the number of decisions, of rewards and the reward sum of every arm, (3 K,).

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.2], [0.3, 0.9]], sigma2=[0.01, 0.01])
    >>> bandit, rng = UMUCB(models, n_steps=10), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> decision = bandit.choose(state, np.eye(2), rng)  # the first model expects 1.0
    >>> state = bandit.update(bandit.count_decision(state, decision), decision, reward=0.3)
    >>> bandit.allowed(state), bandit.choose(state, np.eye(2), rng).arm  # 0.7 off, 0.1 sqrt(2 log 2000) = 0.39 allowed
    (array([False,  True]), 1)
    """

    traits: ClassVar[Traits] = Traits("models", state="3 K", cost="N K", fixed_arms=True)

    models: LatentModels = field(repr=False)
    n_steps: int = 1000
    epsilon: float = 0.0
    n_first: int = 0
    width: float = 1.0
    delta: float | None = None  # None: 1 / n_steps

    def __post_init__(self) -> None:
        if self.n_steps < 1 or self.n_first < 0:
            raise InputError(f"n_steps={self.n_steps}, n_first={self.n_first}; wanted at least 1 and at least 0")
        if not self.epsilon >= 0:
            raise InputError(f"epsilon={self.epsilon}; it must be 0 or more")
        if not (np.isfinite(self.width) and self.width >= 0):
            raise InputError(f"width={self.width}; it must be 0 or more")
        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta={self.delta}; it is a probability between 0 and 1, or None for 1 / n_steps")

    def start(self) -> Floats:
        return np.zeros(3 * self.models.n_features)

    def allowed(self, state: Floats) -> NDArray[np.bool_]:
        """Return whether the rewards of all arms are compatible with each class, (N,)."""
        return self._bounds(state)[0]

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        items = find_items(context, self.models.n_features)
        decisions = state[items]
        if decisions.min() < self.n_first:
            return Decision.best(-decisions, context, rng.random())
        allowed, highest = self._bounds(state)
        if allowed.any():
            highest = np.minimum(highest, self.models.beta + self.epsilon)[allowed]
        return Decision.best(highest.max(axis=0)[items], context, rng.random())

    @cached_property
    def _radius(self) -> Floats:
        """r_ha after one reward of arm a, the same for all arms, (N, 1)."""
        delta = 1 / self.n_steps if self.delta is None else self.delta
        rate = np.sqrt(2 * np.log(self.models.n_classes * self.n_steps**2 / delta))
        return np.asarray(self.width * rate * self.models.noise[:, None])

    def _bounds(self, state: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Return which classes are allowed, (N,), and the upper bounds mean_a + r_ha, (N, K)."""
        _, count, mean = estimate_means(state)
        with np.errstate(divide="ignore"):
            radius = np.where(count > 0, self._radius / np.sqrt(count), np.inf)
        allowed = (np.abs(self.models.beta - mean) <= radius + self.epsilon).all(axis=1)
        return np.asarray(allowed), mean + radius
