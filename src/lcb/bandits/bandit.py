"""What every bandit is: settings with three verbs, and a state that is one flat array.

    state    = bandit.start()
    decision = bandit.choose(state, context, rng)       context (K, d): the arms' features
    state    = bandit.update(state, decision, reward)

`serve` plays many users' whole sequences at once, as a simulation wants it.  A bandit with a compiled `serve`
of its own says so by having the method; for the others `serve_step_by_step` does the same with the three verbs.
Both spend exactly one uniform number per decision, in the same order, and so make the same choices.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lcb.events import Decision, Floats

Arms = NDArray[np.int64]


class Bandit(Protocol):
    def start(self) -> Floats: ...

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision: ...

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats: ...


def serve(
    bandit: Bandit,
    states: Floats,
    contexts: Floats,
    rewards: Floats,
    rng: np.random.Generator,
    n_uniform: int = 0,
) -> tuple[Floats, Arms]:
    """Play users side by side: `states` (B, S), `contexts` (B, T, K, d), `rewards` (B, T, K) of every arm.

    The first `n_uniform` steps of each user draw an arm uniformly.  Returns the states after, and the arms (B, T).
    """
    compiled = getattr(bandit, "serve", None)
    if compiled is None:
        return serve_step_by_step(bandit, states, contexts, rewards, rng, n_uniform)
    states = states.copy()
    arms: Arms = compiled(states, contexts, rewards, rng.random(contexts.shape[:2]), n_uniform)
    return states, arms


def serve_step_by_step(
    bandit: Bandit,
    states: Floats,
    contexts: Floats,
    rewards: Floats,
    rng: np.random.Generator,
    n_uniform: int = 0,
) -> tuple[Floats, Arms]:
    """The same with the three verbs alone."""
    states = states.copy()
    arms = np.empty(contexts.shape[:2], np.int64)
    for u, (user_contexts, user_rewards) in enumerate(zip(contexts, rewards, strict=True)):
        state = states[u]
        for t, context in enumerate(user_contexts):
            decision = Decision.uniform(context, rng.random()) if t < n_uniform else bandit.choose(state, context, rng)
            arms[u, t] = decision.arm
            state = bandit.update(state, decision, user_rewards[t, decision.arm])
        states[u] = state
    return states, arms
