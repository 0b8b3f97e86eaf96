"""The protocol of all bandits: settings with three methods, and a state that is one flat array.

    state    = bandit.start()
    decision = bandit.choose(state, context, rng)       context (K, d): the arms' features
    state    = bandit.update(state, decision, reward)

Some bandits have one or two more methods.  Call them through the functions of this file, which work for every bandit:

    state    = count_decision(bandit, state, decision)  after every decision; some bandits explore by the number of
                                                        decisions, not of rewards
    decision = add_advice(bandit, decision, context)    for a decision made elsewhere; some updates need each policy's
                                                        probability of the arm

A bandit may have a method `choose_many(states, context, uniforms)`, which decides for many users from one context as
`choose` would for each, to the last bit.

`serve` runs whole sequences of many users at once, for simulations.  A bandit may have a compiled method `serve`; for
the others, `serve_step_by_step` calls the three methods.  Both use exactly one uniform random number per decision, in
the same order, and so make the same choices.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.decision import Decision
from lcb.errors import InputError

Arms = NDArray[np.int64]
_BELOW_ONE = 1 - 2.0**-53
_FEW = 32  # Python sums up to so many numbers faster than NumPy


class Bandit(Protocol):
    def start(self) -> Floats: ...

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision: ...

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats: ...


def count_decision(bandit: Bandit, state: Floats, decision: Decision) -> Floats:
    """Return the state with one more decision counted; unchanged for a bandit that does not count decisions."""
    count = getattr(bandit, "count_decision", None)
    return state if count is None else count(state, decision)


def choose_uniformly(bandit: Bandit, context: Floats, uniform: float) -> Decision:
    """Choose an arm uniformly, in place of `bandit.choose`; `bandit.update` accepts the decision."""
    return add_advice(bandit, Decision.uniform(context, uniform), context)


def add_advice(bandit: Bandit, decision: Decision, context: Floats) -> Decision:
    """Return a copy of a decision made elsewhere, with the advice that the bandit's `update` needs."""
    add = getattr(bandit, "add_advice", None)
    return decision if add is None else add(decision, context)


def draw_index(p: Floats, uniform: float) -> tuple[int, float]:
    """Draw an index with probabilities `p` by one uniform number; return it and an independent uniform number."""
    cumulative = list(accumulate(p.tolist())) if len(p) <= _FEW else p.cumsum()  # the same sums
    wanted = uniform * cumulative[-1]
    place = bisect_right(cumulative, wanted)
    if place == len(p):
        raise InputError("the context or the state contains NaN; give finite features and rewards")
    rest = (wanted - cumulative[place] + p[place]) / p[place]
    return place, min(max(rest, 0.0), _BELOW_ONE)


def draw_indices(p: Floats, uniforms: Floats) -> Index:
    """Do the same as `draw_index` for each row of `p` (B, N), without the second number."""
    cumulative = p.cumsum(axis=1)
    wanted = uniforms * cumulative[:, -1]
    places = (cumulative <= wanted[:, None]).sum(axis=1)
    if np.isnan(wanted).any() or (places == p.shape[1]).any():
        raise InputError("the context or the state contains NaN; give finite features and rewards")
    return np.asarray(places)


def serve(
    bandit: Bandit, states: Floats, contexts: Floats, rewards: Floats, rng: np.random.Generator, n_uniform: int = 0
) -> tuple[Floats, Arms]:
    """Serve B users independently: `states` (B, S), `contexts` (B, T, K, d), `rewards` (B, T, K) of every arm.

    The first `n_uniform` steps of each user are uniform.  Return the final states, and the arms chosen (B, T).
    """
    compiled = getattr(bandit, "serve", None)
    if compiled is None:
        return serve_step_by_step(bandit, states, contexts, rewards, rng, n_uniform)
    if not (np.isfinite(contexts).all() and np.isfinite(rewards).all()):
        raise InputError("the contexts or rewards contain NaN or infinity; give finite features and rewards")
    states = states.copy()
    arms: Arms = compiled(states, contexts, rewards, rng.random(contexts.shape[:2]), n_uniform)
    return states, arms


def draw_uniform_arms(uniforms: Floats, n_arms: int, n_uniform: int) -> Arms:
    """Return arms (B, T) for a compiled `serve` to fill: uniform in the first `n_uniform` steps, -1 in the others."""
    arms = np.full(uniforms.shape, -1, np.int64)
    arms[:, :n_uniform] = (uniforms[:, :n_uniform] * n_arms).astype(np.int64)
    return arms


def serve_step_by_step(
    bandit: Bandit, states: Floats, contexts: Floats, rewards: Floats, rng: np.random.Generator, n_uniform: int = 0
) -> tuple[Floats, Arms]:
    """Do the same as `serve` with the three methods of the bandit."""
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
            state = bandit.update(count_decision(bandit, state, decision), decision, user_rewards[t, decision.arm])
        states[u] = state
    return states, arms
