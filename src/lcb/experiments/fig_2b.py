"""Figure 2b: averaged per-user regret against the number of interactions per user.

1000 users, T_u from 10 to 100.  The paper reports that Individual LinUCB overtakes Population LinUCB beyond T_u = 40
and that LCB stays far below both.  Four newer algorithms are drawn beside the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lcb import charts
from lcb.evaluate.algorithms import NEWER, PAPERS
from lcb.evaluate.simulation.simulate import Simulation, simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.experiments.claims import Claim
from lcb.progress import Progress, silent

N_USERS, N_ARMS = 1000, 20
STEPS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def run(
    n_runs: int = 10, seed: int = 0, progress: Progress = silent, algorithms: Sequence[str] = (*PAPERS, *NEWER)
) -> list[Simulation]:
    world = SimulatedWorld(paper_classes(), n_arms=N_ARMS)
    simulations = []
    for done, n_steps in enumerate(STEPS):
        progress("numbers of steps", done, len(STEPS))
        simulations.append(simulate(world, algorithms, n_users=N_USERS, n_steps=n_steps, n_runs=n_runs, seed=seed))
    return simulations


def draw(simulations: list[Simulation]) -> Any:
    steps = [simulation.settings["steps"] for simulation in simulations]
    curves = []
    for results in zip(*(simulation.results for simulation in simulations), strict=True):
        means, errors = [result.regret_per_user for result in results], [result.se for result in results]
        curves.append(charts.Curve(results[0].algorithm, steps, means, errors))
    runs = simulations[0].settings["runs"]
    return charts.regret_by_steps(curves, title=f"Averaged per-user regret by steps per user ({runs} runs)")


def to_json(simulations: list[Simulation]) -> dict[str, Any]:
    return {"steps": [simulation.to_json() for simulation in simulations]}


def check_claims(simulations: list[Simulation]) -> list[Claim]:
    """Return the claims about the algorithms that were run."""
    steps = [simulation.settings["steps"] for simulation in simulations]
    regret = [{result.algorithm: result.regret_per_user for result in one.results} for one in simulations]
    found = []
    if {"linucb-individual", "linucb-population"} <= regret[0].keys():
        ahead = [row["linucb-individual"] < row["linucb-population"] for row in regret]
        first = steps[ahead.index(True)] if any(ahead) else None
        found.append(
            Claim(
                what="Individual LinUCB is below Population LinUCB",
                paper="from T_u of about 40",
                ours="never" if first is None else f"from T_u = {first}",
                holds=first is not None and 30 <= first <= 50,
                why="Individual LinUCB's settings are tuned at T_u = 20.",
            )
        )
    others = [name for name in regret[0] if not name.startswith("lcb") and name not in NEWER]
    if "lcb" in regret[0] and others:
        worst = max(row["lcb"] / min(row[name] for name in others) for row in regret)
        ours = f"at most {100 * worst:.0f} % of the best other"
        found.append(Claim("lcb has the least regret at every T_u", paper="yes", ours=ours, holds=worst < 1))
    return found


def summarise(simulations: list[Simulation]) -> list[str]:
    """Return a row per algorithm, then the claims of the paper."""
    steps = [simulation.settings["steps"] for simulation in simulations]
    wide = max(len(result.algorithm) for result in simulations[0].results)
    lines = [f"{'T_u':{wide}}" + "".join(f"{n:8}" for n in steps)]
    for results in zip(*(simulation.results for simulation in simulations), strict=True):
        lines.append(f"{results[0].algorithm:{wide}}" + "".join(f"{result.regret_per_user:8.2f}" for result in results))
    return lines + [claim.format_line() for claim in check_claims(simulations)]
