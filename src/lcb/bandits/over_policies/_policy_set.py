"""Shared by the bandits over a set of policies: checks of their input, and the policies' advice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.policies import ClassPolicies, Policies

_MOST_NUMBERS = 1 << 20  # numbers of advice in memory at once: 8 MB


def check_set(policies: Policies, reward_range: tuple[float, float]) -> None:
    """Refuse an empty set of policies, and a range that is not two finite numbers, the lower first."""
    if policies.n_policies < 1:
        raise InputError(f"n_policies={policies.n_policies}; a set of policies needs at least 1")
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"reward_range=({low:g}, {high:g}); give the lowest and the highest possible reward")


def check_arms(context: Floats) -> None:
    if len(context) == 0:
        raise InputError("the context has no arms; give at least one")


def ask_policies(policies: Policies, context: Floats) -> Floats:
    """Return the probability that each policy gives to each arm, (N, K)."""
    check_arms(context)
    return _check_advice(policies(context))


def read_advice(decision: Decision, size: int, name: str) -> Floats:
    """Return the advice that `choose` or `add_advice` put into a decision."""
    if decision.advice is None or len(decision.advice) != size:
        raise InputError(
            f"the decision has no advice of {size} numbers, which the update of {name} needs; "
            "make it with this bandit's `choose` or with `choose_uniformly`, or add it with `add_advice`"
        )
    return decision.advice


def scale(reward: float, reward_range: tuple[float, float], name: str) -> float:
    """Scale the reward from the declared range to [0, 1]."""
    low, high = reward_range
    if not low <= reward <= high:
        raise InputError(
            f"reward {reward:g} is outside the declared range [{low:g}, {high:g}] that {name} needs; "
            "declare the range of your rewards (reward_range)"
        )
    return (reward - low) / (high - low)


def iterate_advice(policies: Policies, contexts: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield, a few steps at a time, the first step and the advice (B, steps, N, K) for the steps from there."""
    n_users, n_steps, n_arms, _ = contexts.shape
    if n_arms == 0:
        raise InputError("the contexts have no arms; give at least one")
    part = max(1, _MOST_NUMBERS // max(1, n_users * policies.n_policies * n_arms))
    for start in range(0, n_steps, part):
        yield start, _check_advice(_ask_policies_on_all(policies, contexts[:, start : start + part]))


def _ask_policies_on_all(policies: Policies, contexts: Floats) -> Floats:
    if isinstance(policies, ClassPolicies):
        return policies.policy(policies.models.beta @ contexts.mT)
    flat = contexts.reshape(-1, *contexts.shape[2:])
    advice = np.array([policies(context) for context in flat], np.float64)
    return advice.reshape(*contexts.shape[:2], *advice.shape[1:])


def _check_advice(advice: Floats) -> Floats:
    if math.isnan(np.add.reduce(advice, None)):
        raise InputError("the policies' advice contains NaN; give finite features")
    return advice


def check_taken(rewards: Floats, arms: Arms, reward_range: tuple[float, float], name: str) -> None:
    """Refuse rewards (B, T, K) of the arms taken (B, T) that are outside the range, as `scale` does."""
    taken = np.take_along_axis(rewards, arms[..., None], axis=2)
    outside = ~((taken >= reward_range[0]) & (taken <= reward_range[1]))
    if outside.any():
        scale(float(taken[outside][0]), reward_range, name)
