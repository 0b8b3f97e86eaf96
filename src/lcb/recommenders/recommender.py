"""What every recommender is: the three verbs of a bandit with `user` first, and the states kept inside.

    recommender.start(user)                                  once per user; `choose` does it for a new one
    decision = recommender.choose(user, context, rng)
    recommender.update(user, decision, reward)

`serve` plays whole users one after another, as a simulation wants it, and makes the same choices.  `logged_decision`
makes a decision of what somebody else decided, so that a recommender can learn from a log: one whose bandits note what
their policies say has `advised(user, decision, context)`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

from lcb.bandits.bandit import Arms
from lcb.events import Decision, Floats


class Recommender(Protocol):
    def start(self, user: Hashable) -> None: ...

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision: ...

    def update(self, user: Hashable, decision: Decision, reward: float) -> None: ...

    def serve(self, users: Sequence[Hashable], contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms: ...


def logged_decision(recommender: Recommender, user: Hashable, arm: int, propensity: float, context: Floats) -> Decision:
    """The decision of another, as `recommender.update` wants it."""
    decision = Decision(arm, propensity, context[arm])
    advised = getattr(recommender, "advised", None)
    return decision if advised is None else advised(user, decision, context)


def serve_step_by_step(
    recommender: Recommender,
    users: Sequence[Hashable],
    contexts: Floats,
    rewards: Floats,
    rng: np.random.Generator,
) -> Arms:
    """`serve` with the three verbs alone: `contexts` (B, T, K, d), `rewards` (B, T, K) of every arm -> arms (B, T)."""
    arms = np.empty(contexts.shape[:2], np.int64)
    for u, user in enumerate(users):
        recommender.start(user)
        for t, context in enumerate(contexts[u]):
            decision = recommender.choose(user, context, rng)
            arms[u, t] = decision.arm
            recommender.update(user, decision, rewards[u, t, decision.arm])
    return arms
