"""What EXP3, EXP4 and EXP4.P share: the declared range of rewards, the horizon, the weights, words on chance.

All three publications ask for the number of decisions T.  When nobody knows it, it is doubled: T is the smallest power
of two that is not below the decisions made so far, the next one included.  The states keep sums of estimates and not
weights, so a new T asks for no restart: the weights of all sums are taken at the new rate.
"""

from __future__ import annotations

import math

import numpy as np

from lcb.errors import InputError
from lcb.events import Decision, Floats
from lcb.policies import Policies


def check_settings(
    policies: Policies,
    reward_range: tuple[float, float],
    horizon: int | None,
    eta: float | None,
    **share: float | None,
) -> None:
    """Refuse settings out of range; `share` is the bandit's own parameter, under its name."""
    if policies.n_policies < 1:
        raise InputError(f"n_policies={policies.n_policies}; there must be at least 1 policy to follow")
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"reward_range=({low:g}, {high:g}); give the lowest and the highest reward there can be")
    if horizon is not None and horizon < 1:
        raise InputError(f"horizon={horizon}; it is a number of decisions, at least 1, or None when nobody knows it")
    if eta is not None and not (math.isfinite(eta) and eta > 0):
        raise InputError(f"eta={eta:g}; it must be a positive number, or None for the theory's own")
    for name, value in share.items():
        if value is not None and not 0 < value <= 1:
            raise InputError(f"{name}={value:g}; it must lie in (0, 1], or be None for the theory's own")


def rounds(horizon: int | None, n_decided: float) -> int:
    """T: as declared, or doubled.

    >>> [rounds(None, n_decided) for n_decided in (0, 1, 2, 3, 4, 31, 32)]
    [1, 2, 4, 4, 8, 32, 64]
    """
    return 1 << int(n_decided).bit_length() if horizon is None else horizon


def scaled(reward: float, reward_range: tuple[float, float], name: str) -> float:
    """The reward as a share of the declared range, in [0, 1]."""
    low, high = reward_range
    if not low <= reward <= high:
        raise InputError(
            f"reward {reward:g} is outside the declared range [{low:g}, {high:g}] that {name} needs; "
            "declare the range of your rewards (reward_range)"
        )
    return (reward - low) / (high - low)


def advice_on(decision: Decision, size: int, name: str) -> Floats:
    """What the policies said of a decision, written there by `choose` or `advised`."""
    if decision.advice is None or len(decision.advice) != size:
        raise InputError(
            f"the decision carries no advice of {size} numbers, which {name} learns from; "
            "decide by this bandit's `choose`, or by `choose_uniformly`"
        )
    return decision.advice


def counted(state: Floats) -> Floats:
    """The state, whose first number is the count, after one more decision."""
    after = state.copy()
    after[0] += 1
    return after


def check_arms(context: Floats) -> None:
    if len(context) == 0:
        raise InputError("the context has no arms; offer at least one")


def note_on_chance(setting: str, sizes: str, least: float, horizon: int | None, becomes: str, does: str) -> str | None:
    """In words, what a theory's setting leaves to chance, a share sqrt(least / T); nothing when that is below half."""
    if horizon is None:
        first = 1 << int(math.log2(least)) if least >= 1 else 0  # decisions with a doubled T of at most `least`
        return f"at {sizes} the theory's {setting} makes the first {first} decisions {does}" if first else None
    sizes = f"{sizes}, T {horizon}"
    if horizon <= least:
        return f"at {sizes} the theory's {setting} makes this {becomes}; it needs T above {least:.0f}"
    share = math.sqrt(least / horizon)
    return None if share < 0.5 else f"at {sizes} the theory's {setting} makes {share:.0%} of the decisions {does}"


def softmax(log_weights: Floats) -> Floats:
    """Weights that sum to 1; `log_weights` (N,) is overwritten."""
    log_weights -= log_weights.max()
    weights = np.exp(log_weights, log_weights)
    weights /= weights.sum()
    return weights
