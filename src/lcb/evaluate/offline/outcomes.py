"""Mean rewards of algorithms on the test users of a log, their standard errors, their gains, and the answer.

The standard error is the one over users (a user in the tests of two seeds counts once) or the one over seeds, whichever
is larger.  Rewards that the filled queue drew are no observations: where only a share of the rewards compared are
labels, the error is divided by the square root of that share.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from lcb.arrays import Floats
from lcb.displays import Displayed, DisplayTable
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.offline.label_use import LabelUse

POPULATION = "linucb-population"
ESTIMATORS = ("ips", "snips", "dr")  # methods that weigh logged events by their propensities
_AT_LOGGED_MOMENTS = (
    "what an algorithm would learn from its own choices when it serves is not in this estimate, and may give another "
    "gain; the default method, filled, lets it serve, on logs that have labels of most arms for most users"
)
_LEAST_SHARE = 0.01  # of labels among the rewards, so that an error stays finite


class Diagnosis(Protocol):
    """What the log has for an algorithm's choices: `Support`, `LabelUse`, or of another method."""

    @property
    def shortfall(self) -> str | None: ...

    def describe(self, algorithm: str) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


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
    diagnostics: Diagnosis | None = None  # what the log has for its choices
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
        """Return the gain over `other` in percent and its standard error, paired by user if all users have a rate.

        Both are nan if the mean reward of `other` is not above 0.
        """
        base = float(np.nanmean(other.rate))
        if not base > 0:
            return np.nan, np.nan
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
            "se": _to_json(self.se),
            "vs_population_percent": _to_json(gain),
            "vs_se": _to_json(gain_se),
            "training_seconds": self.training_seconds,
            "serving_seconds": self.serving_seconds,
            "diagnostics": found and {**found.to_json(), "sentence": found.describe(self.algorithm)},
            **({"why": list(self.why)} if self.why else {}),
        }


def _to_json(value: float) -> float | None:
    return value if np.isfinite(value) else None


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

    def describe(self, *, at_logged_moments: bool = False, are_clicks: bool = True) -> str:
        """Return the answer as a sentence: of serving, or of single choices at the logged moments."""
        rises, others = self.percent >= 0, "one model for all users"
        ends = (self.low, self.high) if rises else (-self.high, -self.low)
        percent = f"{abs(self.percent):.1f} % (95 %: {ends[0]:.1f} to {ends[1]:.1f})"
        if at_logged_moments:
            return (
                f"at the logged moments, after learning from the logged choices, {self.algorithm} would have chosen "
                f"what is clicked {percent} {'more' if rises else 'less'} often than what {others} chooses"
                if are_clicks
                else f"at the logged moments, after learning from the logged choices, what {self.algorithm} would have "
                f"chosen gives {percent} {'more' if rises else 'less'} reward than what {others} chooses"
            )
        more = (
            ("more clicks" if rises else "fewer clicks") if are_clicks else ("more reward" if rises else "less reward")
        )
        return f"{self.algorithm} would have had {percent} {more} than {others}"


@dataclass(frozen=True, eq=False)
class Evaluation(Displayed):
    """The settings of an evaluation and the rewards of every algorithm."""

    settings: dict[str, Any]
    outcomes: list[AlgorithmRewards]
    shortfall: str | None = None  # why the log gives no answer, whatever the algorithm

    @property
    def population(self) -> AlgorithmRewards:
        return next(outcome for outcome in self.outcomes if outcome.algorithm == POPULATION)

    @property
    def best(self) -> AlgorithmRewards | None:
        """The algorithm with the highest gain; None if there is only Population LinUCB."""
        others = [outcome for outcome in self.outcomes if outcome.algorithm != POPULATION]
        return max(others, key=lambda one: float(np.nanmean(one.rate)), default=None)

    @property
    def answer(self) -> Answer | None:
        """The gain of the best algorithm; None if the log cannot tell."""
        best = self.best
        if best is None or self.why_no_answer is not None:
            return None
        percent, error = best.gain_over(self.population)
        half = max(self._count_errors() * error, self._least_half_width(best))
        return Answer(best.algorithm, percent, percent - half, percent + half)

    @property
    def why_no_answer(self) -> str | None:
        best = self.best
        if best is None:
            return f"only {POPULATION} was evaluated; name another algorithm to compare it with"
        if self.shortfall is not None:
            return self.shortfall
        short = next((one for one in (best, self.population) if one.shortfall), None)
        if short is not None:
            return f"{short.algorithm}: {short.shortfall}"
        base = float(np.nanmean(self.population.rate))
        if not base > 0:
            return (
                f"{POPULATION} had a mean reward of {base:g}, and a gain in percent needs one above 0; test more users"
            )
        return "a single test user gives no interval; test more users" if self._n_users < 2 else None

    @property
    def _n_users(self) -> int:
        """Different test users."""
        return self.population.n_users or self.population.rate.size

    def _count_errors(self) -> float:
        """Return the standard errors to either side of a 95 % interval, by Student's t: 1.96 for many users."""
        from scipy.special import stdtrit

        return float(stdtrit(self._n_users - 1, 0.975))

    def _least_half_width(self, best: AlgorithmRewards) -> float:
        """Return the half width in percent that three users make.

        By the rule of three: where something was seen of none of n users, it may be so of 3 in n.  Such a user differs
        as much as those seen to differ do, or by the whole range of rewards if none did.
        """
        low, high = self.settings["reward_range"]
        apart = best.rate - self.population.rate
        apart = apart[np.isfinite(apart) & (apart != 0)]
        size = float(np.sqrt(np.mean(apart**2))) if len(apart) else high - low
        return float(100 * 3 / self._n_users * size / np.nanmean(self.population.rate))

    @property
    def caveat(self) -> str | None:
        """What the answer does not say, as a sentence; None if there is nothing to add."""
        found: str | None = self.settings.get("caveat")
        return _AT_LOGGED_MOMENTS if self._at_logged_moments else found

    @property
    def _at_logged_moments(self) -> bool:
        return self.settings.get("method") in ESTIMATORS

    def describe(self) -> str:
        """Return the answer with its caveat, or why there is none, as a sentence."""
        answer, caveat = self.answer, self.caveat
        if answer is None:
            return f"no answer: {self.why_no_answer}"
        are_clicks = list(self.settings["reward_range"]) == [0, 1]
        told = answer.describe(at_logged_moments=self._at_logged_moments, are_clicks=are_clicks)
        return told if caveat is None else f"{told}; {caveat}"

    def chart(self, title: str | None = None) -> Any:
        """Draw the gain of every algorithm over one model for all users, in percent (extra `plots`)."""
        import lcb

        gains = {one.algorithm: one.gain_over(self.population) for one in self.outcomes if one is not self.population}
        rows = [
            (f"{name}: ± {error:.1f}" if np.isfinite(error) else name, gain)
            for name, (gain, error) in gains.items()
            if np.isfinite(gain)
        ]
        return lcb.charts.bars(rows, "reward above one model for all users, %", title, reference=0.0)

    def _table(self) -> DisplayTable:
        rows = [one.to_json(self.population) for one in self.outcomes]
        names = ("relative_ctr", "se", "vs_population_percent", "vs_se", "training_seconds", "serving_seconds")
        columns = {name: [row[name] for row in rows] for name in names}
        return DisplayTable(self.describe(), "algorithm", [one.algorithm for one in self.outcomes], columns)

    def to_json(self) -> dict[str, Any]:
        rows = [
            {**one.to_json(self.population), "megabytes": one.megabytes, "silent_users": int(np.isnan(one.rate).sum())}
            for one in self.outcomes
        ]
        answer = self.answer
        found = {"answer": asdict(answer)} if answer else {"answer": None, "why": self.why_no_answer}
        caveat = {} if self.caveat is None else {"caveat": self.caveat}
        return {**found, **caveat, "settings": self.settings, "results": rows}
