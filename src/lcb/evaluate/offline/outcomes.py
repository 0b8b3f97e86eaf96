"""Mean rewards of algorithms on the test users of a log, their standard errors and their gains over each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.offline.support import Support

POPULATION = "linucb-population"


@dataclass(frozen=True, eq=False)
class AlgorithmRewards:
    """The rewards of one algorithm over all seeds, and what it cost."""

    algorithm: str
    settings: Settings
    rate: Floats = field(repr=False)  # (seeds, test users) mean reward of each test user
    logged_rate: Floats = field(repr=False)  # (seeds,) mean reward of the test users in the log
    training_seconds: float  # CPU, mean over seeds
    serving_seconds: float
    megabytes: float  # peak over seeds
    n_users: int = 0  # different test users over all seeds; 0 if no user is in two seeds
    support: Support | None = None  # how much of its choices the log supports; None: the method needs no support
    why: tuple[str, ...] = ()  # what the algorithm chose on the first seed, and why

    @property
    def has_interval(self) -> bool:
        return self.support is None or self.support.is_sufficient

    @property
    def relative_ctr(self) -> float:
        return float((np.nanmean(self.rate, axis=1) / self.logged_rate).mean())

    @property
    def se(self) -> float:
        """The standard error of `relative_ctr`: over users or over seeds, whichever is larger."""
        return larger_error(self.rate / self.logged_rate[:, None], self.n_users)

    def gain_over(self, other: AlgorithmRewards) -> tuple[float, float]:
        """Return the gain over `other` in percent and its standard error, paired by user if all users have a rate."""
        base = float(np.nanmean(other.rate))
        if not base > 0:
            raise InputError(
                f"{other.algorithm} had a mean reward of {base:g}, but a gain in percent needs one "
                "above 0; test more users or steps, or scale the rewards so that none is negative"
            )
        gain = 100 * (float(np.nanmean(self.rate)) / base - 1)
        if np.isfinite(self.rate).all() and np.isfinite(other.rate).all():
            return gain, larger_error(100 * (self.rate - other.rate) / base, self.n_users)
        own, others = (larger_error(100 * outcome.rate / base, self.n_users) for outcome in (self, other))
        return gain, float(np.hypot(own, others))

    def to_json(self, population: AlgorithmRewards) -> dict[str, Any]:
        gain, gain_se = self.gain_over(population)
        compared = self.has_interval and population.has_interval
        return {
            "algorithm": self.algorithm,
            "settings": dict(self.settings),
            "relative_ctr": self.relative_ctr,
            "se": self.se if self.has_interval else None,
            "vs_population_percent": gain,
            "vs_se": gain_se if compared else None,
            "training_seconds": self.training_seconds,
            "serving_seconds": self.serving_seconds,
            "support": None if self.support is None else self.support.to_json(),
            **({"why": list(self.why)} if self.why else {}),
        }


def larger_error(values: Floats, n_different: int = 0) -> float:
    """Return the standard error of the mean of `values` (seeds, users): over users or over seeds, the larger.

    A user tested in several seeds counts once: `n_different` is the number of different users, 0 if all differ.
    """
    n_seeds, n_users = values.shape
    n = n_different or n_users * n_seeds
    over_users = np.sqrt(np.nanmean(np.nanvar(values, axis=1, ddof=1)) / n) if n_users > 1 else np.nan
    over_seeds = np.nanmean(values, axis=1).std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else 0.0
    return float(max(over_users, over_seeds))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The settings of an evaluation and the rewards of every algorithm."""

    settings: dict[str, Any]
    outcomes: list[AlgorithmRewards]

    def to_json(self) -> dict[str, Any]:
        population = next(outcome for outcome in self.outcomes if outcome.algorithm == POPULATION)
        rows = [
            {**one.to_json(population), "megabytes": one.megabytes, "silent_users": int(np.isnan(one.rate).sum())}
            for one in self.outcomes
        ]
        return {"settings": self.settings, "results": rows}
