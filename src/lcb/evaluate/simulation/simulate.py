"""Simulates algorithms in a generated world, in several runs, and measures their expected regret.

Every run draws its own users; all algorithms of a run serve the same users, with the same contexts and rewards.  Random
numbers are seeded by the run and the name of the algorithm, so results depend neither on the number of workers nor on
the other algorithms.  Regret uses expected rewards, without noise.  Some algorithms need rewards in a declared range:
the world declares one, and the few rewards outside it are clipped for all algorithms and counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.algorithms import (
    ALGORITHMS,
    DEFAULTS,
    Settings,
    Task,
    check_settings,
    find_algorithms,
    tuned_settings,
)
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import SimulatedWorld
from lcb.progress import Progress, count_up, silent
from lcb.recommenders.recommender import Recommender
from lcb.runtime import parallel

_BLOCK = 50  # users drawn at a time
_MOST_POINTS = 1000  # on a curve
_SEEDS = 2**64  # seeds are below this; tuning uses larger ones (see tuning/tune_simulation.py)


@dataclass(frozen=True, eq=False)
class AlgorithmRegret:
    """The regret of one algorithm over all runs."""

    algorithm: str
    settings: Settings
    regret: Floats = field(repr=False)  # (runs, users)
    cpu_seconds: float  # of all runs, without drawing the users
    note: str | None = None  # a caveat about the numbers

    @property
    def regret_per_user(self) -> float:
        return float(self.regret.mean())

    @property
    def se(self) -> float:
        """Standard error of `regret_per_user` over runs; nan for a single run."""
        return _compute_error(self.regret)

    @property
    def last_quarter(self) -> Floats:
        """Regret of the last quarter of the users, (runs, users / 4)."""
        return self.regret[:, -max(1, self.regret.shape[1] // 4) :]

    def curve(self, at: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the mean regret of the first u users, for each u in `at`, and its standard error over runs."""
        means = self.regret.cumsum(axis=1)[:, np.asarray(at) - 1] / np.asarray(at)
        runs = len(means)
        error = means.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(at), np.nan)
        return means.mean(axis=0), error


@dataclass(frozen=True, eq=False)
class Simulation:
    """The settings of a simulation and the regret of every algorithm."""

    settings: dict[str, Any]
    results: list[AlgorithmRegret]

    def to_json(self) -> dict[str, Any]:
        """Return the document that the command line writes; `curve[i]` is the mean over `curve_users[i]` users."""
        at = list_curve_points(self.settings["users"])
        return {
            "settings": {**self.settings, "curve_users": at},
            "results": [
                {
                    "algorithm": result.algorithm,
                    "settings": dict(result.settings),
                    "note": result.note,
                    "regret_per_user": result.regret_per_user,
                    "se": _finite_or_none(result.se),
                    "regret_last_quarter": float(result.last_quarter.mean()),
                    "se_last_quarter": _finite_or_none(_compute_error(result.last_quarter)),
                    "cpu_seconds": result.cpu_seconds,
                    "curve": result.curve(at)[0].tolist(),
                }
                for result in self.results
            ],
        }


def simulate(
    world: SimulatedWorld | FixedArms,
    algorithms: Sequence[str] = DEFAULTS,
    *,
    settings: Mapping[str, Settings] | None = None,
    n_users: int = 1000,
    n_steps: int = 20,
    n_runs: int = 10,
    seed: int = 0,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Simulation:
    """Run every algorithm on the same users, `n_runs` times, in parallel processes.

    `settings` maps algorithms to settings; an algorithm that is missing has the tuned ones.
    """
    find_algorithms(algorithms)
    check_sizes(n_users, n_steps, n_runs, seed)
    chosen = {**tuned_settings(), **check_settings(settings or {})}
    contenders = tuple((name, chosen.get(name, {})) for name in algorithms)
    tasks = [SimulationRun(world, contenders, n_users, n_steps, seed, run) for run in range(n_runs)]
    outcomes = parallel.processes(play_run, tasks, n_workers, count_up(progress, "runs", n_runs))
    about = {
        **describe_settings(world, n_users, n_steps, n_runs, seed),
        "clipped_rewards": sum(clipped for _, _, clipped in outcomes),
    }
    results = [
        AlgorithmRegret(
            algorithm=name,
            settings={**ALGORITHMS[name].defaults, **own},
            regret=np.array([regret[i] for regret, _, _ in outcomes]),
            cpu_seconds=float(sum(cpu[i] for _, cpu, _ in outcomes)),
            note=ALGORITHMS[name].note_for(tasks[0].task(), own),
        )
        for i, (name, own) in enumerate(contenders)
    ]
    return Simulation(about, results)


def list_curve_points(n_users: int) -> list[int]:
    """Return the numbers of users at which a curve is given: all from 1 to `n_users`, or 1000 of them."""
    return sorted({round(u) for u in np.linspace(1, n_users, min(n_users, _MOST_POINTS))})


def check_sizes(n_users: int, n_steps: int, n_runs: int, seed: int) -> None:
    for name, value in (("n_users", n_users), ("n_steps", n_steps), ("n_runs", n_runs)):
        if value < 1:
            raise InputError(f"{name}={value}; it must be at least 1")
    if not 0 <= seed < _SEEDS:
        raise InputError(f"seed={seed}; it must be at least 0 and below 2^64")


def describe_settings(
    world: SimulatedWorld | FixedArms, n_users: int, n_steps: int, n_runs: int, seed: int
) -> dict[str, Any]:
    """Return the settings of a simulation for its JSON."""
    models = world.models
    sizes = {"users": n_users, "steps": n_steps, "arms": world.n_arms, "runs": n_runs, "seed": seed}
    classes = {"classes": models.n_classes, "features": models.n_features}
    noise = {"noise": float(np.sqrt(models.sigma2.mean())), "reward_range": list(world.reward_range)}
    return {**sizes, **classes, **noise}


@dataclass(frozen=True)
class SimulationRun:
    """One run of a simulation; contenders are algorithms with settings, and all serve the same users."""

    world: SimulatedWorld | FixedArms
    contenders: tuple[tuple[str, Settings], ...]
    n_users: int
    n_steps: int
    seed: int
    run: int

    def task(self) -> Task:
        models = self.world.models
        return Task(
            n_features=models.n_features,
            n_arms=self.world.n_arms,
            n_steps=self.n_steps,
            n_users=self.n_users,
            n_classes=models.n_classes,
            reward_range=self.world.reward_range,
            truth=models,
            fixed_arms=isinstance(self.world, FixedArms),
        )


def play_run(run: SimulationRun) -> tuple[Floats, Floats, int]:
    """Play one run; return regret (contenders, users), CPU seconds (contenders,) and the number of rewards clipped."""
    _warm_up(run)
    world_rng = np.random.default_rng((run.seed, run.run))
    n = len(run.contenders)
    seeds = [np.random.default_rng((run.seed, run.run, crc32(name.encode()))).spawn(2) for name, _ in run.contenders]
    recommenders = _build_recommenders(run, [own[0] for own in seeds])
    regret, cpu, clipped = np.empty((n, run.n_users)), np.zeros(n), 0
    for start in range(0, run.n_users, _BLOCK):
        names = range(start, min(start + _BLOCK, run.n_users))
        users = run.world.draw(len(names), run.n_steps, world_rng)
        rewards = users.rewards.clip(*run.world.reward_range)
        clipped += int((rewards != users.rewards).sum())
        for i, recommender in enumerate(recommenders):
            before = time.process_time()
            with _name_in_errors(run.contenders[i][0]):
                arms = recommender.serve(names, users.contexts, rewards, seeds[i][1])
            cpu[i] += time.process_time() - before
            regret[i, start : names.stop] = users.regret(arms)
    return regret, cpu, clipped


def _build_recommenders(run: SimulationRun, rngs: Sequence[np.random.Generator]) -> list[Recommender]:
    task, made = run.task(), []
    for (name, settings), rng in zip(run.contenders, rngs, strict=True):
        with _name_in_errors(name):
            made.append(ALGORITHMS[name].build_for(task, rng, settings))
    return made


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    """Put the name of the algorithm before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


_warm: set[str] = set()


def _warm_up(run: SimulationRun) -> None:
    """Compile (or load) the code of new algorithms before time is measured."""
    new = {name: settings for name, settings in run.contenders if name not in _warm}
    _warm.update(new)
    few = replace(run, contenders=tuple(new.items()), n_users=60)
    users = run.world.draw(few.n_users, min(run.n_steps, 3), np.random.default_rng(0))
    rewards = users.rewards.clip(*run.world.reward_range)
    for name, recommender in zip(new, _build_recommenders(few, np.random.default_rng(0).spawn(len(new))), strict=True):
        with _name_in_errors(name):
            recommender.serve(range(few.n_users), users.contexts, rewards, np.random.default_rng(0))


def _compute_error(regret: Floats) -> float:
    runs = len(regret)
    return float(regret.mean(axis=1).std(ddof=1) / np.sqrt(runs)) if runs > 1 else float("nan")


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
