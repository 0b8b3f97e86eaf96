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


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a table by its suffix; only its beginning is read."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise InputError(f"{name} does not exist; give the path of one table")
    if os.path.isdir(name):
        raise InputError(f"{name} is a folder; give the path of one table")
    opener = next((opener for suffixes, opener in _OPENERS.items() if name.lower().endswith(suffixes)), None)
    if opener is None:
        known = ", ".join(suffix for suffixes in _OPENERS for suffix in suffixes)
        raise InputError(f"{name} is of no known kind; give a file that ends in {known}")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name} is empty; give a table with at least one row")
    with name_file_in_errors(name):
        return opener(name)
