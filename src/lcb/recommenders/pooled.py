"""One bandit for all users: "Population LinUCB" is `Pooled(LinUCB(d))`, "Random" is `Pooled(Uniform())`."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, Bandit, add_advice, count_decision, serve
from lcb.decision import Decision
from lcb.recommenders.recommender import Users


class Pooled:
    """All rewards of all users update one state; `state` is the initial one (None: `bandit.start()`)."""

    def __init__(self, bandit: Bandit, *, state: Floats | None = None) -> None:
        self.bandit = bandit
        self.state = bandit.start() if state is None else state

    def start(self, user: Hashable) -> None:
        """Do nothing: there is no state per user."""

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        decision = self.bandit.choose(self.state, context, rng)
        self.count_decision(user, decision)
        return decision

    def count_decision(self, user: Hashable, decision: Decision) -> None:
        """Count a decision made elsewhere; `choose` counts its own."""
        self.state = count_decision(self.bandit, self.state, decision)

    def add_advice(self, user: Hashable, decision: Decision, context: Floats) -> Decision:
        return add_advice(self.bandit, decision, context)

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        self.state = self.bandit.update(self.state, decision, reward)

    def serve(
        self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator, n_uniform_steps: int = 0
    ) -> Arms:
        n_users, n_steps, n_arms, d = contexts.shape
        if n_uniform_steps == 0:  # serve all users as one long sequence
            contexts = contexts.reshape(1, n_users * n_steps, n_arms, d)
            rewards = rewards.reshape(1, n_users * n_steps, n_arms)
        arms = np.empty(contexts.shape[:2], np.int64)
        for i in range(len(contexts)):
            states, arms[i] = serve(
                self.bandit, self.state[None], contexts[i : i + 1], rewards[i : i + 1], rng, n_uniform_steps
            )
            self.state = states[0]
        return arms.reshape(n_users, n_steps)
