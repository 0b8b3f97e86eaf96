"""100,000 items with embeddings of 384 numbers and 20,000 users: import, learn, evaluate over items.

    python benchmarks/embeddings.py [ITEMS [USERS [NUMBERS]]]

Two planted kinds of users like opposite ends of one of eight hidden directions.  Prints wall and CPU seconds and peak
memory of each command, run in a process of its own.
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


def run(words: list[str], folder: Path) -> None:
    began = time.monotonic()
    process = subprocess.Popen([Path(sys.executable).with_name("lcb"), *words], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    print(
        f"lcb {words[0]}: exit {os.waitstatus_to_exitcode(status)}, {seconds:.0f} s, CPU "
        f"{used.ru_utime + used.ru_stime:.0f} s, peak {used.ru_maxrss / 1e6:.2f} GB",
        flush=True,
    )


def main(n_items: int = 100_000, n_users: int = 20_000, m: int = 384) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, n_items, n_users, m)
        files = ["clicks.parquet", "--items", "items.parquet", "--item-features", "embedding"]
        run(["import", *files, "--out", "log"], folder)
        run(["learn", "log", "--out", "models"], folder)
        words = ["--arms", "items", "--seeds", "1", "--steps", "10", "--algorithms", "lcb-auto,popularity,random"]
        run(["evaluate", "log", *words, "--test-users", "2000"], folder)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
