"""EM: one step against its two bare matrix products; a fit of workload S; 2,000,000 users in memory.

python benchmarks/em.py
"""

from __future__ import annotations

import resource
import time
import warnings

import numpy as np
from timing import in_turns, save
from workloads import largest_error, make

from lcb.errors import ConvergenceWarning
from lcb.learners.em import gaussian as em
from lcb.learners.shared.users import find_users
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import UserStats

N_USERS, N_CLASSES = 200_000, 30


def step_against_products() -> list[dict[str, object]]:
    """One thread, 200,000 users, d 6, 30 classes; products on the whole arrays and in the step's own blocks."""
    sample = make("M", 20_000).stats()
    rng = np.random.default_rng(0)
    models = LatentModels(np.full(30, 1 / 30), make("M", 1).beta, np.full(30, 0.2))
    prior, rows = Prior.scaled(sample), []
    for dtype in (np.float64, np.float32):
        stats = UserStats(np.tile(sample.packed, N_USERS // 20_000), 6).astype(dtype)
        packed, weights = stats.packed, np.ascontiguousarray(models.packed().T, dtype=dtype)
        resp = rng.random((N_CLASSES, N_USERS)).astype(dtype)

        def whole(packed=packed, weights=weights, resp=resp) -> None:
            weights @ packed
            packed @ resp.T

        def blocks(packed=packed, weights=weights) -> None:
            for i in range(0, N_USERS, em.BLOCK):
                block = packed[:, i : i + em.BLOCK]
                block @ (weights @ block).T

        with parallel.threads(1) as run:
            pieces = {
                "step": lambda stats=stats, run=run: em.step(find_users(stats, run), models, prior, False),
                "whole": whole,
                "blocks": blocks,
            }
            best = in_turns(pieces, turns=9)
        rows.append(
            {
                "dtype": np.dtype(dtype).name,
                "step_ms": 1e3 * best["step"],
                "over_whole_products": best["step"] / best["whole"],
                "over_blocked_products": best["step"] / best["blocks"],
            }
        )
    return rows


def fit_of_s(seeds: int = 10) -> list[dict[str, object]]:
    rows = []
    for seed in range(seeds):
        work = make("S", 1000, seed=seed)
        stats = work.stats()
        em.fit(stats, 5, rng=np.random.default_rng(seed))  # warm-up
        before = time.process_time()
        models = em.fit(stats, 5, rng=np.random.default_rng(seed)).models
        cpu = time.process_time() - before
        rows.append({"seed": seed, "cpu_ms": 1e3 * cpu, "largest_error": largest_error(models.beta, work.beta)})
    return rows


def two_million_users() -> dict[str, object]:
    sample = make("M", 20_000).stats()
    stats = UserStats(np.tile(sample.packed, 100), 6)
    before = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = em.fit(stats, N_CLASSES, rng=np.random.default_rng(0), max_steps=50)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"users": stats.n_users, "steps": found.n_steps, "seconds": time.monotonic() - before, "peak_gb": peak}


def main() -> None:
    result = {"step": step_against_products(), "S": fit_of_s(), "two_million_users": two_million_users()}
    save("em", result)
    for row in result["step"]:
        print(
            f"one step, {N_USERS:,} users, d 6, {N_CLASSES} classes, {row['dtype']}: {row['step_ms']:.1f} ms CPU, "
            f"{row['over_whole_products']:.2f} x its products on whole arrays, "
            f"{row['over_blocked_products']:.2f} x in its own blocks"
        )
    cpu, error = ([row[key] for row in result["S"]] for key in ("cpu_ms", "largest_error"))
    print(f"S, 1000 users x 20: {np.median(cpu):.0f} ms CPU (most {max(cpu):.0f}), largest error {max(error):.3f}")
    big = result["two_million_users"]
    print(f"{big['users']:,} users: {big['steps']} steps in {big['seconds']:.0f} s, peak {big['peak_gb']:.1f} GB")


if __name__ == "__main__":
    main()
