"""What EXP3, EXP4 and EXP4.P share: the horizon, the weights, words on chance.

All three publications ask for the number of decisions T.  When nobody knows it, it is doubled: T is the smallest power
of two that is not below the decisions made so far, the next one included.  The states keep sums of estimates and not
weights, so a new T asks for no restart: the weights of all sums are taken at the new rate.
"""

from __future__ import annotations

import math

import numpy as np

from lcb.bandits.over_policies._policy_set import check_set
from lcb.errors import InputError
from lcb.events import Floats
from lcb.policies import Policies


def check_settings(
    policies: Policies,
    reward_range: tuple[float, float],
    horizon: int | None,
    eta: float | None,
    **share: float | None,
) -> None:
    """Refuse settings out of range; `share` is the bandit's own parameter, under its name."""
    check_set(policies, reward_range)
    if horizon is not None and not (isinstance(horizon, int | np.integer) and horizon >= 1):
        raise InputError(f"horizon={horizon}; it is a number of decisions, at least 1, or None when nobody knows it")
    if eta is not None and not (math.isfinite(eta) and eta > 0):
        raise InputError(f"eta={eta:g}; it must be a positive number, or None for the theory's own")
    for name, value in share.items():
        if value is not None and not 0 < value <= 1:
            raise InputError(f"{name}={value:g}; it must lie in (0, 1], or be None for the theory's own")


def get_horizon(horizon: int | None, n_decided: float) -> int:
    """T: as declared, or doubled.

    >>> [get_horizon(None, n_decided) for n_decided in (0, 1, 2, 3, 4, 31, 32)]
    [1, 2, 4, 4, 8, 32, 64]
    """
    return 1 << int(n_decided).bit_length() if horizon is None else horizon


def add_decision(state: Floats) -> Floats:
    """The state, whose first number is the count, after one more decision."""
    after = state.copy()
    after[0] += 1
    return after


def describe_chance(setting: str, sizes: str, least: float, horizon: int | None, becomes: str, does: str) -> str | None:
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
