"""Figure 3b: relative CTR of new users against the number of latent models.

The paper reports LCB above CLUB and LinUCB from 10 models on: about +5 % with 15, +10 % with 30.
Four newer algorithms are drawn beside the paper's; `lcb-auto` chooses its own number of classes and `mixed-model` has
one, so their lines are level.
"""

from __future__ import annotations

from collections.abc import Mapping
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

CLASSES = (1, 2, 5, 10, 15, 20, 30)
OURS = ("lcb-bonus", "lcb-personal", "lcb-mean", "lcb", "lcb-gibbs")
OTHERS = tuple(name for name in WITH_NEWER if name not in OURS)


@dataclass(frozen=True, eq=False)
class Figure3b:
    data: Data
    tuned: dict[int, dict[str, Settings]]
    n_train: int
    n_test: int
    n_runs: int
    outcomes: dict[int, list[AlgorithmRewards]]  # by number of classes: OURS, then OTHERS, the same at every number


def run(data: Data, n_runs: int = 3, seed: int = 0, progress: Progress = silent) -> Figure3b:
    source = data.open(progress)
    n_test, n_train = real_data.split_sizes(source)
    plan = Plan(n_train, n_test, N_STEPS, N_CLASSES, data.features)
    settings = real_data.tuned_settings(data, source, WITH_NEWER, plan, range(seed, seed + n_runs), progress)
    others = real_data.evaluate_seeds(source, OTHERS, plan, settings, progress)
    outcomes = {}
    for n in CLASSES:
        own = {seed: _with_classes(several, n) for seed, several in settings.items()}
        found = real_data.evaluate_seeds(source, OURS, replace(plan, n_classes=n), own, progress)
        outcomes[n] = [*found[: len(OURS)], *others]
    return Figure3b(data, settings, n_train, n_test, n_runs, outcomes)


def _with_classes(settings: Mapping[str, Settings], n_classes: int) -> dict[str, Settings]:
    """Return the settings with `n_classes` classes for `lcb-personal` too, which else has at most a tuned number."""
    return {**settings, "lcb-personal": {**settings.get("lcb-personal", {}), "most_classes": n_classes}}


def draw(result: Figure3b) -> Any:
    title = f"Relative CTR of {result.n_test:,} new users by number of latent models"
    curves = real_data.build_ctr_curves(list(result.outcomes), result.outcomes.values())
    return charts.relative_ctr(curves, "latent models", title)


def to_json(result: Figure3b) -> dict[str, Any]:
    sizes = {"train_users": result.n_train, "test_users": result.n_test, "seeds": result.n_runs}
    parts = [{"classes": n, "results": real_data.list_results(outcomes)} for n, outcomes in result.outcomes.items()]
    return {"settings": {**result.data.to_json(), **sizes}, "tuned": result.tuned, "classes": parts}


def check_claims(result: Figure3b) -> list[Claim]:
    found, other, why = [], "linucb-population", "The gain depends on the data and the features."
    for n, paper in ((10, "begins to lead"), (15, "by about 5 %"), (30, "by about 10 %")):
        for ours in OURS:
            what = f"{ours} with {n} models is above Population LinUCB"
            found.append(real_data.claim_gain(result.outcomes[n], ours, other, what, paper, why))
    return found


def summarise(result: Figure3b) -> list[str]:
    lines = real_data.format_table("latent models", list(result.outcomes), result.outcomes.values())
    return lines + [claim.format_line() for claim in check_claims(result)]
