"""Statistics of a study with two groups of visitors: mean, standard deviation, difference with its interval.

    deviation  = sqrt( (square_sum - total^2 / n) / (n - 1) )
    difference = mean_a - mean_b  ±  t(level, df) sqrt(v_a + v_b)          v = deviation^2 / n
    df         = (v_a + v_b)^2 / ( v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1) )

The interval is Welch's (1947, Biometrika 34), for groups of different size and deviation.  A group of fewer than two
visitors has no deviation, and a difference to it no interval: both are None, never nan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from lcb.arrays import Floats
from lcb.errors import InputError


@dataclass(frozen=True)
class Group:
    """One group: the number of visitors, and the mean and standard deviation of their click rates.

    >>> Group.of_rates(np.array([0.0, 0.5, 1.0]))
    Group(n=3, mean=0.5, deviation=0.5)
    """

    n: int
    mean: float | None  # None for an empty group
    deviation: float | None

    @classmethod
    def of_rates(cls, rates: Floats) -> Group:
        """Build from the rates of all visitors, (n,)."""
        n = len(rates)
        mean = float(rates.mean()) if n else None
        return cls(n, mean, float(rates.std(ddof=1)) if n > 1 else None)

    @classmethod
    def of_sums(cls, n: int, total: float, square_sum: float) -> Group:
        """Build from running sums.

        >>> Group.of_sums(3, total=1.5, square_sum=1.25)  # 0, 0.5, 1
        Group(n=3, mean=0.5, deviation=0.5)
        """
        if n < 1:
            return cls(0, None, None)
        spread = max(square_sum - total * total / n, 0.0)
        return cls(n, total / n, float(np.sqrt(spread / (n - 1))) if n > 1 else None)

    def difference_to(self, other: Group, level: float = 0.95) -> tuple[float, float, float] | None:
        """Return `welch_interval` of this group and the other; None if either has fewer than two visitors."""
        if self.mean is None or self.deviation is None or other.mean is None or other.deviation is None:
            return None
        return welch_interval(self.n, self.mean, self.deviation, other.n, other.mean, other.deviation, level)


def welch_interval(
    n_a: int, mean_a: float, deviation_a: float, n_b: int, mean_b: float, deviation_b: float, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Return mean_a - mean_b and its interval as (mean, low, high); None if a group has fewer than two visitors.

    >>> [round(x, 3) for x in welch_interval(5, 0.380, 0.076, 5, 0.196, 0.096)]  # Table 2 of the paper
    [0.184, 0.057, 0.311]
    """
    if not 0 < level < 1:
        raise InputError(f"level={level}; give a confidence level between 0 and 1, such as 0.95")
    if n_a < 2 or n_b < 2:
        return None
    between, v_a, v_b = mean_a - mean_b, deviation_a**2 / n_a, deviation_b**2 / n_b
    if v_a + v_b == 0:
        return between, between, between
    share = v_a / (v_a + v_b)  # df from shares, because squares of tiny variances would underflow
    df = 1 / (share**2 / (n_a - 1) + (1 - share) ** 2 / (n_b - 1))
    half = float(stdtrit(df, (1 + level) / 2)) * float(np.sqrt(v_a + v_b))
    return between, between - half, between + half


def compare_rates(rates_a: Floats, rates_b: Floats, level: float = 0.95) -> tuple[float, float, float] | None:
    """Return `welch_interval` of two groups, given the rates of their visitors."""
    return Group.of_rates(rates_a).difference_to(Group.of_rates(rates_b), level)
