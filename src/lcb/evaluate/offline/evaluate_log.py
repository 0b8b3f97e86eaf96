"""Estimates from a log how well algorithms would have done that never ran on it.

Each seed splits the users anew: test users are drawn from those with enough events for the steps asked, the others are
trained on (those with enough events first).  Features are fitted on training users.  Every algorithm gets the same
training rows and meets the same test users, in the same order, with the same queues.  A user's gain is the difference
to Population LinUCB on the same user.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from lcb import parallel
from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate._memory import peak_megabytes, reset_peak
from lcb.evaluate.algorithms import ALGORITHMS, Settings, Task, check_settings, find_algorithms
from lcb.evaluate.offline.log_sources import LogSource, ServingSetup
from lcb.event_log import EventLog
from lcb.features import FeatureMap
from lcb.progress import Progress, silent
from lcb.recommenders.recommender import Recommender

POPULATION = "linucb-population"
_SPLIT, _TRAINING = 0x5B, 0x7A  # separate the random numbers of each purpose


@dataclass(frozen=True)
class Plan:
    """How a log is evaluated."""

    n_train_users: int
    n_test_users: int
    n_steps: int = 20
    n_classes: int = 30
    features: str = "one-hot"
    train_on: str = "all"  # or uniform:n, n pulls of each training user from all queues alike

    def __post_init__(self) -> None:
        for name in ("n_train_users", "n_test_users", "n_steps", "n_classes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}; it must be at least 1")
        _ = self.n_pulls

    @property
    def n_pulls(self) -> int | None:
        """Of each training user; None for whole histories."""
        if self.train_on == "all":
            return None
        kind, _, number = self.train_on.partition(":")
        if kind != "uniform" or not number.isdigit() or int(number) < 1:
            raise InputError(f"train_on={self.train_on!r}; it is all, or uniform:n for n uniform pulls per user")
        return int(number)


@dataclass(frozen=True)
class Split:
    """Who is trained on and who is tested."""

    train: Index = field(repr=False)
    test: Index = field(repr=False)


@dataclass(frozen=True, eq=False)
class AlgorithmRewards:
    """One algorithm over all seeds."""

    algorithm: str
    settings: Settings
    rate: Floats = field(repr=False)  # (seeds, test users) mean reward of each test user
    logged_rate: Floats = field(repr=False)  # (seeds,) in the data of the test users
    training_seconds: float  # CPU, mean over seeds
    serving_seconds: float
    megabytes: float  # peak over seeds
    n_users: int = 0  # different test users over all seeds; 0 when each seed has its own

    @property
    def relative_ctr(self) -> float:
        return float((np.nanmean(self.rate, axis=1) / self.logged_rate).mean())

    @property
    def se(self) -> float:
        """The standard error of `relative_ctr`: over users or over seeds, whichever is larger."""
        return larger_error(self.rate / self.logged_rate[:, None], self.n_users)

    def gain_over(self, other: AlgorithmRewards) -> tuple[float, float]:
        """Return the gain over `other` in percent, and its paired standard error (users or seeds, the larger)."""
        base = float(np.nanmean(other.rate))
        if not base > 0:
            raise InputError(
                f"{other.algorithm} got a mean reward of {base:g} from the test users, and a gain in percent needs one "
                "above 0; test more users or steps, or scale the rewards so that none is negative"
            )
        gain = 100 * (float(np.nanmean(self.rate)) / base - 1)
        if np.isfinite(self.rate).all() and np.isfinite(other.rate).all():
            return gain, larger_error(100 * (self.rate - other.rate) / base, self.n_users)
        own, others = (larger_error(100 * outcome.rate / base, self.n_users) for outcome in (self, other))
        return gain, float(np.hypot(own, others))


def larger_error(values: Floats, n_different: int = 0) -> float:
    """Return the standard error of the mean of (seeds, users): over users, or over seeds where that is larger.

    The same user in the tests of several seeds is one user: `n_different` of them are there, all when 0.
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
        rows = []
        for outcome in self.outcomes:
            gain, gain_se = outcome.gain_over(population)
            rows.append(
                {
                    "algorithm": outcome.algorithm,
                    "settings": dict(outcome.settings),
                    "relative_ctr": outcome.relative_ctr,
                    "se": outcome.se,
                    "vs_population_percent": gain,
                    "vs_se": gain_se,
                    "training_seconds": outcome.training_seconds,
                    "serving_seconds": outcome.serving_seconds,
                    "megabytes": outcome.megabytes,
                    "silent_users": int(np.isnan(outcome.rate).sum()),
                }
            )
        return {"settings": self.settings, "results": rows}


def evaluate_log(
    source: LogSource,
    algorithms: Sequence[str],
    plan: Plan,
    *,
    settings: Mapping[int, Mapping[str, Settings]] | None = None,
    n_seeds: int = 3,
    seed: int = 0,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Run every algorithm, and Population LinUCB, on the same users of a log, once per seed.

    `settings` are by seed and algorithm, defaults where not given.
    """
    chosen = {one: check_settings(own) for one, own in (settings or {}).items()}
    names = [*algorithms, *([] if POPULATION in algorithms else [POPULATION])]
    find_algorithms(names)
    if n_seeds < 1 or seed < 0:
        raise InputError(f"n_seeds={n_seeds}, seed={seed}; wanted at least 1 and 0 or more")
    splits = [split_users(source, plan, seed + i) for i in range(n_seeds)]
    runs = [
        EvaluationRun(source, plan, splits[i], seed + i, name, chosen.get(seed + i, {}).get(name, {}))
        for i in range(n_seeds)
        for name in names
    ]
    logged = np.array([source.logged_rate(split.test, plan.n_steps) for split in splits])
    if not (logged > 0).all():
        raise InputError("the test users' mean reward in the data is not above 0; relative CTR needs one that is")
    progress("algorithms and seeds", 0, len(runs))
    done = parallel.processes(run_on_split, runs, n_workers, lambda n: progress("algorithms and seeds", n, len(runs)))
    n_different = len(np.unique(np.concatenate([split.test for split in splits])))
    outcomes = []
    for j, name in enumerate(names):
        own = done[j :: len(names)]
        outcomes.append(
            AlgorithmRewards(
                algorithm=name,
                settings={**ALGORITHMS[name].defaults, **chosen.get(seed, {}).get(name, {})},
                rate=np.array([result.rate for result in own]),
                logged_rate=logged,
                training_seconds=float(np.mean([result.training_seconds for result in own])),
                serving_seconds=float(np.mean([result.serving_seconds for result in own])),
                megabytes=max(result.megabytes for result in own),
                n_users=n_different,
            )
        )
    about = {
        "train_users": len(splits[0].train), "test_users": len(splits[0].test), "steps": plan.n_steps,
        "classes": plan.n_classes, "features": plan.features, "train_on": plan.train_on, "seeds": n_seeds,
        "seed": seed, "tuned": settings is not None, "method": source.method, "arms": source.n_arms,
        "logged_rate": float(logged.mean()),
    }  # fmt: skip
    return Evaluation(about, outcomes)


def split_users(source: LogSource, plan: Plan, seed: int) -> Split:
    """Draw test users from those with enough events; the rest train, those with enough events first."""
    rng = np.random.default_rng((seed, _SPLIT))
    n_events = source.n_events
    able = rng.permutation(np.flatnonzero(n_events >= plan.n_steps))
    others = rng.permutation(np.flatnonzero((n_events > 0) & (n_events < plan.n_steps)))
    if len(able) < plan.n_test_users:
        raise InputError(
            f"{plan.n_test_users:,} test users asked, but only {len(able):,} of {len(n_events):,} users have the "
            f"{plan.n_steps} labelled events a test takes; ask for fewer test users or fewer steps"
        )
    test, rest = able[: plan.n_test_users], np.concatenate([able[plan.n_test_users :], others])
    if len(rest) < plan.n_train_users:
        raise InputError(
            f"{plan.n_train_users:,} training users asked, but {len(rest):,} users are left beside the "
            f"{plan.n_test_users:,} tested; ask for fewer"
        )
    return Split(np.sort(rest[: plan.n_train_users]), test)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What all algorithms of a seed are trained on."""

    features: FeatureMap
    x: Floats  # (A, d)
    history: EventLog
    task: Task


def prepare_training(source: LogSource, plan: Plan, split: Split, seed: int) -> TrainingData:
    features, x = source.features(plan.features, split.train)
    history = source.history(split.train, x, features.names, plan.n_pulls, np.random.default_rng((seed, _TRAINING)))
    task = Task(
        n_features=features.n_features,
        n_arms=source.n_arms,
        n_steps=plan.n_steps,
        n_users=len(split.test),
        n_classes=plan.n_classes,
        reward_range=source.reward_range,
        history=history,
        two_valued=history.two_valued,
    )
    return TrainingData(features, x, history, task)


@dataclass(frozen=True, eq=False)
class EvaluationRun:
    """One algorithm with its settings, to be trained and tested on one split."""

    source: LogSource
    plan: Plan
    split: Split
    seed: int
    algorithm: str
    settings: Settings


@dataclass(frozen=True, eq=False)
class RunResult:
    """The mean rewards of one run and what it cost."""

    rate: Floats
    training_seconds: float
    serving_seconds: float
    megabytes: float


def run_on_split(run: EvaluationRun) -> RunResult:
    """Train and test one algorithm on one split; the process may have run others before."""
    reset_peak()
    before = peak_megabytes()
    prepared = prepare_training(run.source, run.plan, run.split, run.seed)
    own, serving = np.random.default_rng((run.seed, crc32(run.algorithm.encode()))).spawn(2)
    began = time.process_time()
    recommender: Recommender = ALGORITHMS[run.algorithm].build_for(prepared.task, own, run.settings)
    trained = time.process_time()
    test = ServingSetup(prepared.x, run.plan.n_steps, prepared.history, run.seed, serving)
    rate = run.source.rates(recommender, run.split.test, test)
    served = time.process_time()
    return RunResult(rate, trained - began, served - trained, peak_megabytes() - before)
