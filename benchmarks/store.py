"""Append batches of 100 events of 700 bytes to both stores, beside the same rows by a plain executemany and COPY.

    python benchmarks/store.py [--batches 200] [--postgres URL]

Each commit is on disk before the next batch.  Stores and plain ways take turns, batch by batch, on new databases; what
counts is the ratio.  Without a URL, `scripts/postgres` starts a server that is gone afterwards.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from timing import save

from lcb.storage.store.base import COLUMNS, NewRow, Store
from lcb.storage.store.open_store import open_store

N_ROWS, N_BYTES, N_USERS = 100, 700, 1000
Append = Callable[[list[NewRow]], None]


def batch(number: int) -> list[NewRow]:
    return [
        NewRow(f"{number:08x}{i:04x}{os.urandom(7).hex()}", "decision", f"u{(number * N_ROWS + i) % N_USERS}", 1,
               os.urandom(N_BYTES))
        for i in range(N_ROWS)
    ]  # fmt: skip


def by_store(store: Store) -> Append:
    seen = 0

    def append(rows: list[NewRow]) -> None:
        nonlocal seen
        seen = store.append(rows, seen).rows[-1].seq

    return append


def by_sqlite(file: Path) -> Append:
    """The store's table, its indexes and its care for the disk, and nothing else."""
    open_store(str(file)).close()
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("pragma synchronous = full")
    seen = 0

    def append(rows: list[NewRow]) -> None:
        nonlocal seen
        placed = [(seen + i, *row) for i, row in enumerate(rows, start=1)]
        connection.execute("begin immediate")
        connection.executemany(f"insert into event({COLUMNS}) values(?, ?, ?, ?, ?, ?)", placed)
        connection.execute("commit")
        seen += len(rows)

    return append


def by_postgres(url: str, name: str, copy: bool) -> Append:
    made = psycopg.connect(url, autocommit=True)
    made.execute(f"create table {name} (like event including all excluding constraints)")
    seen = 0

    def append(rows: list[NewRow]) -> None:
        nonlocal seen
        placed = [(seen + i, *row) for i, row in enumerate(rows, start=1)]
        made.execute("begin")
        with made.cursor() as cursor:
            if copy:
                with cursor.copy(f"copy {name}({COLUMNS}) from stdin (format binary)") as target:
                    target.set_types(["int8", "text", "text", "text", "int8", "bytea"])
                    for row in placed:
                        target.write_row(row)
            else:
                cursor.executemany(f"insert into {name}({COLUMNS}) values(%b, %b, %b, %b, %b, %b)", placed)
        made.execute("commit")
        seen += len(rows)

    return append


def measure(ways: dict[str, Append], n_batches: int) -> dict[str, float]:
    """Rows a second of each way."""
    seconds = dict.fromkeys(ways, 0.0)
    for number in range(-5, n_batches):  # the first warm up
        for name, append in ways.items():
            rows = batch(number + 5)
            began = time.perf_counter()
            append(rows)
            if number >= 0:
                seconds[name] += time.perf_counter() - began
    return {name: n_batches * N_ROWS / took for name, took in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--postgres")
    given = parser.parse_args()
    script = Path(__file__).parents[1] / "scripts" / "postgres"
    url = given.postgres or subprocess.run([script, "start"], capture_output=True, text=True, check=True).stdout.strip()
    try:
        with TemporaryDirectory() as folder:
            sqlite = open_store(f"{folder}/store.db")
            postgres = open_store(url)
            ways = {
                "sqlite store": by_store(sqlite), "sqlite executemany": by_sqlite(Path(folder) / "plain.db"),
                "postgres store": by_store(postgres), "postgres executemany": by_postgres(url, "by_many", False),
                "postgres copy": by_postgres(url, "by_copy", True),
            }  # fmt: skip
            rates = measure(ways, given.batches)
            sqlite.close()
            postgres.close()
    finally:
        if given.postgres is None:
            subprocess.run([script, "stop", url], check=True)
    rows = []
    for name, rate in rates.items():
        plain = f"{name.split()[0]} {'executemany' if name.startswith('sqlite') else 'copy'}"
        rows.append({"way": name, "rows_per_second": round(rate), "ratio": round(rate / rates[plain], 2)})
        print(f"{name:22s} {rate:8,.0f} rows/s   {rate / rates[plain]:.2f} of {plain}")
    save("store", rows)


if __name__ == "__main__":
    main()
