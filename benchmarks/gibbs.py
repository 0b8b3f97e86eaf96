"""Gibbs: users per CPU second of a sweep; 200,000 users; memory; the classes found on S and M from every start.

python benchmarks/gibbs.py [--json FILE]
python benchmarks/gibbs.py --figure FILE     the traces on M: a chain from an over-split start, one from one class
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns
from workloads import Workload, largest_error, make

from lcb import charts
from lcb.charts.sampler import traces
from lcb.errors import ConvergenceWarning
from lcb.learners.gibbs import blocked
from lcb.learners.gibbs import collapsed as gibbs
from lcb.learners.gibbs._blocked_step import assign, draw_models
from lcb.learners.gibbs._partition import Design, Partition
from lcb.learners.gibbs.draws import GibbsFit
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import UserStats

Row = dict[str, Any]
Fit = Callable[..., GibbsFit]


def adjusted_rand(found: np.ndarray, true: np.ndarray) -> float:
    """Agreement of two labellings of users: 1 the same, 0 as by chance."""
    table = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(table, (found, true), 1.0)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / pairs(np.array([len(found)]))
    return (both - chance) / ((rows + columns) / 2 - chance)


def sweeps_per_cpu(kind: str, work: Workload, stats: UserStats, shared: bool) -> list[Row]:
    """One thread, starting from the true classes."""
    rows = []
    design = Design.make(stats, Prior.scaled(stats))
    for sampler in ("gibbs", "blocked"):
        n = len(work.beta)
        state = Partition(design, work.label, n if sampler == "blocked" else None, shared)
        rng = np.random.default_rng(0)

        def one(state: Partition = state, rng: np.random.Generator = rng, sampler: str = sampler) -> None:
            if sampler == "gibbs":
                state.sweep(rng)
            else:
                models, log_pi = draw_models(state, rng)
                assign(state, models, log_pi, run, rng)

        with parallel.threads(1) as run:
            best = in_turns({"sweep": one}, turns=5)["sweep"]
        rows.append({
            "sampler": sampler, "workload": kind, "d": stats.n_features, "classes": len(state.occupied),
            "variance": "shared" if shared else "class", "million_users_per_cpu_second": stats.n_users / best / 1e6,
        })  # fmt: skip
    return rows


def timed(fit: Fit, stats: UserStats, seed: int = 0, **settings: Any) -> tuple[GibbsFit, float, float]:
    before, cpu = time.monotonic(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = fit(stats, rng=np.random.default_rng(seed), **settings)
    return found, time.monotonic() - before, time.process_time() - cpu


def found_classes(kind: str, work: Workload, variance: str, seeds: int) -> list[Row]:
    rows, stats = [], work.stats()
    for name, fit in (("gibbs", gibbs.fit), ("blocked", blocked.fit)):
        for start in ("split", "one"):
            for seed in range(seeds):
                found, seconds, cpu = timed(fit, stats, seed, variance=variance, start=start)
                rows.append({
                    "sampler": name, "workload": kind, "variance": variance, "start": start, "seed": seed,
                    "classes": found.models.n_classes, "ari": adjusted_rand(found.label, work.label),
                    "largest_error": largest_error(found.models.beta, work.beta),
                    "seconds": seconds, "cpu_seconds": cpu, "rhat_n_classes": found.rhat["n_classes"],
                })  # fmt: skip
    return rows


def large(stats: UserStats) -> list[Row]:
    """100 sweeps of each of two chains on two cores, and the memory that a fit needs beside the statistics."""
    rows = []
    for name, fit in (("gibbs", gibbs.fit), ("blocked", blocked.fit)):
        settings = {"variance": "shared", "n_sweeps": 100, "n_threads": 2}
        found, seconds, cpu = timed(fit, stats, **settings)
        tracemalloc.start()
        timed(fit, stats, **(settings | {"n_sweeps": 6, "n_burn": 2}))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append({
            "sampler": name, "users": stats.n_users, "classes": found.models.n_classes, "seconds": seconds,
            "cpu_seconds": cpu, "bytes_per_user": peak / stats.n_users,
            "bytes_of_statistics_per_user": stats.packed.nbytes / stats.n_users,
        })  # fmt: skip
    return rows


def figure(path: Path) -> None:
    found, _, _ = timed(gibbs.fit, make("M", 20_000).stats(), variance="shared", start=("split", "one"), n_sweeps=600)
    charts.save(traces(found, "20,000 users of 30 classes, clicks, one variance"), path)
    print("  ".join(f"R-hat of {name} {value:.2f}" for name, value in found.rhat.items()))


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    names = list(rows[0])
    cells = [[f"{row[n]:.3g}" if isinstance(row[n], float) else str(row[n]) for n in names] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for line in (names, *cells):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    before = time.monotonic()
    timed(gibbs.fit, make("S", 20).stats(), n_sweeps=8)
    timed(blocked.fit, make("S", 20).stats(), n_sweeps=8)
    result: dict[str, Any] = {"first_call_seconds": time.monotonic() - before}
    print(f"first calls, compilation or its cache included: {result['first_call_seconds']:.1f} s")

    small, medium = make("S", 1_000), make("M", 20_000)
    wide = make("S", 20_000)
    result["sweeps"] = [
        row
        for shared in (False, True)
        for kind, work in (("M", medium), ("S", wide))
        for row in sweeps_per_cpu(kind, work, work.stats(), shared)
    ]
    show("one sweep on one thread", result["sweeps"])
    result["S"] = found_classes("S", small, "class", seeds=5)
    show("S, 1,000 users x 20, 200 sweeps of 2 chains", result["S"])
    result["M"] = [row for variance in ("shared", "class") for row in found_classes("M", medium, variance, seeds=1)]
    show("M, 20,000 users x 20, 200 sweeps of 2 chains", result["M"])
    result["large"] = large(make("M", 200_000).stats())
    show("200,000 users x 20, 100 sweeps of 2 chains on 2 cores", result["large"])
    if options.json:
        result["machine"] = {"python": platform.python_version(), "processor": platform.machine()}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
