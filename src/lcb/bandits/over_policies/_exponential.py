"""Shared by EXP3, EXP4 and EXP4.P: checks, the horizon T, the weights, and a warning of settings that explore too much.

All three publications need the number of decisions T.  If it is unknown, T is doubled as needed: the smallest power of
two that is at least the number of decisions including the next one.  The states keep sums of estimates, not weights, so
a new T needs no restart: the weights are computed from all sums at the new rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.over_policies._policy_set import check_set, read_advice, scale
from lcb.bandits.traits import Traits
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.policies import Policies


def check_settings(
    policies: Policies, reward_range: tuple[float, float], horizon: int | None, eta: float | None, **share: float | None
) -> None:
    """Refuse settings out of range; `share` is the bandit's own parameter, under its name."""
    check_set(policies, reward_range)
    if horizon is not None and not (isinstance(horizon, int | np.integer) and horizon >= 1):
        raise InputError(f"horizon={horizon}; it is a number of decisions, at least 1, or None if it is unknown")
    if eta is not None and not (math.isfinite(eta) and eta > 0):
        raise InputError(f"eta={eta:g}; it must be a positive number, or None for the theory's value")
    for name, value in share.items():
        if value is not None and not 0 < value <= 1:
            raise InputError(f"{name}={value:g}; it must lie in (0, 1], or be None for the theory's value")


def get_horizon(horizon: int | None, n_decided: float) -> int:
    """Return T: as declared, or doubled as needed.

    >>> [get_horizon(None, n_decided) for n_decided in (0, 1, 2, 3, 4, 31, 32)]
    [1, 2, 4, 4, 8, 32, 64]
    """
    return 1 << int(n_decided).bit_length() if horizon is None else horizon


def add_decision(state: Floats) -> Floats:
    """Return the state after one more decision; its first number counts them."""
    after = state.copy()
    after[0] += 1
    return after


def describe_chance(setting: str, sizes: str, least: float, horizon: int | None, becomes: str, does: str) -> str | None:
    """Describe the share of decisions that the theory's setting makes uniform, sqrt(least / T); None if below half."""
    if horizon is None:
        first = 1 << int(math.log2(least)) if least >= 1 else 0  # decisions with a doubled T of at most `least`
        return f"at {sizes} the theory's {setting} makes the first {first} decisions {does}" if first else None
    sizes = f"{sizes}, T {horizon}"
    if horizon <= least:
        return f"at {sizes} the theory's {setting} makes this {becomes}; it needs T above {least:.0f}"
    share = math.sqrt(least / horizon)
    return None if share < 0.5 else f"at {sizes} the theory's {setting} makes {share:.0%} of the decisions {does}"


def softmax(log_weights: Floats) -> Floats:
    """Return weights (N,) that sum to 1; overwrites `log_weights` (N,)."""
    log_weights -= log_weights.max()
    weights = np.exp(log_weights, log_weights)
    weights /= weights.sum()
    return weights


@dataclass(frozen=True)
class GammaSettings:
    """Settings and updates of EXP3 and EXP4, whose state is [decisions, Y]."""

    traits: ClassVar[Traits] = Traits(
        "policies", state="1 + N", cost="N K d", needs_reward_range=True, needs_propensity_of_chosen=True
    )

    policies: Policies = field(repr=False)
    reward_range: tuple[float, float] = (0.0, 1.0)
    horizon: int | None = None
    gamma: float | None = None
    eta: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.policies, self.reward_range, self.horizon, self.eta, gamma=self.gamma)

    def start(self) -> Floats:
        return np.zeros(1 + self.policies.n_policies)

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        return add_decision(state)

    def add_advice(self, decision: Decision, context: Floats) -> Decision:
        """Return a copy of a decision made elsewhere, with each policy's probability of its arm / its propensity."""
        return replace(decision, advice=self.policies(context)[:, decision.arm] / decision.propensity)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        name, after = type(self).__name__, state.copy()
        after[1:] += scale(reward, self.reward_range, name) * read_advice(decision, len(state) - 1, name)
        return after
