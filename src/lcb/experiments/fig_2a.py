"""Figure 2a: averaged per-user regret against the number of users.

1000 users of 20 steps each, 20 arms.  LCB has J = 50 users in phase 1 and relearns its classes after every 50 users.
The paper reports LCB about 50 % below Population LinUCB and 35 % below CLUB.  Four newer algorithms are drawn beside
the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lcb import charts
from lcb.evaluate.algorithms import NEWER, PAPERS
from lcb.evaluate.simulation.simulate import AlgorithmRegret, Simulation, list_curve_points, simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.experiments.claims import Claim
from lcb.progress import Progress, silent

N_USERS, N_STEPS, N_ARMS = 1000, 20, 20


def run(
    n_runs: int = 10, seed: int = 0, progress: Progress = silent, algorithms: Sequence[str] = (*PAPERS, *NEWER)
) -> Simulation:
    world = SimulatedWorld(paper_classes(), n_arms=N_ARMS)
    return simulate(world, algorithms, n_users=N_USERS, n_steps=N_STEPS, n_runs=n_runs, seed=seed, progress=progress)


def draw(simulation: Simulation) -> Any:
    at = [u for u in list_curve_points(simulation.settings["users"]) if u % 10 == 0]
    curves = [charts.Curve(result.algorithm, at, *result.curve(at)) for result in simulation.results]
    runs = simulation.settings["runs"]
    return charts.regret_by_users(curves, title=f"Averaged per-user regret by number of users ({runs} runs)")


def to_json(simulation: Simulation) -> dict[str, Any]:
    return simulation.to_json()


def check_claims(simulation: Simulation) -> list[Claim]:
    """Return the claims about the algorithms that were run."""
    results = {result.algorithm: result for result in simulation.results}
    found = []
    for other, words, paper in (("linucb-population", "Population LinUCB", 0.50), ("club", "CLUB", 0.35)):
        if {"lcb", other} <= results.keys():
            below, error = _compute_reduction(results["lcb"], results[other])
            found.append(
                Claim(
                    what=f"regret of lcb below {words}",
                    paper=f"about {100 * paper:.0f} %",
                    ours=f"{100 * below:.0f} % ± {196 * error:.1f} %",
                    holds=below >= paper,
                    why="Both have settings tuned on seeds of their own.",
                )
            )
    if {"lcb", "lcb-gt"} <= results.keys():
        late = results["lcb"].last_quarter.mean() / results["lcb-gt"].last_quarter.mean() - 1
        what = "last quarter of the users, lcb over lcb-gt"
        found.append(Claim(what, paper="near", ours=f"{100 * late:+.1f} %", holds=abs(late) < 0.1))
    return found


def _compute_reduction(one: AlgorithmRegret, other: AlgorithmRegret) -> tuple[float, float]:
    """Return the share by which one regret is below another, and its standard error, paired by run."""
    shares = 1 - one.regret.mean(axis=1) / other.regret.mean(axis=1)
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else float("nan")


def summarise(simulation: Simulation) -> list[str]:
    """Return our numbers, then the claims of the paper."""
    regret = {result.algorithm: result for result in simulation.results}
    wide = max(map(len, regret))
    lines = [f"{name:{wide}} {result.regret_per_user:7.3f} ± {result.se:.3f}" for name, result in regret.items()]
    notes = [f"{name}: {result.note}" for name, result in regret.items() if result.note]
    return lines + notes + [claim.format_line() for claim in check_claims(simulation)]
