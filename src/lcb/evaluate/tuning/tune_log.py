"""Tunes settings for a log on its training users: trains on some of them and tests on the others.

Every algorithm gets the same number of combinations of its own grid, the same users and the same queues.  The
combination with the highest mean reward is chosen; of equals, the one tried first.  Test users are never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Settings, find_algorithms
from lcb.evaluate.offline.evaluate_log import EvaluationRun, complete_plan, run_on_split
from lcb.evaluate.offline.log_sources import LogSource
from lcb.evaluate.offline.split import Plan, Split, split_users
from lcb.evaluate.tuning.grid_search import Values, choose_trials, name_values
from lcb.progress import Progress, count_up, silent
from lcb.runtime import parallel
from lcb.words import format_count

MOST = 12  # combinations of one algorithm
_HELD_OUT, _MOST_HELD_OUT = 4, 1500  # one in 4 training users is held out, at most 1500
_INNER = 1 << 40  # added to the seed, so that tuning shares no random numbers with the evaluation


def tune_on_training_users(
    source: LogSource,
    algorithms: Sequence[str],
    plan: Plan,
    *,
    seed: int = 0,
    most: int = MOST,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> dict[str, Settings]:
    """Return, by algorithm, the settings with the highest mean reward on held-out training users of `seed`."""
    find_algorithms(algorithms)
    inner = split_training_users(source, split_users(source, plan, seed), plan, seed)
    inner_plan = replace(plan, n_train_users=len(inner.train), n_test_users=len(inner.test))
    inner_plan = complete_plan(source, inner_plan, algorithms, inner, seed + _INNER, progress)
    ready = source.prepare(inner.test, plan.n_steps, seed + _INNER)
    loss: dict[str, dict[Values, float]] = {name: {} for name in algorithms}
    while wanted := [
        (name, values)
        for name in algorithms
        if ALGORITHMS[name].grid
        for values in choose_trials(ALGORITHMS[name].grid, loss[name], most)
    ]:
        runs = [
            EvaluationRun(ready, inner_plan, inner, seed + _INNER, name, name_values(name, values))
            for name, values in wanted
        ]
        done = parallel.processes(run_on_split, runs, n_workers, count_up(progress, "settings tried", len(runs)))
        for (name, values), one in zip(wanted, done, strict=True):
            loss[name][values] = -float(np.nanmean(one.rate))
    return {
        name: name_values(name, min(tried, key=lambda one: tried[one])) if tried else {} for name, tried in loss.items()
    }


def tune_seeds(
    source: LogSource, algorithms: Sequence[str], plan: Plan, seeds: Sequence[int], progress: Progress = silent
) -> dict[int, dict[str, Settings]]:
    """Tune for every seed, each with its own training users; return settings by seed and algorithm."""
    return {seed: tune_on_training_users(source, algorithms, plan, seed=seed, progress=progress) for seed in seeds}


def split_training_users(source: LogSource, split: Split, plan: Plan, seed: int) -> Split:
    """Split the training users: test on some of those with enough events, train on the others."""
    rng = np.random.default_rng((seed, _INNER))
    able = rng.permutation(split.train[source.n_events[split.train] >= plan.n_steps])
    n_held_out = min(len(able) // _HELD_OUT, _MOST_HELD_OUT)
    if n_held_out < 1:
        few = f"{format_count(len(able), 'training user', 'have')} {format_count(plan.n_steps, 'event')}"
        raise InputError(f"{few}: too few to tune on; leave tuning out")
    return Split(np.setdiff1d(split.train, able[:n_held_out]), able[:n_held_out])
