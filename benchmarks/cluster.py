"""What a Ray cluster costs on the machine it runs on: overhead of a shard, reading and shuffling, scaling.

    python benchmarks/cluster.py --users 2000000 --rows 4000000

Prints JSON.  Steps and fits take turns with those of one machine on the same cores; the median ratio of neighbours
counts, because other work on the machine slows both; beside it is the ratio of CPU seconds, which such work hardly
changes.  Rates are rows per CPU second, of this process and of all processes of Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
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


class Clock:
    """Wall and CPU seconds of pieces of work, by name; CPU is that of all processes of Ray, too, but for "here"."""

    def __init__(self):
        self.wall, self.cpu = {}, {}

    def run(self, name, work):
        count = time.process_time if name == "here" else count_cpu_seconds
        wall, cpu = time.perf_counter(), count()
        result = work()
        self.wall.setdefault(name, []).append(time.perf_counter() - wall)
        self.cpu.setdefault(name, []).append(count() - cpu)
        return result

    def compare(self, what):
        """Return the ratios of "there" to "here": the median of neighbours by the wall, the total of the CPU."""
        ratios = np.array(self.wall["there"]) / np.array(self.wall["here"])
        return {
            f"{what}_seconds_here": min(self.wall["here"]),
            f"{what}_seconds_there": min(self.wall["there"]),
            f"{what}_ratio": float(np.median(ratios)),
            f"{what}_ratio_of_cpu": float(np.sum(self.cpu["there"]) / np.sum(self.cpu["here"])),
        }


def measure_steps(cluster, stats, n_times):
    models, prior, clock = start_models(), Prior.scaled(stats), Clock()
    with cluster.hold(EventLog(stats)) as there, parallel.threads(None) as threads:
        here = find_users(stats, threads)
        for users in (here, there):
            gaussian.step(users, models, prior, False)  # compiles
        for _ in range(n_times):
            for name, users in (("here", here), ("there", there)):
                clock.run(name, partial(gaussian.step, users, models, prior, False))
    return clock.compare("step")


def measure_fit(cluster, stats, n_steps, n_times=3):
    """A fit on users that are there; how long it takes to start and to send them is told beside it."""
    settings = {"start": start_models(), "n_starts": 0, "max_steps": n_steps, "tol": 1e-15}
    clock = Clock()
    began = time.perf_counter()
    with cluster.hold(EventLog(stats)) as there:
        found = {"send_seconds": time.perf_counter() - began}
        for _ in range(n_times):
            for name, users in (("here", stats), ("there", there)):
                clock.run(name, partial(lcb.fit, users, N, rng=0, **settings))
    return {**found, "fit_steps": n_steps, **clock.compare("fit")}


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
    """Million rows per CPU second; a table of few rows tells what the start of the processes there costs."""
    with TemporaryDirectory() as place:
        folder, few = Path(place, "many"), Path(place, "few")
        for one, rows in ((folder, n_rows), (few, 8)):
            one.mkdir()
            names = write_parts(one, rows, n_users)

        def read_there(one):
            began = count_cpu_seconds()
            with cluster.read_log(one, columns=names):
                return count_cpu_seconds() - began  # before its process ends, which takes its seconds along

        def read_here():
            began = time.process_time()
            read_stats(folder, columns=names)
            return time.process_time() - began

        taken = {"here": [], "start": [], "there": []}
        for _ in range(3):  # the first time compiles and starts processes
            for name, seconds in (("here", read_here()), ("start", read_there(few)), ("there", read_there(folder))):
                taken[name].append(seconds)
    cpu = {name: float(np.median(values[1:])) for name, values in taken.items()}
    return {
        "read_folder_here": n_rows / cpu["here"] / 1e6,
        "read_and_shuffle_there": n_rows / (cpu["there"] - cpu["start"]) / 1e6,
        "with_the_start_of_processes": n_rows / cpu["there"] / 1e6,
        "start_cpu_seconds": cpu["start"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only-reading", action="store_true")
    given = parser.parse_args()
    stats = None if given.only_reading else draw_stats(given.users)
    found = {} if stats is None else {"users": given.users, **measure_scaling(stats, given.times)}
    with lcb.connect("local") as cluster:
        if stats is not None:
            found |= measure_steps(cluster, stats, given.times)
            found |= measure_fit(cluster, stats, given.steps)
        found["million rows per CPU second"] = measure_reading(cluster, given.rows, given.rows // 20)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
