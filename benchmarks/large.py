"""Reading parts, drawing a sample of users, and EM on statistics in files: rates per CPU second and ratios.

    python benchmarks/large.py --rows 4000000 --users 200000 --fit-users 500000

The cases of a comparison take turns, three times each; the smallest CPU time counts, because other work on the machine
adds to all of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.learners.em import gaussian
from lcb.learners.shared.users import find_users
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import StatsBuilder, UserStats
from lcb.storage.tables.sample import draw_users
from lcb.storage.tables.statistics import read_log, read_stats

N_FEATURES, N_CLASSES = 6, 30


def cpu_seconds(work):
    before = time.process_time()
    work()
    return time.process_time() - before


def compare(cases, n_times=3):
    """Return the smallest CPU seconds of each case; the cases take turns."""
    seconds = {name: [] for name in cases}
    for _ in range(n_times):
        for name, work in cases.items():
            seconds[name].append(cpu_seconds(work))
    return {name: min(values) for name, values in seconds.items()}


def write_parts(folder, n_rows, n_users, n_parts=8):
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(N_FEATURES)]
    for i in range(n_parts):
        n = n_rows // n_parts
        columns = {"user": rng.integers(n_users, size=n), "reward": rng.standard_normal(n)}
        columns |= {name: rng.standard_normal(n) for name in names}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    return names


def measure_reading(n_rows, n_users):
    with TemporaryDirectory() as place:
        folder = Path(place)
        names = write_parts(folder, n_rows, n_users)
        read_stats(folder / "part-0.parquet", columns=names)  # compiles
        cases = {"parts": lambda: read_stats(folder, columns=names)}
        few = draw_users(folder, n_users // 100)
        cases["draw 1 user in 100"] = lambda: draw_users(folder, n_users // 100)
        cases["parts, 1 user in 100"] = lambda: read_log(folder, columns=names, sample=few)
        return {name: n_rows / seconds / 1e6 for name, seconds in compare(cases).items()}


def build_stats(n_users, folder):
    rng, builder = np.random.default_rng(0), StatsBuilder(N_FEATURES, folder=folder)
    for i in range(0, n_users, 100_000):
        user = np.repeat(np.arange(i, min(i + 100_000, n_users)), 5)
        builder.add_at(user, rng.standard_normal((len(user), N_FEATURES)), rng.standard_normal(len(user)))
    return builder.build(users=())


def count_anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith("RssAnon"))


def step(stats: UserStats, n_steps: int = 5):
    rng = np.random.default_rng(0)
    models = LatentModels(
        np.full(N_CLASSES, 1 / N_CLASSES), rng.standard_normal((N_CLASSES, N_FEATURES)), np.ones(N_CLASSES)
    )
    prior = Prior.scaled(stats)
    with parallel.threads(1) as spans:
        for _ in range(n_steps):
            models, _ = gaussian.step(find_users(stats, spans), models, prior, False)


def measure_disk(n_users):
    with TemporaryDirectory() as folder:
        base = count_anonymous()
        on_disk = build_stats(n_users, folder)
        anonymous = count_anonymous() - base
        in_memory = build_stats(n_users, None)
        assert np.array_equal(on_disk.packed, in_memory.packed)
        seconds = compare({"memory": lambda: step(in_memory), "disk": lambda: step(on_disk)})
    return {
        "statistics_gb": in_memory.packed.nbytes / 1e9,
        "anonymous_gb_of_statistics_on_disk": anonymous,
        "step_ratio": seconds["disk"] / seconds["memory"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--fit-users", type=int, default=500_000)
    given = parser.parse_args()
    found = {
        "million rows per CPU second": measure_reading(given.rows, given.users),
        "statistics on disk": measure_disk(given.fit_users),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
