"""A pandas frame of 1,000,000 rows becomes an `EventLog`; beside it, the same rows read from Parquet.

    python benchmarks/frames.py [ROWS]

Both keep the rows and count clicks.  Times are CPU seconds, interleaved, the best of five.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import lcb


def main(n: int = 1_000_000) -> None:
    rng = np.random.default_rng(0)
    names = [f"feature{j}" for j in range(8)]
    x = rng.random((50, 8))[rng.integers(0, 50, n)]
    frame = pd.DataFrame(x, columns=names)
    frame["user"] = [f"u{i}" for i in rng.integers(0, 20_000, n)]
    frame["reward"] = (rng.random(n) < 0.3).astype(float)
    best = {"frame": np.inf, "parquet": np.inf}
    with TemporaryDirectory() as folder:
        path = Path(folder, "events.parquet")
        frame.to_parquet(path)
        tasks = {
            "frame": lambda: lcb.EventLog.from_table(frame, features=names),
            "parquet": lambda: lcb.read_log(path, columns=names, keep_rows=True),
        }
        for _ in range(5):
            for name, task in tasks.items():
                began = time.process_time()
                assert task().stats.n_events == n
                best[name] = min(best[name], time.process_time() - began)
    print(f"{n:,} rows: frame {best['frame']:.2f} s, Parquet {best['parquet']:.2f} s of CPU, ratio", end=" ")
    print(f"{best['frame'] / best['parquet']:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
