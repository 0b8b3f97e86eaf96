"""Mean rewards of algorithms on the test users of a log, their standard errors, their gains, and the answer.

The standard error is the one over users (a user in the tests of two seeds counts once) or the one over seeds, whichever
is larger.  Rewards that the filled queue drew are no observations: where only a share of the rewards compared are
labels, the error is divided by the square root of that share.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.offline.label_use import LabelUse
from lcb.evaluate.offline.support import Support

POPULATION = "linucb-population"
_Z = 1.96  # standard errors to either side, for 95 %
_LEAST_SHARE = 0.01  # of labels among the rewards, so that an error stays finite


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
    diagnostics: Support | LabelUse | None = None  # what the log has for its choices
    why: tuple[str, ...] = ()  # what the algorithm chose on the first seed, and why

    @property
    def shortfall(self) -> str | None:
        """Why the log has too little for its choices; None if it has enough."""
        return None if self.diagnostics is None else self.diagnostics.shortfall

    @property
    def label_share(self) -> float:
        """The share of its rewards that come from the log; the others were drawn by the filled queue."""
        used = self.diagnostics
        return 1 - used.withheld if isinstance(used, LabelUse) and used.method == "filled" else 1.0

    @property
    def relative_ctr(self) -> float:
        return float((np.nanmean(self.rate, axis=1) / self.logged_rate).mean())

    @property
    def se(self) -> float:
        """The standard error of `relative_ctr`."""
        error = larger_error(self.rate / self.logged_rate[:, None], self.n_users)
        return float(error / np.sqrt(max(self.label_share, _LEAST_SHARE)))

    def gain_over(self, other: AlgorithmRewards) -> tuple[float, float]:
        """Return the gain over `other` in percent and its standard error, paired by user if all users have a rate."""
        base = float(np.nanmean(other.rate))
        if not base > 0:
            raise InputError(
                f"{other.algorithm} had a mean reward of {base:g}, but a gain in percent needs one "
                "above 0; test more users or steps, or scale the rewards so that none is negative"
            )
        ratio = float(np.nanmean(self.rate)) / base
        gain, share = 100 * (ratio - 1), max((self.label_share + other.label_share) / 2, _LEAST_SHARE)
        if np.isfinite(self.rate).all() and np.isfinite(other.rate).all():
            error = larger_error(100 * (self.rate - ratio * other.rate) / base, self.n_users)
        else:
            own, others = (larger_error(100 * outcome.rate / base, self.n_users) for outcome in (self, other))
            error = float(np.hypot(own, ratio * others))
        return gain, float(error / np.sqrt(share))

    def to_json(self, population: AlgorithmRewards) -> dict[str, Any]:
        gain, gain_se = self.gain_over(population)
        found = self.diagnostics
        return {
            "algorithm": self.algorithm,
            "settings": dict(self.settings),
            "relative_ctr": self.relative_ctr,
            "se": self.se,
            "vs_population_percent": gain,
            "vs_se": gain_se,
            "training_seconds": self.training_seconds,
            "serving_seconds": self.serving_seconds,
            "diagnostics": found and {**found.to_json(), "sentence": found.describe(self.algorithm)},
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


@dataclass(frozen=True)
class Answer:
    """The gain in percent of the best algorithm over Population LinUCB, with its 95 % interval."""

    algorithm: str
    percent: float
    low: float
    high: float

    def describe(self) -> str:
        """Return the answer as a sentence."""
        more, ends = ("more", (self.low, self.high)) if self.percent >= 0 else ("fewer", (-self.high, -self.low))
        return (
            f"{self.algorithm} would have had {abs(self.percent):.1f} % (95 %: {ends[0]:.1f} to {ends[1]:.1f}) {more} "
            "clicks than one model for all users"
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The settings of an evaluation and the rewards of every algorithm."""

    settings: dict[str, Any]
    outcomes: list[AlgorithmRewards]

    @property
    def population(self) -> AlgorithmRewards:
        return next(outcome for outcome in self.outcomes if outcome.algorithm == POPULATION)

    @property
    def best(self) -> AlgorithmRewards | None:
        """The algorithm with the highest gain; None if there is only Population LinUCB."""
        others = [outcome for outcome in self.outcomes if outcome.algorithm != POPULATION]
        return max(others, key=lambda one: one.gain_over(self.population)[0], default=None)

    @property
    def answer(self) -> Answer | None:
        """The gain of the best algorithm; None if the log cannot tell."""
        best = self.best
        if best is None or best.shortfall or self.population.shortfall:
            return None
        percent, error = best.gain_over(self.population)
        half = max(_Z * error, self._least_half_width())
        return Answer(best.algorithm, percent, percent - half, percent + half)

    @property
    def why_no_answer(self) -> str | None:
        best = self.best
        if best is None:
            return f"only {POPULATION} was evaluated; name another algorithm to compare it with"
        short = next((one for one in (best, self.population) if one.shortfall), None)
        return None if short is None else f"{short.algorithm}: {short.shortfall}"

    def _least_half_width(self) -> float:
        """Return the half width in percent where two algorithms never differed: by the rule of three, no more than 3 of
        all steps would differ."""
        low, high = self.settings["reward_range"]
        n_steps = self.population.rate.shape[1] * self.settings["steps"]
        return float(100 * 3 / n_steps * (high - low) / np.nanmean(self.population.rate))

    def to_json(self) -> dict[str, Any]:
        rows = [
            {**one.to_json(self.population), "megabytes": one.megabytes, "silent_users": int(np.isnan(one.rate).sum())}
            for one in self.outcomes
        ]
        answer = self.answer
        found = {"answer": asdict(answer)} if answer else {"answer": None, "why": self.why_no_answer}
        return {**found, "settings": self.settings, "results": rows}
