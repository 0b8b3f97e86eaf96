"""`lcb-auto` learning from its own choices, nobody known before, beside one LinUCB for all users and the live mixture.

    python benchmarks/from_nothing.py [--first 0] [--seeds 4] [--users 600] [--worlds alike,unique,classes,factors]

12 arms with one-hot features, all on offer at every one of 20 steps.  LinUCB serves the first 50 users of `lcb-auto`,
which then learns after every 50 users.  No decision is uniform.  The number is the mean rate of the arms taken, as the
percentage above Population LinUCB, all users and the second half of them; errors of one seed are paired by user.
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

POPULATION, NAMES = "linucb-population", ("lcb-auto", "lcb-mixture")
N_ARMS, N_STEPS, EVERY = 12, 20, 50


def measure(kind: str, seed: int, n_users: int) -> dict[str, Floats]:
    """Return by algorithm the mean rate of the arms of each user, in the order they come."""
    world, rng = LoggedWorld(people=kind, seed=seed), np.random.default_rng((seed, 5))  # type: ignore[arg-type]
    rates = world.draw_users(n_users, rng)
    task = Task(
        N_ARMS, N_ARMS, N_STEPS, n_users, 30, (0.0, 1.0), n_warmup_users=EVERY, retrain_every=EVERY, two_valued=True
    )
    found = {}
    for name in (POPULATION, *NAMES):
        own = np.random.default_rng((seed, crc32(name.encode())))
        recommender = ALGORITHMS[name].build_for(task, own, {})
        found[name] = serve_live(recommender, np.eye(N_ARMS), rates, N_STEPS, np.random.default_rng((seed, 6)))
    return found


def describe(kind: str, seed: int, found: dict[str, Floats]) -> list[dict[str, Any]]:
    """Print and return the gains over Population LinUCB in percent."""
    rows = []
    for name in NAMES:
        row: dict[str, Any] = {"world": kind, "seed": seed, "algorithm": name}
        for key, begin in (("all", 0), ("later", len(found[name]) // 2)):
            base, gain = found[POPULATION][begin:], (found[name] - found[POPULATION])[begin:]
            row[key] = 100 * gain.mean() / base.mean()
            row[f"{key}_se"] = 100 * gain.std(ddof=1) / np.sqrt(len(gain)) / base.mean()
        rows.append(row)
        print(f"{kind}, seed {seed}, {name}: {row['all']:+.1f} ± {row['all_se']:.1f} %, "
              f"second half {row['later']:+.1f} ± {row['later_se']:.1f} %", flush=True)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--users", type=int, default=600)
    parser.add_argument("--worlds", default="alike,unique,classes,factors")
    asked = parser.parse_args()
    rows = []
    for kind in asked.worlds.split(","):
        for seed in range(asked.first, asked.first + asked.seeds):
            rows += describe(kind, seed, measure(kind, seed, asked.users))
    for kind in asked.worlds.split(","):
        for name in NAMES:
            own = [row for row in rows if (row["world"], row["algorithm"]) == (kind, name)]
            all_users, later = ([row[key] for row in own] for key in ("all", "later"))
            print(f"{kind}, {name}: mean {np.mean(all_users):+.1f} %, lowest {min(all_users):+.1f} %; "
                  f"second half {np.mean(later):+.1f} %, lowest {min(later):+.1f} %")  # fmt: skip
    save("from_nothing", rows)


if __name__ == "__main__":
    main()
