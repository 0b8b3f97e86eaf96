"""Arms without features: arm a of K is the one-hot row e_a, and class h expects the reward beta_h[a] from it.

The state is, for each of the K arms, the number of decisions, the number of rewards and their sum, (3 K,).
A context may offer the arms in any order, only some of them, or one of them twice.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats, Index
from lcb.decision import Decision, check_reward
from lcb.errors import InputError


def find_items(context: Floats, n_items: int) -> Index:
    """Return the arm of each row of a context (K, n_items), (K,).

    >>> find_items(np.eye(3)[[2, 0]], 3)
    array([2, 0])
    """
    if not len(context):
        raise InputError("the context has no arms; give at least 1")
    if context.shape[1] != n_items:
        raise InputError(f"the context has {context.shape[1]} features, there are {n_items} arms; give one-hot rows")
    if np.count_nonzero(context) != len(context) or not (context.max(axis=1) == 1).all():
        raise InputError(
            "a row of the context is not one-hot (NaN, or features); this bandit needs arms without features"
        )
    return context.argmax(axis=1)


class CountingBandit:
    """The updates of a bandit whose state is these counts."""

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        state = state.copy()
        state[: len(decision.x)] += decision.x
        return state

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        n, state = len(decision.x), state.copy()
        state[n : 2 * n] += decision.x
        state[2 * n :] += reward * decision.x
        return state


def estimate_means(state: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the number of decisions, of rewards, and the mean reward (0 without rewards) of every arm, (K,) each."""
    decisions, count, total = state.reshape(3, -1)
    return decisions, count, total / np.maximum(count, 1.0)
