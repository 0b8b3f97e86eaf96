"""Opens a table in a file, Parquet, CSV, TSV or JSON lines by its suffix."""

from __future__ import annotations

import os
from collections.abc import Callable

from lcb.errors import InputError
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.formats.json_lines import open_json_lines
from lcb.storage.tables.formats.parquet import open_parquet
from lcb.storage.tables.row_errors import name_file_in_errors
from lcb.storage.tables.table import Table

_OPENERS: dict[tuple[str, ...], Callable[[str], Table]] = {
    (".parquet", ".pq"): open_parquet,
    (".csv", ".csv.gz"): open_csv,
    (".tsv", ".tsv.gz"): lambda name: open_csv(name, "\t"),
    (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"): open_json_lines,
}


def find_kind(name: str) -> tuple[str, ...] | None:
    """Return the endings of tables that are read as the file of this name is; None if its ending is not known.

    >>> find_kind("clicks.CSV"), find_kind("notes.txt")
    (('.csv', '.csv.gz'), None)
    """
    return next((suffixes for suffixes in _OPENERS if name.lower().endswith(suffixes)), None)


def list_suffixes() -> str:
    """Return the endings of all tables, for messages."""
    return ", ".join(suffix for suffixes in _OPENERS for suffix in suffixes)


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a table by its suffix; only its beginning is read."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise InputError(f"{name} does not exist; give the path of one table")
    if os.path.isdir(name):
        raise InputError(f"{name} is a folder; give the path of one table")
    kind = find_kind(name)
    if kind is None:
        raise InputError(f"{name} is of no known kind; give a file that ends in {list_suffixes()}")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name} is empty; give a table with at least one row")
    with name_file_in_errors(name):
        return _OPENERS[kind](name)
