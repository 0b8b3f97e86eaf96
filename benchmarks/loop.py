"""Whether estimates from a served log cover what then happens: `python benchmarks/loop.py [--repetitions 30]`.

Each repetition serves generated people with one LinUCB for everyone, which draws the share `--uniform` of its decisions
uniformly (0.01, the default of new services), exports the log and evaluates other policies on it with ips, snips and
dr.  Then it really serves these policies to new people.  Printed for every method and policy: in how many repetitions
the log supports the policy, in how many of these the 95 % interval covers the mean reward that the policy then has, the
mean of estimate minus mean reward, the mean half width and the mean effective size.

    random       does not learn; ips and dr are unbiased
    lcb-mean     learns from each user's rewards: in the evaluation from the arms that the log shows, when served from
                 its own, so that the two may differ
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcb.evaluate.offline.evaluate_log import evaluate_log
from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.off_policy import ESTIMATORS
from lcb.evaluate.offline.split import Plan
from lcb.learners import fit
from lcb.serve.config.recommenders import UNIFORM, RecommenderSpec
from lcb.storage.logs.log import open_log
from lcb.storage.models.folder import save_models
from support.served_world import CATEGORIES, N_STEPS, read_interval, serve_people

N_CLASSES = 2


def repeat(seed: int, n_people: int, uniform: float) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return by method and policy: what happened, both ends of the interval, the effective size, is it supported."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = RecommenderSpec("all", "linucb", "everyone", uniform=uniform)
        exported, _ = serve_people(folder / "log", spec, n_people, 3 * seed)
        log = open_log(exported)
        n_train = n_people // 5
        plan = Plan(n_train, n_people - n_train, N_STEPS, N_CLASSES)
        for method in ESTIMATORS:
            source = open_source(log, method, "labels")
            told = evaluate_log(source, ["random", "lcb-mean"], plan, n_seeds=1, seed=seed, n_workers=1).to_json()
            for row in told["results"][:2]:
                policy, support = row["algorithm"], row["diagnostics"]
                found[method, policy] = (
                    *read_interval(told, policy),
                    support["effective_size"],
                    support["shortfall"] is None,
                )
        source = open_source(log, "ips", "labels")
        features, x = source.features("one-hot", np.arange(log.n_users))
        history = source.history(np.arange(log.n_users), x, features.names, None, np.random.default_rng(seed))
        save_models(
            fit(history, N_CLASSES, rng=np.random.default_rng(seed)).models, folder / "models", feature_map=features
        )
        _, by_chance = serve_people(folder / "random", RecommenderSpec("any", "uniform"), n_people, 3 * seed + 1)
        mean = RecommenderSpec("mean", "posterior-mean", uniform=0.0)
        _, by_classes = serve_people(folder / "mean", mean, n_people, 3 * seed + 2, models=str(folder / "models"))
    happened = {"random": by_chance, "lcb-mean": by_classes}
    return {key: (happened[key[1]], *values) for key, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Count how often estimates cover what then happens.")
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--people", type=int, default=400)
    parser.add_argument("--uniform", type=float, default=UNIFORM)
    given = parser.parse_args()
    all_found = []
    for seed in range(given.repetitions):
        all_found.append(repeat(seed, given.people, given.uniform))
        print(f"{seed + 1} of {given.repetitions}", file=sys.stderr, flush=True)
    print(f"{len(CATEGORIES)} items, {given.people} people, {N_STEPS} steps, uniform share {given.uniform:g}")
    for method, policy in all_found[0]:
        happened, low, high, size, supported = np.array([one[method, policy] for one in all_found]).T
        kept = supported == 1
        bias, half = np.mean(((low + high) / 2 - happened)[kept]), np.mean((high - low)[kept]) / 2
        covers = kept & (low <= happened) & (happened <= high)
        print(
            f"{method:6}{policy:10}supported {kept.sum():3}, covered {covers.sum():3}; happened {happened.mean():.3f}, "
            f"bias {bias:+.3f}, half width {half:.3f}, effective size {size.mean():,.0f}"
        )


if __name__ == "__main__":
    main()
