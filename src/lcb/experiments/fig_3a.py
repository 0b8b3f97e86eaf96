"""Figure 3a: relative CTR of new users against the number of training users.

Algorithms train on past users, then serve 20 steps to each new user.  The paper reports LCB about 10 % above CLUB, and
CLUB about 2 % above Population LinUCB.  Four newer algorithms are drawn beside the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lcb import charts
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.offline.outcomes import AlgorithmRewards
from lcb.evaluate.offline.split import Plan
from lcb.experiments import real_data
from lcb.experiments.claims import Claim
from lcb.experiments.real_data import N_CLASSES, N_STEPS, WITH_NEWER, Data
from lcb.progress import Progress, silent

FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)


@dataclass(frozen=True, eq=False)
class Figure3a:
    data: Data
    tuned: dict[int, dict[str, Settings]]
    n_test: int
    n_runs: int
    outcomes: dict[int, list[AlgorithmRewards]]  # by the number of training users


def run(data: Data, n_runs: int = 3, seed: int = 0, progress: Progress = silent) -> Figure3a:
    source = data.open(progress)
    n_test, n_train = real_data.split_sizes(source)
    plan = Plan(n_train, n_test, N_STEPS, N_CLASSES, data.features)
    settings = real_data.tuned_settings(data, source, WITH_NEWER, plan, range(seed, seed + n_runs), progress)
    outcomes = {}
    for n in sorted({max(1, round(n_train * part)) for part in FRACTIONS}):
        outcomes[n] = real_data.evaluate_seeds(source, WITH_NEWER, replace(plan, n_train_users=n), settings, progress)
    return Figure3a(data, settings, n_test, n_runs, outcomes)


def draw(result: Figure3a) -> Any:
    title = f"Relative CTR of {result.n_test:,} new users by number of training users"
    curves = real_data.build_ctr_curves(list(result.outcomes), result.outcomes.values())
    return charts.relative_ctr(curves, "training users", title)


def to_json(result: Figure3a) -> dict[str, Any]:
    about = {**result.data.to_json(), "test_users": result.n_test, "seeds": result.n_runs, "classes": N_CLASSES}
    parts = [{"train_users": n, "results": real_data.list_results(outcomes)} for n, outcomes in result.outcomes.items()]
    return {"settings": about, "tuned": result.tuned, "train_users": parts}


def check_claims(result: Figure3a) -> list[Claim]:
    largest = result.outcomes[max(result.outcomes)]
    found = []
    why = "The gain depends on the data, the features and what the rows of training users are."
    for ours in ("lcb-gibbs", "lcb", "lcb-mean", "lcb-auto"):
        found.append(real_data.claim_gain(largest, ours, "club", f"{ours} is above CLUB", "by about 10 %", why))
    percent, error = real_data.compute_gain(largest, "club", "linucb-population")
    club = Claim(
        what="CLUB is above Population LinUCB",
        paper="by about 2 %",
        ours=real_data.format_gain(percent, error),
        holds=percent > 0,
        why="The paper itself calls 20 noisy clicks a user too few for CLUB to find its graph.",
    )
    return [*found, club]


def summarise(result: Figure3a) -> list[str]:
    lines = real_data.format_table("training users", list(result.outcomes), result.outcomes.values())
    return lines + [claim.format_line() for claim in check_claims(result)]
