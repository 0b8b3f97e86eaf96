"""The protocol of all recommenders: the three methods of a bandit with `user` first; it keeps its users' states.

    recommender.start(user)                                  once per user; `choose` does it for a new one
    decision = recommender.choose(user, context, rng)
    recommender.update(user, decision, reward)

`serve` serves users one after another, each through all steps, for simulations; it makes the same choices.
`build_logged_decision` builds a decision from a log, so that a recommender can learn from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.decision import Decision

Users = Sequence[Hashable]


class Recommender(Protocol):
    def start(self, user: Hashable) -> None: ...

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision: ...

    def update(self, user: Hashable, decision: Decision, reward: float) -> None: ...

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms: ...


def build_logged_decision(
    recommender: Recommender, user: Hashable, arm: int, propensity: float, context: Floats
) -> Decision:
    """Build a decision that was made elsewhere, with the advice that `recommender.update` needs."""
    decision = Decision(arm, propensity, context[arm])
    add_advice = getattr(recommender, "add_advice", None)
    return decision if add_advice is None else add_advice(user, decision, context)


def serve_step_by_step(
    recommender: Recommender, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator
) -> Arms:
    """Serve with the three methods: `contexts` (B, T, K, d), `rewards` (B, T, K) of every arm -> arms (B, T)."""
    arms = np.empty(contexts.shape[:2], np.int64)
    for u, user in enumerate(users):
        recommender.start(user)
        for t, context in enumerate(contexts[u]):
            decision = recommender.choose(user, context, rng)
            arms[u, t] = decision.arm
            recommender.update(user, decision, rewards[u, t, decision.arm])
    return arms
