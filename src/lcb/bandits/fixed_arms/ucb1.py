"""UCB1 for arms without features, with no prior knowledge (Auer, Cesa-Bianchi & Fischer 2002, Machine Learning 47).

    play argmax_a  mean_a + width * sqrt(2 log n / n_a)         n_a rewards of arm a, n of all; untried arms first

With width 1, as published, rewards must be in [0, 1].  The rule is deterministic: the propensity is 1, or 1 / ties.
A decision costs O(K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.fixed_arms._counts import CountingBandit, estimate_means, find_items
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context
from lcb.errors import InputError


@dataclass(frozen=True)
class UCB1(CountingBandit):
    """Settings only; the state is the number of decisions, of rewards and the reward sum of every arm, (3 K,).

    >>> bandit, rng = UCB1(n_arms=2), np.random.default_rng(0)
    >>> state = np.array([4.0, 1.0, 4.0, 1.0, 2.0, 0.0])  # means 0.5 of 4 rewards, 0.0 of 1
    >>> bandit.choose(state, np.eye(2), rng).arm  # 0.5 + sqrt(2 log 5 / 4) = 1.40, 0.0 + sqrt(2 log 5) = 1.79
    1
    """

    traits: ClassVar[Traits] = Traits("n_features", state="3 K", cost="K", fixed_arms=True)

    n_arms: int
    width: float = 1.0

    def __post_init__(self) -> None:
        if self.n_arms < 1:
            raise InputError(f"n_arms={self.n_arms}; there must be at least 1")
        if not (np.isfinite(self.width) and self.width >= 0):
            raise InputError(f"width={self.width}; it must be 0 or more")

    def start(self) -> Floats:
        return np.zeros(3 * self.n_arms)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        items = find_items(context, self.n_arms)
        decisions, count, mean = estimate_means(state)
        if not decisions[items].all():
            return Decision.best(-decisions[items], context, rng.random())
        bonus = self.width * np.sqrt(2 * np.log(max(count.sum(), 1.0)) / np.maximum(count, 1.0))
        return Decision.best((mean + bonus)[items], context, rng.random())
