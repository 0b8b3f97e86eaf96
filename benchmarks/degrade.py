"""What `lcb-auto` loses where classes are no help or labels are wrong, against the baselines that suit these worlds.

    python benchmarks/degrade.py [--seeds 5] [--first 0] [--users 3000] [--worlds alike,unique,classes,flipped]

alike     all users have the same rates: Population LinUCB knows all there is to know
unique    every user has independent rates: Individual LinUCB and the mixed model know that
classes   five classes of users who are alike
flipped   the same with 2 of 30 labels flipped, in the log and while serving

Algorithms learn from 3,000 users with 40 labels on 12 arms, then serve 2,000 new users for 20 steps with their true
rates.  All serve the same users, `classes` and `flipped` too; the number is the mean rate of the arms they took.
Errors of one seed are paired by user.
"""

from __future__ import annotations

import argparse
from typing import Any
from zlib import crc32

import numpy as np
from timing import save

from lcb.arrays import Floats
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.worlds.logged import LoggedWorld, serve_live
from lcb.event_log import EventLog

N_LABELS, N_STEPS, N_NEW, N_CATEGORIES = 40, 20, 2000, 12
FLIPPED = 2 / 30
AUTO, POPULATION = "lcb-auto", "linucb-population"
BASELINES = {"unique": ("linucb-individual", "mixed-model")}


def measure(kind: str, seed: int, n_users: int = 3000, n_new: int = N_NEW) -> dict[str, Floats]:
    """Return by algorithm the mean rate of the arms of each new user, (n_new,)."""
    world = LoggedWorld(people=kind if kind in ("alike", "unique") else "classes", seed=seed)  # type: ignore[arg-type]
    flipped = FLIPPED if kind == "flipped" else 0.0
    rng, log = np.random.default_rng((seed, 7)), world.write_log(n_users, N_LABELS, exactly=True)
    assert log.reward is not None
    clicked = (log.reward > 0) != (rng.random(len(log.user)) < flipped)
    place = log.user.astype(np.intp) * N_CATEGORIES + log.item
    shape = n_users, N_CATEGORIES
    shown, yes = (np.bincount(place, weight, n_users * N_CATEGORIES).reshape(shape) for weight in (None, clicked))
    history = EventLog.from_counts(np.eye(N_CATEGORIES), yes, shown - yes)
    task = Task(N_CATEGORIES, N_CATEGORIES, N_STEPS, n_new, 30, (0.0, 1.0), history=history, two_valued=True)
    rates = world.arm_rates(world.draw_users(n_new, rng)) * (1 - 2 * flipped) + flipped
    found = {}
    for name in (AUTO, POPULATION, *BASELINES.get(kind, ())):
        own, serving = np.random.default_rng((seed, crc32(name.encode()))).spawn(2)
        recommender = ALGORITHMS[name].build_for(task, own, {})
        taken = serve_live(recommender, np.eye(N_CATEGORIES), rates, N_STEPS, serving)
        found[name] = (taken - flipped) / (1 - 2 * flipped)
        if name == AUTO:
            print(f"{kind}, seed {seed}: {recommender.why[0]}", flush=True)  # type: ignore[attr-defined]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--worlds", default="alike,unique,classes,flipped")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(asked.first, asked.first + asked.seeds):
        gains = {}
        for kind in asked.worlds.split(","):
            found = measure(kind, seed, asked.users)
            rows.append(describe(kind, seed, found))
            gains[kind] = found[AUTO] - found[POPULATION]
        if {"classes", "flipped"} <= {*gains}:
            kept, error = divide_means(gains["flipped"], gains["classes"])
            rows.append({"world": "kept", "seed": seed, "percent": 100 * kept, "se": 100 * error})
            print(f"seed {seed}: {100 * kept:.1f} ± {100 * error:.1f} % of the gain kept", flush=True)
    save("degrade", {"rows": rows, **summarise(rows)})


def describe(kind: str, seed: int, found: dict[str, Floats]) -> dict[str, Any]:
    """Return the means of all algorithms and how far `lcb-auto` is above the best of the others, in percent."""
    best = max((name for name in found if name != AUTO), key=lambda name: found[name].mean())
    ratio, error = divide_means(found[AUTO], found[best])
    row = {"world": kind, "seed": seed, "best_other": best, "percent": 100 * (ratio - 1), "se": 100 * error}
    means = {name: float(value.mean()) for name, value in found.items()}
    print(f"{kind}, seed {seed}: {row['percent']:+.2f} ± {row['se']:.2f} % of {best};", means, flush=True)
    return {**row, **means}


def divide_means(top: Floats, bottom: Floats) -> tuple[float, float]:
    """Return the ratio of the means of two numbers of every user, and its standard error, paired by user."""
    ratio = top.mean() / bottom.mean()
    return float(ratio), float((top - ratio * bottom).std(ddof=1) / np.sqrt(len(top)) / abs(bottom.mean()))


def summarise(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return for each world the mean of the percentages, with the standard error over seeds, and the lowest."""
    said = {}
    for kind in dict.fromkeys(str(row["world"]) for row in rows):
        own = np.array([row["percent"] for row in rows if row["world"] == kind])
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
        said[kind] = f"{own.mean():+.2f} ± {error:.2f} %, lowest {own.min():+.2f} %"
        print(kind, said[kind])
    return said


if __name__ == "__main__":
    main()
