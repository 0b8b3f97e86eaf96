"""Tunes settings in a simulated world: tries each algorithm's grid on users that no experiment uses.

The combination with the least mean regret is chosen; of equals, the one tried first (defaults come first, see
`grid_search`).  All combinations serve the same users with the same rewards and random numbers, so differences are
paired: a combination that is `behind` by less than two standard errors of the difference is not shown to be worse.  A
combination that an algorithm refuses is recorded with the reason and never chosen.

Tuning and `simulate` never share random numbers.  `simulate` seeds its generators with (seed, run) and (seed, run,
algorithm), where seed is below 2^64: four words of 32 bits, and 0 or 1 in the fifth for a spawned generator.  Tuning
has the number TUNING in the fifth word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Settings, find_algorithms
from lcb.evaluate.algorithms.algorithm import Value
from lcb.evaluate.simulation.simulate import SimulationRun, check_sizes, describe_settings, play_run
from lcb.evaluate.tuning.grid_search import Values, choose_trials, name_values
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import SimulatedWorld
from lcb.progress import Progress, count_up, silent
from lcb.runtime import parallel

TUNING = 0x74756E65  # "tune"
MOST = 60  # combinations of one algorithm
_TOGETHER = 6  # combinations tried in one process, which draws the users once for all of them


@dataclass(frozen=True, eq=False)
class Trial:
    """One combination of settings, and its regret in every run."""

    settings: Settings
    regret: Floats = field(repr=False)  # (runs,) per user
    refusal: str = ""  # the error, if the algorithm refuses the settings; `regret` is then empty

    @property
    def mean(self) -> float:
        return float(self.regret.mean()) if not self.refusal else inf

    def to_json(self, best: Trial) -> dict[str, Any]:
        if self.refusal:
            return {"settings": dict(self.settings), "refused": self.refusal}
        behind = self.regret - best.regret
        return {
            "settings": dict(self.settings),
            "regret_per_user": self.mean,
            "se": _compute_error(self.regret),
            "behind": float(behind.mean()),
            "se_behind": _compute_error(behind),
        }


@dataclass(frozen=True, eq=False)
class Tuning:
    """The combinations tried, and their regret."""

    settings: dict[str, Any]
    trials: dict[str, list[Trial]]  # by algorithm, in the order tried

    @property
    def best(self) -> dict[str, Trial]:
        """The trial with the least regret of every algorithm, except those that refused all settings."""
        able = {name: trials for name, trials in self.trials.items() if not all(trial.refusal for trial in trials)}
        return {name: min(trials, key=lambda trial: trial.mean) for name, trials in able.items()}

    @property
    def chosen(self) -> dict[str, Settings]:
        return {name: trial.settings for name, trial in self.best.items()}

    @property
    def at_ends(self) -> list[tuple[str, str, Value]]:
        """Chosen numbers at an end of their grid (other than 0): a better value may be outside the grid."""
        found: list[tuple[str, str, Value]] = []
        for name, settings in self.chosen.items():
            for setting, value in settings.items():
                numbers = [one for one in ALGORITHMS[name].grid[setting] if not isinstance(one, str)]
                if value in numbers and len(numbers) > 1 and value and value in (min(numbers), max(numbers)):
                    found.append((name, setting, value))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lcb tune` writes and `lcb simulate --settings` reads."""
        best = self.best
        return {
            "settings": self.settings,
            "chosen": {name: dict(settings) for name, settings in self.chosen.items()},
            "grid": {
                name: [trial.to_json(best.get(name, trial)) for trial in trials] for name, trials in self.trials.items()
            },
        }


def tune(
    world: SimulatedWorld | FixedArms,
    algorithms: Sequence[str],
    *,
    n_users: int = 500,
    n_steps: int = 20,
    n_runs: int = 4,
    seed: int = 0,
    most: int = MOST,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Tuning:
    """Try the settings of every algorithm in parallel; results do not depend on the number of workers."""
    find_algorithms(algorithms)
    check_sizes(n_users, n_steps, n_runs, seed)
    if most < 1:
        raise InputError(f"most={most}; try at least 1 combination")
    tried: dict[str, dict[Values, Trial]] = {name: {} for name in algorithms}
    first, number = SimulationRun(world, (), n_users, n_steps, build_tuning_seed(seed), 0), 0
    while parts := _plan_trials(tried, most):
        number += 1
        tasks = [
            replace(first, contenders=tuple((name, name_values(name, values)) for values in part), run=run)
            for name, part in parts
            for run in range(n_runs)
        ]
        report = count_up(progress, f"tuning, round {number}", len(tasks))
        outcomes = iter(parallel.processes(_try_settings, tasks, n_workers, report))
        for name, part in parts:
            by_run = [next(outcomes) for _ in range(n_runs)]
            for i, values in enumerate(part):
                tried[name][values] = _build_trial(name_values(name, values), [outcome[i] for outcome in by_run])
    tuning = Tuning(
        {**describe_settings(world, n_users, n_steps, n_runs, seed), "seeds": "of tuning alone", "most": most},
        {name: list(trials.values()) for name, trials in tried.items()},
    )
    if not tuning.chosen:
        raise InputError(f"no settings could be tried: {next(iter(tuning.trials.values()))[0].refusal}")
    return tuning


def build_tuning_seed(seed: int) -> int:
    """Return `seed` with TUNING in the fifth word of 32 bits."""
    return seed + (TUNING << 128)


def _plan_trials(tried: Mapping[str, Mapping[Values, Trial]], most: int) -> list[tuple[str, tuple[Values, ...]]]:
    """Return the combinations to try next, in parts of at most `_TOGETHER` of one algorithm."""
    parts = []
    for name, trials in tried.items():
        regret = {values: trial.mean for values, trial in trials.items()}
        wanted = choose_trials(ALGORITHMS[name].grid, regret, most)
        parts += [(name, wanted[i : i + _TOGETHER]) for i in range(0, len(wanted), _TOGETHER)]
    return [(name, tuple(part)) for name, part in parts]


def _try_settings(run: SimulationRun) -> list[float | str]:
    """Play one run; return, for each contender, its regret per user, or the error message if it refuses its settings.

    One refusal stops the whole run, so the contenders are then played one by one.
    """
    try:
        return list(play_run(run)[0].mean(axis=1).tolist())
    except InputError as error:
        if len(run.contenders) == 1:
            return [str(error)]
        return [_try_settings(replace(run, contenders=(one,)))[0] for one in run.contenders]


def _build_trial(settings: Settings, outcomes: Sequence[float | str]) -> Trial:
    refusals = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if refusals:
        return Trial(settings, np.empty(0), refusals[0])
    return Trial(settings, np.array(outcomes, float))


def _compute_error(values: Floats) -> float | None:
    """Return the standard error of the mean; None for a single run."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
