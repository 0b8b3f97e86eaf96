"""One bandit per user, which learns nothing from the others: "Individual LinUCB" is `Individual(LinUCB(d))`."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, Bandit, add_advice, count_decision, serve
from lcb.decision import Decision
from lcb.recommenders.recommender import Users


class Individual:
    """A user's rewards change only that user's state."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit = bandit
        self.states: dict[Hashable, Floats] = {}

    def start(self, user: Hashable) -> None:
        self.states.setdefault(user, self.bandit.start())

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        self.start(user)
        decision = self.bandit.choose(self.states[user], context, rng)
        self.count_decision(user, decision)
        return decision

    def count_decision(self, user: Hashable, decision: Decision) -> None:
        """Count a decision made elsewhere; `choose` counts its own."""
        self.states[user] = count_decision(self.bandit, self.states[user], decision)

    def add_advice(self, user: Hashable, decision: Decision, context: Floats) -> Decision:
        return add_advice(self.bandit, decision, context)

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        self.states[user] = self.bandit.update(self.states[user], decision, reward)

    def serve(
        self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator, n_uniform_steps: int = 0
    ) -> Arms:
        for user in users:
            self.start(user)
        states = np.array([self.states[user] for user in users])
        states, arms = serve(self.bandit, states, contexts, rewards, rng, n_uniform_steps)
        self.states.update(zip(users, states, strict=True))
        return arms
