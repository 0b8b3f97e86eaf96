"""Figure 2a: averaged per-user regret against the number of users.

1000 users of 20 steps each, 20 arms; J = 50 users in phase 1, relearned after every 50.  The paper reports LCB about
50 % below Population LinUCB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lcb import charts
from lcb.evaluate.algorithms import PAPERS
from lcb.evaluate.simulate import Simulation, curve_points, simulate
from lcb.evaluate.world import World, paper_classes
from lcb.progress import Progress, silent

N_USERS, N_STEPS, N_ARMS = 1000, 20, 20


def run(n_runs: int = 10, seed: int = 0, progress: Progress = silent, algorithms: Sequence[str] = PAPERS) -> Simulation:
    world = World(paper_classes(), n_arms=N_ARMS)
    return simulate(world, algorithms, n_users=N_USERS, n_steps=N_STEPS, n_runs=n_runs, seed=seed, progress=progress)


def draw(simulation: Simulation) -> Any:
    at = [u for u in curve_points(simulation.settings["users"]) if u % 10 == 0]
    curves = [charts.Curve(result.algorithm, at, *result.curve(at)) for result in simulation.results]
    runs = simulation.settings["runs"]
    return charts.regret_by_users(curves, title=f"Averaged per-user regret by number of users ({runs} runs)")


def to_json(simulation: Simulation) -> dict[str, Any]:
    return simulation.to_json()


def summary(simulation: Simulation) -> list[str]:
    """What the paper says of the figure, with our numbers, as far as its algorithms were run."""
    regret = {result.algorithm: result for result in simulation.results}
    wide = max(map(len, regret))
    lines = [f"{name:{wide}} {result.regret_per_user:7.3f} ± {result.se:.3f}" for name, result in regret.items()]
    if {"lcb", "linucb-population"} <= regret.keys():
        below = 1 - regret["lcb"].regret_per_user / regret["linucb-population"].regret_per_user
        lines.append(f"lcb is {below:.0%} below linucb-population (the paper: about 50 %)")
    if {"lcb", "lcb-gt"} <= regret.keys():
        late = regret["lcb"].last_quarter.mean() / regret["lcb-gt"].last_quarter.mean() - 1
        lines.append(f"over the last quarter of the users lcb is {late:+.1%} from lcb-gt, which knows the true classes")
    return lines
