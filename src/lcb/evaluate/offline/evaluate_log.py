"""Offline evaluation: estimates from a log the rewards that algorithms would have had.

Each seed splits the users anew into training and test users (see `split`); features are fitted on training users.
Every algorithm gets the same training rows and serves the same test users, in the same order, with the same queues.
Gains are differences to Population LinUCB (one model for all users) on the same users.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from lcb.arrays import Floats
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate._memory import peak_megabytes, reset_peak
from lcb.evaluate.algorithms import ALGORITHMS, Settings, Task, check_settings, find_algorithms
from lcb.evaluate.offline.label_use import LabelUse, combine_use
from lcb.evaluate.offline.log_sources import Diagnostics, LogSource, ServingSetup
from lcb.evaluate.offline.outcomes import POPULATION, AlgorithmRewards, Evaluation
from lcb.evaluate.offline.split import Plan, Split, split_users
from lcb.evaluate.offline.support import Support, combine_support
from lcb.event_log import EventLog
from lcb.features import FeatureMap, is_learned
from lcb.learners import fit
from lcb.progress import Progress, count_up, silent
from lcb.recommenders.recommender import Recommender
from lcb.runtime import parallel

_TRAINING = 0x7A  # part of the seed of training rows, so that no other random numbers are the same
_CLASSES = 0x7B  # the same for the number of classes
_COUNTED_USERS = 5_000  # whose rows are read to choose the number of classes


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

    `settings` maps a seed, then an algorithm, to settings; what is missing has its default.
    """
    if is_learned(plan.features):
        raise InputError(
            f"features {plan.features} are learned for items, and arms are categories; give --arms items as well, or "
            "other features"
        )
    chosen = {one: check_settings(own) for one, own in (settings or {}).items()}
    names = [*algorithms, *([] if POPULATION in algorithms else [POPULATION])]
    find_algorithms(names)
    if n_seeds < 1 or seed < 0:
        raise InputError(f"n_seeds={n_seeds}, seed={seed}; n_seeds must be at least 1, seed at least 0")
    splits = [split_users(source, plan, seed + i) for i in range(n_seeds)]
    plans = [complete_plan(source, plan, names, splits[i], seed + i, progress) for i in range(n_seeds)]
    ready = [source.prepare(splits[i].test, plan.n_steps, seed + i) for i in range(n_seeds)]
    runs = [
        EvaluationRun(ready[i], plans[i], splits[i], seed + i, name, chosen.get(seed + i, {}).get(name, {}))
        for i in range(n_seeds)
        for name in names
    ]
    logged = np.array([source.logged_rate(split.test, plan.n_steps) for split in splits])
    if not (logged > 0).all():
        raise InputError(
            "the log's mean reward of the test users is not above 0, and relative CTR divides by it; scale the rewards"
        )
    done = parallel.processes(run_on_split, runs, n_workers, count_up(progress, "algorithms and seeds", len(runs)))
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
                diagnostics=_combine([result.diagnostics for result in own if result.diagnostics is not None]),
                why=own[0].why,
            )
        )
    about = {
        "train_users": len(splits[0].train),
        "test_users": len(splits[0].test),
        "steps": plan.n_steps,
        "classes": plans[0].n_classes,
        "classes_by_seed": [own.n_classes for own in plans],
        "features": plans[0].features,
        "features_by_seed": [own.features for own in plans],
        "why_features": plans[0].why_features,
        "train_on": plan.train_on,
        "seeds": n_seeds,
        "seed": seed,
        "tuned": settings is not None,
        "method": source.method,
        "arms": source.n_arms,
        "arm_kind": source.arm_kind,
        "logged_rate": float(logged.mean()),
        "reward_range": list(source.reward_range),
    }
    return Evaluation(about, outcomes)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features and training rows of one seed, the same for all algorithms."""

    features: FeatureMap
    x: Floats  # (A, d)
    history: EventLog
    task: Task


def complete_plan(
    source: LogSource, plan: Plan, algorithms: Sequence[str], split: Split, seed: int, progress: Progress = silent
) -> Plan:
    """Return the plan with features and a number of classes: as given, or as `lcb learn` chooses on training users."""
    if plan.features is None:
        chosen, why = source.choose_features(split.train)
        plan = replace(plan, features=chosen, why_features=why)
    if plan.n_classes is not None:
        return plan
    if not any(algorithm.uses_classes for algorithm in find_algorithms(algorithms)):
        return replace(plan, n_classes=1)
    task, rng = (
        prepare_training(source, replace(plan, n_classes=1), split, seed).task,
        np.random.default_rng((seed, _CLASSES)),
    )
    counted = None
    if task.read_rows is not None and not task.two_valued:
        counted = task.read_rows(rng.permutation(len(split.train))[:_COUNTED_USERS])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = fit(task.history, rng=rng, count_on=counted, progress=progress)
    return replace(plan, n_classes=found.models.n_classes)


def _combine(seeds: Sequence[Diagnostics]) -> Diagnostics | None:
    """Combine the diagnostics of one algorithm over seeds."""
    uses = [one for one in seeds if isinstance(one, LabelUse)]
    return combine_use(uses) if uses else combine_support([one for one in seeds if isinstance(one, Support)])


def prepare_training(source: LogSource, plan: Plan, split: Split, seed: int) -> TrainingData:
    assert plan.n_classes is not None
    assert plan.features is not None
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
        read_rows=None if plan.n_pulls else lambda drawn: source.rows(split.train[drawn], x, features.names),
        able=source.n_events[split.train] >= plan.n_steps,
        fixes_classes=plan.fixes_classes,
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
    diagnostics: Diagnostics | None = None
    why: tuple[str, ...] = ()


def run_on_split(run: EvaluationRun) -> RunResult:
    """Train and test one algorithm on one split, as it is: whether its learning converged shows in its rewards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _train_and_test(run)


def _train_and_test(run: EvaluationRun) -> RunResult:
    reset_peak()  # the process may have run other algorithms before
    before = peak_megabytes()
    prepared = prepare_training(run.source, run.plan, run.split, run.seed)
    own, serving = np.random.default_rng((run.seed, crc32(run.algorithm.encode()))).spawn(2)
    began = time.process_time()
    recommender: Recommender = ALGORITHMS[run.algorithm].build_for(prepared.task, own, run.settings)
    trained = time.process_time()
    test = ServingSetup(prepared.x, run.plan.n_steps, prepared.history, run.seed, serving)
    rate, diagnostics = run.source.rates(recommender, run.split.test, test)
    served = time.process_time()
    why = getattr(recommender, "why", ())  # of lcb-auto
    return RunResult(rate, trained - began, served - trained, peak_megabytes() - before, diagnostics, why)
