"""`lcb-mixture` on a log of ratings, users one after another as in figure 3c, beside algorithms that relearn.

    python benchmarks/mixture_goodbooks.py FOLDER [--seeds 3,4,5] [--users 4000] [--readings labels,choices] [--like 5]

FOLDER is goodbooks-10k as `lcb import` writes it; features are one-hot, a user has 20 steps.  The users of each seed
are those that figure 3c serves, in its order, and nobody is learned from before.  `lcb-auto` has 500 users of warm-up
and relearns after every 500, as often as the mixture refits once it forgets.  All algorithms have default settings.

Printed is the gain over Population LinUCB in percent, with its standard error, paired by user: all users, and those
after the first 1,000.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from zlib import crc32

import numpy as np
from timing import save

from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.offline.log_sources import LogSource, ServingSetup, open_source
from lcb.evaluate.offline.outcomes import POPULATION
from lcb.evaluate.offline.split import Plan, split_users
from lcb.experiments.real_data import N_CLASSES, N_STEPS, split_sizes
from lcb.storage.logs.log import open_log

NAMES = ("lcb-mixture", "lcb-auto", "club", POPULATION)
FIRST, EVERY = 1000, 500  # users


def play(source: LogSource, name: str, order: np.ndarray, seed: int) -> np.ndarray:
    """Return the mean reward of every user, in the order they come."""
    features, x = source.features("one-hot", order[:EVERY])
    task = Task(
        n_features=features.n_features,
        n_arms=source.n_arms,
        n_steps=N_STEPS,
        n_users=len(order),
        n_classes=N_CLASSES,
        reward_range=source.reward_range,
        n_warmup_users=EVERY,
        retrain_every=EVERY,
        n_uniform_steps=0,
        two_valued=True,
    )
    own, serving = np.random.default_rng((seed, crc32(name.encode()))).spawn(2)
    recommender = ALGORITHMS[name].build_for(task, own, {})
    history = source.history(order[:1], x, features.names, None, own)
    return source.rates(recommender, order, ServingSetup(x, N_STEPS, history, seed, serving))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="3,4,5", help="of the orders of users")
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--readings", default="labels,choices")
    parser.add_argument("--like", type=float, default=5.0, help="stars that are a click")
    asked = parser.parse_args()
    log, rows = open_log(str(asked.folder)), []
    for reading in asked.readings.split(","):
        source = open_source(log, "queue", reading, asked.like if reading == "labels" else None)
        plan = Plan(*split_sizes(source), N_STEPS, N_CLASSES, "one-hot")
        found: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
        latest: dict[str, dict[str, object]] = {}
        for seed in map(int, asked.seeds.split(",")):
            order = split_users(source, plan, seed).test[: asked.users]
            for name in NAMES:
                began = time.process_time()
                found[name].append(play(source, name, order, seed))
                took = time.process_time() - began
                print(f"{reading}, seed {seed}, {name}: {found[name][-1].mean():.4f}, {took:.0f} s CPU", flush=True)
            for name in NAMES[:-1]:
                row: dict[str, object] = {
                    "reading": reading,
                    "algorithm": name,
                    "seeds": len(found[name]),
                    "users": len(order),
                }
                for key, start in (("gain", 0), ("gain_later", FIRST)):
                    ours, base = (np.array(found[one])[:, start:] for one in (name, POPULATION))
                    error = (ours - base).std(ddof=1) / np.sqrt(ours.size) / base.mean()
                    row |= {key: 100 * (ours.mean() / base.mean() - 1), f"{key}_error": 100 * error}
                print(
                    f"  {name:12} all {row['gain']:+.1f} ± {row['gain_error']:.1f} %   "
                    f"after {FIRST:,} users {row['gain_later']:+.1f} ± {row['gain_later_error']:.1f} %",
                    flush=True,
                )
                latest[name] = row
        rows += latest.values()
    save("mixture_goodbooks", rows)


if __name__ == "__main__":
    main()
