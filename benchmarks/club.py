"""CLUB and SCLUB: CPU seconds, regret and peak memory, each case in a process of its own.

    python benchmarks/club.py [--quick]      --quick leaves out the 200,000 users

The world is the paper's simulation (5 classes, d 10, 20 arms, 20 steps); "past" cases start from 11,000 past users with
22 features.  Users are drawn in blocks; drawing is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from timing import save  # noqa: E402

from lcb.bandits.linear.linucb import LinUCB  # noqa: E402
from lcb.evaluate._memory import peak_megabytes  # noqa: E402
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes  # noqa: E402
from lcb.recommenders.clustering.club import Club  # noqa: E402
from lcb.recommenders.clustering.sclub import Sclub  # noqa: E402
from lcb.recommenders.pooled import Pooled  # noqa: E402
from lcb.recommenders.recommender import Recommender, serve_step_by_step  # noqa: E402
from lcb.stats import UserStats  # noqa: E402

N_STEPS, BLOCK = 20, 1000
ONE_HOP = {"one_hop": True, "threshold": 0.75, "ridge": 0.1}
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {  # new users, past users, settings
    "population linucb": (1000, 0, {}),
    "club": (1000, 0, {"threshold": 0.4}),
    "club step by step": (1000, 0, {"threshold": 0.4}),
    "club sparse": (1000, 0, {"threshold": 0.45, "graph": "sparse"}),
    "club one hop": (1000, 0, ONE_HOP),
    "sclub": (1000, 0, {"threshold": 1.0, "ridge": 0.1}),
    "club past": (1000, 11_000, {"threshold": 0.7, "ridge": 0.1}),
    "club one hop past": (1000, 11_000, ONE_HOP),
    "sclub past": (1000, 11_000, {"threshold": 1.0, "ridge": 0.1}),
    "club sparse large": (200_000, 0, {"threshold": 0.45, "graph": "sparse"}),
    "club sparse one hop large": (200_000, 0, {**ONE_HOP, "graph": "sparse"}),
}


def recommender(name: str, d: int, n_users: int, settings: dict[str, Any], history: UserStats | None) -> Recommender:
    if name.startswith("population"):
        return Pooled(LinUCB(d, width=0.1))
    if name.startswith("sclub"):
        return Sclub(d, n_users, width=0.1, history=history, **settings)
    return Club(d, n_users, width=0.1, history=history, rng=np.random.default_rng(0), **settings)


def past_users(world: SimulatedWorld, n_users: int) -> UserStats | None:
    """With arms drawn uniformly; they have no names."""
    if n_users == 0:
        return None
    d = world.models.n_features
    users = SimulatedWorld(world.models, n_arms=1).draw(n_users, N_STEPS, np.random.default_rng(7))
    names = np.repeat(np.arange(n_users), N_STEPS)
    rows = UserStats.from_rows(names, users.contexts[:, :, 0].reshape(-1, d), users.rewards[:, :, 0].ravel())
    return UserStats(rows.packed, d)


def measure(name: str) -> dict[str, Any]:
    n_users, n_past, settings = CASES[name]
    world = SimulatedWorld(paper_classes(n_features=22 if n_past else 10))
    d, rng = world.models.n_features, np.random.default_rng(1)
    serve = serve_step_by_step if "step by step" in name else type(recommender(name, d, 1, {}, None)).serve
    warm = world.draw(60, 2, np.random.default_rng(0))  # compiles, or loads what was compiled
    few = {**settings, "degree": 5.0} if "graph" in settings else settings
    serve(recommender(name, d, 60, few, None), range(60), warm.contexts, warm.rewards, np.random.default_rng(0))
    history = past_users(world, n_past)
    before = time.process_time()
    served = recommender(name, d, n_users, settings, history)
    start, total, regret = time.process_time() - before, 0.0, []
    for first in range(0, n_users, BLOCK):
        names = range(first, min(first + BLOCK, n_users))
        users = world.draw(len(names), N_STEPS, rng)
        before = time.process_time()
        arms = serve(served, names, users.contexts, users.rewards, rng)
        total += time.process_time() - before
        regret.append(users.regret(arms))
    return {
        "case": name, "users": n_users, "past_users": n_past, "d": d, **settings, "start_cpu_s": start,
        "serve_cpu_s": total, "us_per_step": total / n_users / N_STEPS * 1e6,
        "regret_per_user": float(np.concatenate(regret).mean()), "peak_mb": peak_megabytes(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the 200,000 users")
    quick = parser.parse_args().quick
    rows = []
    for name in CASES:
        if quick and "large" in name:
            continue
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = pool.submit(measure, name).result()
        rows.append(row)
        print(
            f"{name:26} {row['users']:8,} users  start {row['start_cpu_s']:6.2f} s  serve {row['serve_cpu_s']:7.2f} s "
            f"({row['us_per_step']:6.1f} us a step)  regret {row['regret_per_user']:.2f}  {row['peak_mb']:6.0f} MB",
            flush=True,
        )
    if not quick:
        save("club", rows)


if __name__ == "__main__":
    main()
