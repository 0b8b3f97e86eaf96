"""What a Ray cluster costs on the machine it runs on: overhead of a shard, reading and shuffling, scaling.

    python benchmarks/cluster.py                                   # about 8 minutes and 4 GB on 2 quiet cores

Prints a line for each number, with what it should be.  Steps and fits take turns with those of one machine on the same
cores; the median ratio of neighbours counts.  Times need a quiet machine; ratios of CPU seconds hardly do: they are of
this process and of those that hold users, without what Ray's own processes do meanwhile.  Rates are rows per CPU
second, of this process and of all processes of Ray.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lcb
from lcb.cluster.shards import Shards
from lcb.cluster.sources import FromLog
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
    """Wall and CPU seconds of pieces of work, by name; CPU is that of the processes that hold users, too."""

    def __init__(self):
        self.wall, self.cpu = {}, {}

    def run(self, name, work):
        holders = list_holders() if name == "there" else []
        wall, cpu = time.perf_counter(), time.process_time() + sum_cpu(holders)
        work()
        self.wall.setdefault(name, []).append(time.perf_counter() - wall)
        self.cpu.setdefault(name, []).append(time.process_time() + sum_cpu(holders) - cpu)

    def compare(self, what, most):
        """Print the ratios of "there" to "here": the median of neighbours by the wall, the total of the CPU."""
        ratios = np.array(self.wall["there"]) / np.array(self.wall["here"])
        say(f"{what}, time", np.median(ratios), f"x, at most {most}")
        say(f"{what}, CPU seconds", np.sum(self.cpu["there"]) / np.sum(self.cpu["here"]), f"x, at most {most}")
        for name in ("here", "there"):
            say(f"{what}, median {name}", np.median(self.wall[name]), "s")


def say(what, value, unit):
    print(f"{what:<48} {value:8.3f} {unit}", flush=True)


def list_holders():
    """Return the processes of Ray that hold users."""
    return [pid for pid in _list_family(os.getpid()) if b"ray::Shard" in _read(pid, "cmdline")]


def sum_cpu(pids):
    """Return the CPU seconds of processes, of threads that have ended, too."""
    fields = [_read(pid, "stat").rsplit(b")", 1)[-1].split() for pid in pids]
    return sum(int(value) for one in fields for value in one[11:13]) / os.sysconf("SC_CLK_TCK")


def _read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def measure_steps(cluster, stats, n_times):
    models, prior, clock = start_models(), Prior.scaled(stats), Clock()
    with cluster.hold(EventLog(stats)) as there, parallel.threads(None) as threads:
        here = find_users(stats, threads)
        for users in (here, there):
            gaussian.step(users, models, prior, False)  # compiles
        for _ in range(n_times):
            for name, users in (("here", here), ("there", there)):
                clock.run(name, partial(gaussian.step, users, models, prior, False))
    clock.compare("a step", 1.15)


def measure_fit(cluster, stats, n_steps, n_times=3):
    """A fit on users that are there; how long it takes to start and to send them is told beside it."""
    settings = {"start": start_models(), "n_starts": 0, "max_steps": n_steps, "tol": 1e-15}
    clock = Clock()
    began = time.perf_counter()
    with cluster.hold(EventLog(stats)) as there:
        say("starting a process and sending all users", time.perf_counter() - began, "s")
        for _ in range(n_times):
            for name, users in (("here", stats), ("there", there)):
                clock.run(name, partial(lcb.fit, users, N, rng=0, **settings))
    clock.compare(f"a fit of {n_steps} steps", 1.25)


def measure_scaling(cluster, stats, n_times):
    """A step of two shards with a core each, and of a shard with two, against one shard with one core."""
    models = start_models()
    work = gaussian.Expect(np.ascontiguousarray(models.packed().T), models.log_pi)
    log = EventLog(stats)
    cases = {"one core": [1], "two shards of a core each": [1, 1], "a shard of two cores": [2]}
    with ExitStack() as held:
        users = {name: held.enter_context(hold_by_cores(cluster, log, cores)) for name, cores in cases.items()}
        seconds = {name: [] for name in cases}
        sums = []
        for _ in range(n_times + 1):
            for name, own in users.items():
                began = time.perf_counter()
                sums.append(own.sums(work).statistics)
                seconds[name].append(time.perf_counter() - began)
    assert all(np.array_equal(one, sums[0]) for one in sums)
    one, *others = (np.array(seconds[name][1:]) for name in cases)
    for name, own in zip(list(cases)[1:], others, strict=True):
        say(f"a step of {name}, faster than of one", np.median(one / own), "x, at least 1.7")


@contextmanager
def hold_by_cores(cluster, log, cores):
    """Hold a log in as many processes on this machine as there are numbers, each with so many cores."""
    (node,) = cluster.list_nodes()
    users = Shards(cluster, FromLog(log))
    with patch.object(cluster, "list_nodes", lambda **_: [replace(node, n_cpus=n) for n in cores]):
        users.fill()
    try:
        yield users
    finally:
        users.close()


def write_parts(folder, n_rows, n_users, n_parts=8):
    rng = np.random.default_rng(0)
    for i in range(n_parts):
        n = n_rows // n_parts
        columns = {"user": rng.integers(n_users, size=n), "reward": rng.standard_normal(n)}
        columns |= {f"x{j}": rng.standard_normal(n) for j in range(D)}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    return [f"x{j}" for j in range(D)]


def read_cpu_seconds():
    """Return the CPU seconds of this process and of each process of Ray that it started, by process."""
    return {pid: sum_cpu([pid]) for pid in _list_family(os.getpid())}


def count_since(before):
    """Return the CPU seconds since then; a process that has ended since, which held other users, does not count."""
    return sum(value - before.get(pid, 0.0) for pid, value in read_cpu_seconds().items())


def _list_family(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [int(pid), *(one for child in children for one in _list_family(int(child)))]


def measure_reading(cluster, n_rows, n_users):
    """A table of few rows tells what the start of the processes there costs."""
    with TemporaryDirectory() as place:
        folder, few = Path(place, "many"), Path(place, "few")
        for one, rows in ((folder, n_rows), (few, 8)):
            one.mkdir()
            names = write_parts(one, rows, n_users)

        def read_there(one):
            before = read_cpu_seconds()
            with cluster.read_log(one, columns=names):
                return count_since(before)  # before its process ends, which takes its seconds along

        def read_here():
            began = time.process_time()
            read_stats(folder, columns=names)
            return time.process_time() - began

        taken = {"here": [], "start": [], "there": []}
        for _ in range(4):  # the first time compiles and starts processes
            for name, seconds in (("here", read_here()), ("start", read_there(few)), ("there", read_there(folder))):
                taken[name].append(seconds)
    cpu = {name: float(np.median(values[1:])) for name, values in taken.items()}
    unit = "million rows per CPU second, at least"
    say("reading a folder of parts, one machine", n_rows / cpu["here"] / 1e6, f"{unit} 1.6")
    say("reading and shuffling parts, cluster", n_rows / (cpu["there"] - cpu["start"]) / 1e6, f"{unit} 0.97")
    say("the same with the start of processes", n_rows / cpu["there"] / 1e6, "million rows per CPU second")
    say("the start of processes", cpu["start"], "CPU s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only-reading", action="store_true")
    given = parser.parse_args()
    with lcb.connect("local") as cluster:
        measure_reading(cluster, given.rows, given.rows // 20)
        if not given.only_reading:
            stats = draw_stats(given.users)
            print(f"{given.users:,} users, d {D}, {N} classes:")
            measure_steps(cluster, stats, given.times)
            measure_fit(cluster, stats, given.steps)
            measure_scaling(cluster, stats, given.times)


if __name__ == "__main__":
    main()
