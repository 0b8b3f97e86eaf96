"""Decisions, and the checks of contexts, rewards and rows.

A `Decision` carries all that the update with its reward needs (the features of the arm, its propensity, the advice of
the policies), so rewards may come late and in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.errors import EventError, InputError

Floats = NDArray[np.floating[Any]]
LARGEST = 1e100  # of a feature or a reward: squares and sums of these stay finite


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One arm taken out of a context.

    >>> context = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> decision = Decision.best(np.array([0.2, 0.7]), context, uniform=0.9)
    >>> decision.arm, float(decision.propensity), decision.x, decision.distribution
    (1, 1.0, array([0., 1.]), array([0., 1.]))
    """

    arm: int
    propensity: float  # the probability with which this arm was taken, P(a | context)
    x: Floats  # (d,) features of the arm taken
    distribution: Floats | None = None  # (K,) probability of every arm of the context
    at_random: bool = False  # drawn uniformly from all arms, to explore
    advice: Floats | None = None  # of each policy, flat, in the form that the bandit's `update` needs

    @classmethod
    def best(cls, scores: Floats, context: Floats, uniform: float) -> Decision:
        """The arm with the highest of `scores` (K,); `uniform`, in [0, 1), breaks ties uniformly."""
        arm = int(scores.argmax())
        best = scores[arm]
        if best != best:
            raise InputError("the context or the state holds a NaN: no arm is best; give finite features and rewards")
        if len(scores) - 1 - int(scores[::-1].argmax()) != arm:  # a tie
            tied = (scores == best).nonzero()[0]
            arm = int(tied[int(uniform * len(tied))])
            distribution = np.zeros(len(scores))
            distribution[tied] = 1 / len(tied)
            return cls(arm, 1 / len(tied), context[arm], distribution)
        distribution = np.zeros(len(scores))
        distribution[arm] = 1.0
        return cls(arm, 1.0, context[arm], distribution)

    @classmethod
    def uniform(cls, context: Floats, uniform: float) -> Decision:
        """An arm drawn uniformly."""
        n_arms = len(context)
        if not n_arms:
            raise InputError("the context has no arms; give at least 1")
        arm = int(uniform * n_arms)
        return cls(arm, 1 / n_arms, context[arm], np.full(n_arms, 1 / n_arms), at_random=True)

    def with_uniform(self, share: float, context: Floats, uniform: float) -> Decision:
        """Mix with the uniform distribution: an arm drawn uniformly where `uniform` is below `share`, else this one."""
        assert self.distribution is not None
        distribution = (1 - share) * self.distribution + share / len(context)
        arm = int(uniform / share * len(context)) if uniform < share else self.arm
        return Decision(arm, distribution[arm], context[arm], distribution)


def rescale(uniform: float, share: float) -> float:
    """Map a uniform number in [share, 1) to [0, 1)."""
    return max((uniform - share) / (1 - share), 0.0) if share < 1 else 0.0


def check_reward(reward: float) -> None:
    """Raise InputError for a reward that is not finite or too large."""
    if not -LARGEST <= reward <= LARGEST:
        raise InputError(f"reward is {reward}; it must be a finite number of at most {LARGEST:g} in size")


def check_context(context: Floats, n_features: int) -> None:
    """Raise InputError unless the context is arms by features, (K, d), with at least one arm."""
    if context.ndim != 2 or not len(context) or context.shape[1] != n_features:
        came = f"{len(context)} arms of {context.shape[1]} features" if context.ndim == 2 else f"shape {context.shape}"
        raise InputError(f"the context has {came}; give at least 1 arm, each of {n_features} features")


def check_rows(
    x: NDArray[Any],
    reward: NDArray[Any],
    *,
    place: str = "rows",
    first_row: int = 1,
    features: Sequence[str] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> None:
    """Raise EventError, naming the first row, for rows (n, d) or rewards (n,) that no learner can use.

    >>> check_rows(np.array([[1.0, np.nan]]), np.array([0.5]), place="clicks.csv", features=("age", "hour"))
    Traceback (most recent call last):
    lcb.errors.EventError: clicks.csv row 1: feature hour is nan; every feature must be a finite number, ...
    """
    wrong = ~(np.abs(x) <= LARGEST)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        name = features[column] if features else f"x[{column}]"
        raise EventError(
            f"{place} row {first_row + row}: feature {name} is {x[row, column]}; "
            f"every feature must be {_describe_limit(x[row, column])}, mend or drop the row"
        )
    wrong = ~(np.abs(reward) <= LARGEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise EventError(
            f"{place} row {first_row + row}: reward is {reward[row]}; "
            f"every reward must be {_describe_limit(reward[row])}, mend or drop the row"
        )
    if reward_range is not None:
        low, high = reward_range
        outside = (reward < low) | (reward > high)
        if outside.any():
            row = int(np.argmax(outside))
            raise EventError(
                f"{place} row {first_row + row}: reward {reward[row]:g} is outside the declared range "
                f"[{low:g}, {high:g}]; mend the row, or declare the range of your rewards"
            )


def _describe_limit(value: float) -> str:
    return f"at most {LARGEST:g} in size" if np.isfinite(value) else "a finite number"
