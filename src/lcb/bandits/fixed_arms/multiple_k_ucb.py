"""Multiple-K-UCB for arms without features and known classes (Maillard & Mannor 2014, ICML, PMLR 32, Algorithm 2).

A user's class is unknown, the expected rewards beta (N, K) of every class are known:

    S_a  = mean_a -+ width * R sqrt(2 log(n^3) / n_a)     n_a rewards of arm a, n of all arms; R the largest noise
    C    = { h : beta_h[a] in S_a for every arm a }       the admissible classes
    play the best arm of the class in C that expects the most of its best arm

Where no class is admissible the arms are played in turn.  (By the letter, log(1) = 0 leaves no class admissible after
the first reward: the second decision of a user is such a turn.)  With one class for all users it is the publication's
Single-K-UCB, Algorithm 1.  The rule is deterministic: the propensity is 1, or 1 / ties.  A decision costs O(N K).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.fixed_arms._counts import add_decision, add_reward, estimate_means, find_items
from lcb.bandits.traits import Traits
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels


@dataclass(frozen=True)
class MultipleKUCB:
    """Settings only; the state is the decisions, the rewards and their sum of every arm, (3 K,).

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.2], [0.3, 0.9]], sigma2=[0.01, 0.01])
    >>> bandit, rng = MultipleKUCB(models), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> for _ in range(3):  # class 1 expects 1.0 of arm 0, which gives 0.31; arm 1 gives 0.9, as class 2 expects
    ...     decision = bandit.choose(state, np.eye(2), rng)
    ...     state = bandit.update(bandit.count_decision(state, decision), decision, reward=[0.31, 0.9][decision.arm])
    ...     print(decision.arm, bandit.admissible(state))
    0 [False False]
    1 [False  True]
    1 [False  True]
    """

    traits: ClassVar[Traits] = Traits("models", state="3 K", cost="N K", fixed_arms=True)

    models: LatentModels = field(repr=False)
    width: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.width) and self.width >= 0):
            raise InputError(f"width={self.width}; it must be 0 or more")

    def start(self) -> Floats:
        return np.zeros(3 * self.models.n_features)

    def admissible(self, state: Floats) -> NDArray[np.bool_]:
        """(N,) the classes that no arm's rewards have ruled out"""
        _, count, mean = estimate_means(state)
        radius = (
            self.width * self.models.noise.max() * np.sqrt(6 * np.log(max(count.sum(), 1.0)) / np.maximum(count, 1))
        )
        return np.asarray(((np.abs(self.models.beta - mean) <= radius) | (count == 0)).all(axis=1))

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        items = find_items(context, self.models.n_features)
        admissible = self.admissible(state)
        if admissible.any():
            scores = self.models.beta[admissible][:, items].max(axis=0)
        else:
            scores = -state[items]
        return Decision.best(scores, context, rng.random())

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        return add_decision(state, decision)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return add_reward(state, decision, reward)
