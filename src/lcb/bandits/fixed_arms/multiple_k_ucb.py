"""Multiple-K-UCB for arms without features and known classes (Maillard & Mannor 2014, ICML, PMLR 32, Algorithm 2).

The class of a user is unknown; the expected rewards beta (N, K) of every class are known:

    S_a  = mean_a -+ width * R sqrt(2 log(n^3) / n_a)     n_a rewards of arm a, n of all arms; R the largest noise
    C    = { h : beta_h[a] in S_a for every arm a }       the admissible classes
    play the best arm of the class in C with the highest expected reward

If no class is admissible, the arm with the fewest decisions is played.  (As published, the radius is 0 after the first
reward, because log(1) = 0, so usually no class is admissible at the second decision.)  With one class for all users
this is the publication's Single-K-UCB, Algorithm 1.  The rule is deterministic: the propensity is 1, or 1 / ties.  A
decision costs O(N K).
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
class MultipleKUCB(CountingBandit):
    """Settings only; the state is the number of decisions, of rewards and the reward sum of every arm, (3 K,).

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
        """Return whether the rewards of all arms are compatible with each class, (N,)."""
        _, count, mean = estimate_means(state)
        scale = self.width * self.models.noise.max()
        radius = scale * np.sqrt(6 * np.log(max(count.sum(), 1.0)) / np.maximum(count, 1))
        return np.asarray(((np.abs(self.models.beta - mean) <= radius) | (count == 0)).all(axis=1))

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        items = find_items(context, self.models.n_features)
        admissible = self.admissible(state)
        scores = self.models.beta[admissible][:, items].max(axis=0) if admissible.any() else -state[items]
        return Decision.best(scores, context, rng.random())
