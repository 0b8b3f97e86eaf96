"""Import a generated log of 50 million events, 1 in 200 of them twice, from Parquet.

    python benchmarks/import_log.py [--events 50000000] [--users 1000000] [--folder DIR]

Measured in a process of its own: events per CPU second of all threads together, and the peak of resident memory, for
two sizes of the log with the same users.  The files live in a temporary folder and are gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import save

N_ITEMS, N_CATEGORIES, BATCH = 20_000, 21, 1 << 20


def generate(folder: Path, n_events: int, n_users: int, text: bool) -> int:
    """A click log in the order of time, with sparse ids; returns the number of rows, duplicates among them."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 1 << 60, n_users)
    items = {"item": np.arange(N_ITEMS), "categories": [[int(c)] for c in rng.integers(0, N_CATEGORIES, N_ITEMS)]}
    pq.write_table(pa.table(items), folder / "items.parquet")
    writer, n_rows = None, 0
    for start in range(0, n_events, BATCH):
        n = min(BATCH, n_events - start)
        user = ids[(n_users * rng.random(n) ** 2).astype(np.int64)]
        item, reward = rng.integers(0, N_ITEMS, n), (rng.random(n) < 0.1).astype(np.int8)
        when = 1_600_000_000 + (start + np.arange(n)) // 20 + rng.integers(0, 3600, n)
        again = rng.integers(0, n, n // 200)
        rows = np.concatenate([np.arange(n), again])
        names = pa.array(user[rows])
        table = pa.table({"who": names.cast(pa.string()) if text else names, "what": item[rows], "click": reward[rows],
                          "when": when[rows]})  # fmt: skip
        writer = writer or pq.ParquetWriter(folder / "log.parquet", table.schema)
        writer.write_table(table)
        n_rows += len(rows)
    assert writer is not None
    writer.close()
    return n_rows


def measure(folder: Path) -> None:
    """Import the log of the folder and print what it took; run in a process of its own."""
    from lcb.storage.importing.import_log import import_log
    from lcb.storage.importing.table_source import Columns, table_source

    small = folder / "small.parquet"
    pq.write_table(pq.ParquetFile(folder / "log.parquet").read_row_group(0).slice(0, 1000), small)
    columns = Columns(user="who", item="what", reward="click", order="when")
    import_log(table_source(small, columns), folder / "warm")
    before, began = time.process_time(), time.perf_counter()
    found = import_log(table_source(folder / "log.parquet", columns, items=folder / "items.parquet"), folder / "out")
    row = {
        "rows": found.n_rows,
        "events": found.n_events,
        "duplicates": found.n_duplicates,
        "users": found.n_users,
        "cpu_seconds": round(time.process_time() - before, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "written_mb": found.files.events.stat().st_size >> 20,
    }
    print(json.dumps(row | {"rows_per_cpu_second": round(found.n_rows / row["cpu_seconds"])}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the temporary files go")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measure:
        measure(settings.measure)
        return
    rows = []
    for kind, n_events in (
        ("integers", settings.events // 5),
        ("integers", settings.events),
        ("text", settings.events // 5),
    ):
        with TemporaryDirectory(dir=settings.folder) as folder:
            generate(Path(folder), n_events, settings.users, kind == "text")
            words = [sys.executable, __file__, "--measure", folder]
            out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        rows.append({"ids": kind} | json.loads(out))
        print(rows[-1])
    save("import_log", rows)


if __name__ == "__main__":
    main()
