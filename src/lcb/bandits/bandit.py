"""What every bandit is: settings with three verbs, and a state that is one flat array.

    state    = bandit.start()
    decision = bandit.choose(state, context, rng)       context (K, d): the arms' features
    state    = bandit.update(state, decision, reward)

Two more for the few that need them, both called through the functions of this file.  A schedule counts decisions, not
rewards, so a bandit that has one is told of every decision: `decided(state, decision) -> state`.  A bandit that learns
from what its policies said of the arm taken notes it on a decision that was not its own: `advised(decision, context)`.

`serve` plays many users' whole sequences at once, as a simulation wants it.  A bandit with a compiled `serve`
of its own says so by having the method; for the others `serve_step_by_step` does the same with the three verbs.
Both spend exactly one uniform number per decision, in the same order, and so make the same choices.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.events import Decision, Floats

Arms = NDArray[np.int64]
_BELOW_ONE = 1 - 2.0**-53
_FEW = 32  # numbers that are added up faster one by one


class Bandit(Protocol):
    def start(self) -> Floats: ...

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision: ...

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats: ...


def decided(bandit: Bandit, state: Floats, decision: Decision) -> Floats:
    """The state with one more decision counted; the same state for a bandit that does not count."""
    count = getattr(bandit, "decided", None)
    return state if count is None else count(state, decision)


def choose_uniformly(bandit: Bandit, context: Floats, uniform: float) -> Decision:
    """Any arm, all alike, in place of `bandit.choose`; the reward goes to `bandit.update` as for its own decisions."""
    return advised(bandit, Decision.uniform(context, uniform), context)


def advised(bandit: Bandit, decision: Decision, context: Floats) -> Decision:
    """A decision that was not the bandit's own, with what its `update` will need."""
    note = getattr(bandit, "advised", None)
    return decision if note is None else note(decision, context)


def drawn(p: Floats, uniform: float) -> tuple[int, float]:
    """A place drawn from `p` by one uniform number, and what is left of that number, uniform again."""
    cumulative = list(accumulate(p.tolist())) if len(p) <= _FEW else p.cumsum()  # the same sums
    wanted = uniform * cumulative[-1]
    place = bisect_right(cumulative, wanted)
    if place == len(p):
        raise InputError("the context or the state holds a NaN: nothing can be drawn; give finite features and rewards")
    rest = (wanted - cumulative[place] + p[place]) / p[place]
    return place, min(max(rest, 0.0), _BELOW_ONE)


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
    if not (np.isfinite(contexts).all() and np.isfinite(rewards).all()):
        raise InputError("the contexts or rewards hold a NaN or an infinity; give finite features and rewards")
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
            if t < n_uniform:
                decision = choose_uniformly(bandit, context, rng.random())
            else:
                decision = bandit.choose(state, context, rng)
            arms[u, t] = decision.arm
            state = bandit.update(decided(bandit, state, decision), decision, user_rewards[t, decision.arm])
        states[u] = state
    return states, arms
