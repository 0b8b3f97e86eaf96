"""Reading parts, drawing a sample of users, and EM on statistics in files: rates per CPU second and ratios.

    python benchmarks/large.py --rows 4000000 --users 200000 --fit-users 500000
    python benchmarks/large.py --only-disk --fit-users 20000000 --folder /scratch       # 4.6 GB there, 6 GB of memory

The cases of a comparison take turns, three times each; the smallest CPU time counts, because other work on the machine
adds to all of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.errors import ConvergenceWarning
from lcb.learners.em import gaussian
from lcb.runtime.on_disk import allocate
from lcb.stats import StatsBuilder, UserStats, n_packed
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
    """Build the statistics of users of 30 classes with 5 rewards each, part by part, in a file of `folder`."""
    rng = np.random.default_rng(0)
    beta = rng.standard_normal((N_CLASSES, N_FEATURES))
    packed = allocate((n_packed(N_FEATURES), n_users), np.float64, folder)
    for i in range(0, n_users, 100_000):
        n = min(100_000, n_users - i)
        user, x = np.repeat(np.arange(n), 5), rng.standard_normal((5 * n, N_FEATURES))
        own = beta[rng.integers(N_CLASSES, size=n)][user]
        reward = np.einsum("nd,nd->n", x, own) + 0.5 * rng.standard_normal(len(user))
        builder = StatsBuilder(N_FEATURES)
        builder.add_at(user, x, reward)
        packed[:, i : i + n] = builder.build(users=()).packed
    return UserStats(packed, N_FEATURES)


class PeakAnonymous:
    """The most anonymous memory of this process in the block, in GB, looked at 20 times a second."""

    def __enter__(self):
        self.gb, self.ended = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _look(self):
        while not self.ended.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            self.gb = max(self.gb, *(int(line.split()[1]) / 1e6 for line in lines if line.startswith("RssAnon")))


def fit(stats, n_steps, n_threads):
    """Fit with starts and a prior, and so many steps on all users; return the models and seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = gaussian.fit(
            stats, N_CLASSES, rng=np.random.default_rng(0), max_steps=n_steps, tol=1e-12, n_threads=n_threads
        )
    return found.models, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def measure_disk(n_users, n_steps, n_times, n_threads, place):
    fit(UserStats(np.ones((n_packed(N_FEATURES), 100)), N_FEATURES), 2, n_threads)  # compiles
    with TemporaryDirectory(dir=place) as folder:
        with PeakAnonymous() as building:
            on_disk = build_stats(n_users, folder)
        with PeakAnonymous() as fitting:
            there, _ = fit(on_disk, n_steps, n_threads)
        in_memory = UserStats(np.array(on_disk.packed), N_FEATURES)
        seconds = {"memory": [], "disk": []}
        for _ in range(n_times):
            for name, stats in (("memory", in_memory), ("disk", on_disk)):
                models, took = fit(stats, n_steps, n_threads)
                assert np.array_equal(models.beta, there.beta)
                seconds[name].append(took)
    least = {name: {kind: min(one[kind] for one in all_) for kind in all_[0]} for name, all_ in seconds.items()}
    return {
        "users": n_users,
        "steps": n_steps,
        "statistics_gb": in_memory.packed.nbytes / 1e9,
        "most_anonymous_gb_building": building.gb,
        "most_anonymous_gb_fitting": fitting.gb,
        "seconds": least,
        "disk_over_memory": {kind: least["disk"][kind] / least["memory"][kind] for kind in least["disk"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--fit-users", type=int, default=500_000)
    parser.add_argument("--steps", type=int, default=10, help="of the fit")
    parser.add_argument("--times", type=int, default=2, help="that the fits take turns")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", help="for the statistics on disk")
    parser.add_argument("--only-disk", action="store_true")
    given = parser.parse_args()
    found = {} if given.only_disk else {"million rows per CPU second": measure_reading(given.rows, given.users)}
    on_disk = measure_disk(given.fit_users, given.steps, given.times, given.threads, given.folder)
    found |= {"statistics on disk": on_disk, "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
