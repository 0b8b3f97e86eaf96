"""Many runs of many algorithms in a generated world, and their expected regret.

Every run draws its own users; all algorithms of a run meet the same users, steps and rewards.  A run's numbers come
from its own seed alone, so they are the same whatever the number of workers.  Regret uses means, not noisy rewards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lcb import parallel
from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, algorithms_named
from lcb.evaluate.world import World
from lcb.events import Floats
from lcb.progress import Progress, silent

_BLOCK = 50  # users drawn at a time
_MOST_POINTS = 1000  # on a curve


@dataclass(frozen=True, eq=False)
class Result:
    """One algorithm over all runs."""

    algorithm: str
    regret: Floats = field(repr=False)  # (runs, users)
    cpu_seconds: float  # of all runs, without drawing the users

    @property
    def regret_per_user(self) -> float:
        return float(self.regret.mean())

    @property
    def se(self) -> float:
        """Standard error of `regret_per_user` over runs; nan for a single run."""
        return _error_over_runs(self.regret)

    @property
    def last_quarter(self) -> Floats:
        """(runs, users / 4) the regret of the users who came last"""
        return self.regret[:, -max(1, self.regret.shape[1] // 4) :]

    def curve(self, at: Sequence[int]) -> tuple[Floats, Floats]:
        """Averaged per-user regret of the first u users, for each u of `at`: mean and standard error over runs."""
        means = self.regret.cumsum(axis=1)[:, np.asarray(at) - 1] / np.asarray(at)
        runs = len(means)
        error = means.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(at), np.nan)
        return means.mean(axis=0), error


@dataclass(frozen=True, eq=False)
class Simulation:
    """What was run and what came out."""

    settings: dict[str, Any]
    results: list[Result]

    def to_json(self) -> dict[str, Any]:
        """As the command line writes it; `curve[i]` is the averaged regret of the first `curve_users[i]` users."""
        at = curve_points(self.settings["users"])
        return {
            "settings": {**self.settings, "curve_users": at},
            "results": [
                {
                    "algorithm": result.algorithm,
                    "regret_per_user": result.regret_per_user,
                    "se": _number(result.se),
                    "regret_last_quarter": float(result.last_quarter.mean()),
                    "se_last_quarter": _number(_error_over_runs(result.last_quarter)),
                    "cpu_seconds": result.cpu_seconds,
                    "curve": result.curve(at)[0].tolist(),
                }
                for result in self.results
            ],
        }


def simulate(
    world: World,
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    *,
    n_users: int = 1000,
    n_steps: int = 20,
    n_runs: int = 10,
    seed: int = 0,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Simulation:
    """Run every algorithm on the same users, `n_runs` times over, spread over the cores."""
    algorithms_named(algorithms)
    for name, value in (("n_users", n_users), ("n_steps", n_steps), ("n_runs", n_runs)):
        if value < 1:
            raise InputError(f"{name}={value}; it must be at least 1")
    if seed < 0:
        raise InputError(f"seed={seed}; it must be 0 or more")
    tasks = [_Run(world, tuple(algorithms), n_users, n_steps, seed, run) for run in range(n_runs)]
    progress("runs", 0, n_runs)
    outcomes = parallel.processes(_run, tasks, n_workers, lambda done: progress("runs", done, n_runs))
    settings = {
        "users": n_users, "steps": n_steps, "arms": world.n_arms, "runs": n_runs, "seed": seed,
        "classes": world.models.n_classes, "features": world.models.n_features,
        "noise": float(np.sqrt(world.models.sigma2.mean())),
    }  # fmt: skip
    results = [
        Result(name, np.array([regret[i] for regret, _ in outcomes]), float(sum(cpu[i] for _, cpu in outcomes)))
        for i, name in enumerate(algorithms)
    ]
    return Simulation(settings, results)


def curve_points(n_users: int) -> list[int]:
    """The numbers of users at which a curve is given: every one, or 1000 of them."""
    return sorted({round(u) for u in np.linspace(1, n_users, min(n_users, _MOST_POINTS))})


@dataclass(frozen=True)
class _Run:
    world: World
    algorithms: tuple[str, ...]
    n_users: int
    n_steps: int
    seed: int
    run: int


def _run(task: _Run) -> tuple[Floats, Floats]:
    """One run: regret (algorithms, users) and CPU seconds (algorithms,)."""
    _warm_up(task)
    world_rng, *seeds = (
        np.random.default_rng(seed)
        for seed in np.random.SeedSequence((task.seed, task.run)).spawn(1 + 2 * len(task.algorithms))
    )
    recommenders = [ALGORITHMS[name].build(task.world, seeds[2 * i]) for i, name in enumerate(task.algorithms)]
    regret = np.empty((len(recommenders), task.n_users))
    cpu = np.zeros(len(recommenders))
    for start in range(0, task.n_users, _BLOCK):
        names = range(start, min(start + _BLOCK, task.n_users))
        users = task.world.draw(len(names), task.n_steps, world_rng)
        for i, recommender in enumerate(recommenders):
            before = time.process_time()
            arms = recommender.serve(names, users.contexts, users.rewards, seeds[2 * i + 1])
            cpu[i] += time.process_time() - before
            regret[i, start : names.stop] = users.regret(arms)
    return regret, cpu


_warm: set[tuple[str, ...]] = set()


def _warm_up(task: _Run) -> None:
    """Compile, or load what was compiled before, so that it is not counted as an algorithm's time."""
    if task.algorithms in _warm:
        return
    _warm.add(task.algorithms)
    rng = np.random.default_rng(0)
    users = task.world.draw(60, 2, rng)
    for name in task.algorithms:
        ALGORITHMS[name].build(task.world, rng).serve(range(60), users.contexts, users.rewards, rng)


def _error_over_runs(regret: Floats) -> float:
    runs = len(regret)
    return float(regret.mean(axis=1).std(ddof=1) / np.sqrt(runs)) if runs > 1 else float("nan")


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
