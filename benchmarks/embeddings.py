"""100,000 items with embeddings of 384 numbers and 20,000 users: import, learn, evaluate over items.

    python benchmarks/embeddings.py [ITEMS [USERS [NUMBERS]]]

Two planted kinds of users like opposite ends of one of eight hidden directions.  Prints wall and CPU seconds of each
command and the largest memory of all its processes together (proportional set size, looked at twice a second).
Every option that is not named has its default: all algorithms, three seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make(folder: Path, n_items: int, n_users: int, m: int) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(n_items, 8)).astype(np.float32)
    base = np.linalg.qr(rng.normal(size=(m, 8)))[0].astype(np.float32)
    vectors = hidden @ base.T + 0.05 * rng.standard_normal((n_items, m), np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), m)
    pq.write_table(pa.table({"item": np.arange(n_items), "embedding": lists}), folder / "items.parquet")
    user = np.repeat(np.arange(n_users), 40)
    item = rng.integers(0, n_items, len(user))
    mean = 0.3 + 0.2 * np.clip(np.where(user % 2 == 0, hidden[item, 0], -hidden[item, 0]), -1, 1)
    clicks = pa.table({"user": user, "item": item, "reward": (rng.random(len(user)) < mean).astype(float)})
    pq.write_table(clicks, folder / "clicks.parquet")


def list_processes(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [one for child in task.read_text().split() for one in list_processes(int(child))]
        except OSError:  # it has ended
            continue
    return found


def read_memory(pid: int) -> int:
    """Return the bytes of a process, with what it shares divided among those that share it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def run(words: list[str], folder: Path) -> None:
    began, before, most = time.monotonic(), os.times(), 0
    process = subprocess.Popen([Path(sys.executable).with_name("lcb"), *words], cwd=folder)
    while process.poll() is None:
        most = max(most, sum(map(read_memory, list_processes(process.pid))))
        time.sleep(0.5)
    seconds, used = time.monotonic() - began, os.times()
    cpu = used.children_user + used.children_system - before.children_user - before.children_system
    print(
        f"lcb {words[0]}: exit {process.returncode}, {seconds:.0f} s, CPU {cpu:.0f} s, {most / 1e9:.2f} GB", flush=True
    )


def main(n_items: int = 100_000, n_users: int = 20_000, m: int = 384) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, n_items, n_users, m)
        files = ["clicks.parquet", "--items", "items.parquet", "--item-features", "embedding"]
        run(["import", *files, "--out", "log"], folder)
        run(["learn", "log", "--out", "models"], folder)
        run(["evaluate", "log", "--arms", "items"], folder)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
