"""What a Ray cluster costs on the machine it runs on: overhead of a shard, reading and shuffling, scaling.

    python benchmarks/cluster.py --users 2000000 --rows 4000000

Prints JSON.  Steps take turns with those of `lcb.fit` on the same cores; the median ratio of neighbours counts, because
other work on the machine slows both.  Rates are rows per CPU second, of this process and of all processes of Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lcb
from lcb.cluster.shard import Shard
from lcb.event_log import EventLog
from lcb.learners.em import gaussian
from lcb.learners.shared.users import find_users
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import UserStats, n_packed
from lcb.storage.tables.statistics import read_stats

D, N = 6, 30
warnings.simplefilter("ignore", lcb.ConvergenceWarning)


def draw_stats(n_users):
    """Statistics of users of 30 classes with 10 rewards each."""
    rng = np.random.default_rng(0)
    packed = np.empty((n_packed(D), n_users))
    beta = rng.standard_normal((N, D))
    for i in range(0, n_users, 50_000):
        n = min(50_000, n_users - i)
        x = rng.standard_normal((n * 10, D))
        reward = (x * np.repeat(beta[rng.integers(N, size=n)], 10, axis=0)).sum(axis=1) + rng.standard_normal(n * 10)
        packed[:, i : i + n] = UserStats.from_rows(np.repeat(np.arange(n), 10), x, reward).packed
    return UserStats(packed, D)


def start_models():
    rng = np.random.default_rng(1)
    return LatentModels(np.full(N, 1 / N), rng.standard_normal((N, D)), np.ones(N))


def measure_steps(cluster, stats, n_times):
    models, prior = start_models(), Prior.scaled(stats)
    with cluster.hold(EventLog(stats)) as there, parallel.threads(None) as threads:
        here = find_users(stats, threads)
        ratios, seconds = [], {"here": [], "there": []}
        for _ in range(n_times):
            for name, users in (("here", here), ("there", there)):
                began = time.perf_counter()
                gaussian.step(users, models, prior, False)
                seconds[name].append(time.perf_counter() - began)
            ratios.append(seconds["there"][-1] / seconds["here"][-1])
    return {
        "step_ms_here": 1e3 * min(seconds["here"]),
        "step_ms_there": 1e3 * min(seconds["there"]),
        "step_ratio": float(np.median(ratios)),
    }


def measure_fit(cluster, stats, n_steps):
    settings = {"start": start_models(), "n_starts": 0, "max_steps": n_steps, "tol": 1e-15}
    began = time.perf_counter()
    lcb.fit(stats, N, rng=0, **settings)
    here = time.perf_counter() - began
    began = time.perf_counter()
    lcb.fit(stats, N, rng=0, on=cluster, **settings)
    return {"fit_steps": n_steps, "fit_ratio": (time.perf_counter() - began) / here}


def measure_scaling(stats, n_times):
    """A step of one shard with one thread, against one with two."""
    models = start_models()
    work = gaussian.Expect(np.ascontiguousarray(models.packed().T), models.log_pi)
    one, two = Shard((0, 256), 1), Shard((0, 256), 2)
    log = EventLog(stats)
    ends = np.linspace(0, stats.n_users, 257).astype(int).tolist()
    pieces = {i: log.take(np.arange(ends[i], ends[i + 1])) for i in range(256)}
    for shard in (one, two):
        shard.add_pieces(pieces)
        shard.finish_pieces(log.take(np.arange(0)))
    ratios = []
    for _ in range(n_times):
        seconds = []
        for shard in (one, two):
            began = time.perf_counter()
            shard.sums(work)
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[0] / seconds[1])
    return {"speedup_of_2_cores": float(np.median(ratios))}


def write_parts(folder, n_rows, n_users, n_parts=8):
    rng = np.random.default_rng(0)
    for i in range(n_parts):
        n = n_rows // n_parts
        columns = {"user": rng.integers(n_users, size=n), "reward": rng.standard_normal(n)}
        columns |= {f"x{j}": rng.standard_normal(n) for j in range(D)}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    return [f"x{j}" for j in range(D)]


def count_cpu_seconds():
    """CPU seconds of this process and of all workers of Ray that it started, also of those that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    total, mine = 0.0, _list_family(os.getpid())
    for pid in mine:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(value) for value in fields[11:15]) / tick
    return total


def _list_family(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in _list_family(int(child)))]


def measure_reading(cluster, n_rows, n_users):
    with TemporaryDirectory() as place:
        folder = Path(place)
        names = write_parts(folder, n_rows, n_users)
        found = {}
        for _ in range(2):  # the first time compiles and starts processes
            began = time.process_time()
            read_stats(folder, columns=names)
            found["read_folder_here"] = n_rows / (time.process_time() - began) / 1e6
            began = count_cpu_seconds()
            with cluster.read_log(folder, columns=names) as users:
                assert users.n_events == n_rows // 8 * 8
                found["read_and_shuffle_there"] = n_rows / (count_cpu_seconds() - began) / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    stats = draw_stats(given.users)
    found = {"users": given.users, **measure_scaling(stats, given.times)}
    with lcb.connect("local") as cluster:
        found |= measure_steps(cluster, stats, given.times)
        found |= measure_fit(cluster, stats, given.steps)
        found["million rows per CPU second"] = measure_reading(cluster, given.rows, given.rows // 20)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
