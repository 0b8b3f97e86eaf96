"""Raw tables in batches: Parquet, CSV, TSV and JSON lines, told apart by suffix.

A batch comes with the numbers of its rows; row 1 is the first row of data.  Rows that cannot even be split into cells
(too many, too few, no JSON) are told to `Problems` and left out.  Text stays text: cells are converted later.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lcb.errors import EventError, InputError
from lcb.storage.importing.problems import Problems
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.batches import json_blocks
from lcb.storage.tables.diagnose import Place, check_csv_cells, json_record, naming, one_line, open_text
from lcb.storage.tables.json_lines import json_batches

_PARQUET_ROWS = 1 << 18
_CSV_BYTES = 1 << 22
_N_EXAMPLES = 1000
Rows = NDArray[np.int64]
Batches = Iterator[tuple[Any, Rows]]


@dataclass(frozen=True)
class RawTable:
    """A table that can be read: `read(columns, problems)` gives batches of these columns and their row numbers.

    `columns` says of each what it holds: "id", "number", "order" or "text".
    """

    path: str
    names: tuple[str, ...]
    read: Callable[[Mapping[str, str], Problems], Batches]
    n_rows: int | None = None

    def batches(self, columns: Mapping[str, str], problems: Problems) -> Batches:
        self.require(columns)
        with naming(self.path):
            yield from self.read(columns, problems)

    def require(self, names: Iterable[str]) -> None:
        """Refuse columns that are not there, or there twice."""
        for name in names:
            if name not in self.names:
                there = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
                raise InputError(one_line(f"{self.path} has no column {name}; it has {there}: name one of those"))
            if self.names.count(name) > 1:
                raise InputError(f"{self.path} has more than one column {name}; rename all but one")

    def whole(self, columns: Sequence[str]) -> dict[str, Any]:
        """A small table at once; its bad rows are refused."""
        problems = Problems()
        batches = [batch for batch, _ in self.batches(dict.fromkeys(columns, "text"), problems)]
        if problems.n_rows:
            raise InputError(f"{problems.lines()[0]}; mend the row")
        if not batches:
            raise InputError(f"{self.path} has no rows; give a table with at least one row")
        table = pa.Table.from_batches(batches)
        return {name: plain(table[name]) for name in columns}


def open_raw(path: str | os.PathLike[str]) -> RawTable:
    """Open a table by its suffix; only its beginning is read."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise InputError(f"{name} does not exist; give a file or a folder")
    if os.path.isdir(name):
        raise InputError(f"{name} is a folder of no known set; give a file, or see: lcb import --list")
    if os.path.getsize(name) == 0:
        raise InputError(f"{name} is empty; give a table with at least one row")
    for suffixes, opener in _OPENERS.items():
        if name.lower().endswith(suffixes):
            with naming(name):
                return opener(name)
    known = ", ".join(suffix for suffixes in _OPENERS for suffix in suffixes)
    raise InputError(f"{name} is of no known kind; give a file that ends in {known}")


# Parquet


def open_parquet(path: str) -> RawTable:
    file = pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True, pre_buffer=False)

    def read(columns: Mapping[str, str], problems: Problems) -> Batches:
        row = 1
        for batch in file.iter_batches(_PARQUET_ROWS, columns=list(columns)):
            yield batch, np.arange(row, row + batch.num_rows)
            row += batch.num_rows

    return RawTable(path, tuple(file.schema_arrow.names), read, file.metadata.num_rows)


# CSV


def open_csv(path: str, delimiter: str = ",", names: Sequence[str] = (), quoted: bool = True) -> RawTable:
    """A table of text cells; `names` where the file has no header."""
    header = tuple(names) or _header(path, delimiter)

    def read(columns: Mapping[str, str], problems: Problems) -> Batches:
        skipped: list[int] = []

        def unfit(row: Any) -> str:
            skipped.append(row.number - (not names))
            said = f"{row.actual_columns} cells, the header has {row.expected_columns}"
            problems.add_unread(path, skipped[-1], "another number of cells than the header", said)
            return "skip"

        batches = pa.csv.open_csv(
            path,
            read_options=pa.csv.ReadOptions(block_size=_CSV_BYTES, use_threads=False, column_names=list(names) or None),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=quoted,
                quote_char='"' if quoted else False,
                invalid_row_handler=unfit,
            ),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False, include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string())
            ),
        )
        return _numbered_batches(path, batches, skipped, len(header), quoted)

    return RawTable(path, header, read)


def _header(path: str, delimiter: str) -> tuple[str, ...]:
    with open_text(path) as text:
        try:
            names = next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
        except csv.Error as error:
            raise InputError(f"{path} does not start as CSV does ({error}); close its quotes") from None
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        raise InputError(f"{path} has a header that is not UTF-8 text; save the file as UTF-8")
    return tuple(names)


def _numbered_batches(path: str, batches: Iterable[Any], skipped: Sequence[int], n_cells: int, quoted: bool) -> Batches:
    n_seen = 0
    try:
        for batch in batches:
            yield batch, _numbered(n_seen, batch.num_rows, skipped)
            n_seen += batch.num_rows
    except pa.ArrowInvalid:
        if quoted:
            check_csv_cells(path, n_cells)
        raise
    if quoted and _n_quotes(path) % 2:  # an unclosed quote in the last column swallows the rows after it, unnoticed
        check_csv_cells(path, n_cells)


def _numbered(n_seen: int, n_rows: int, skipped: Sequence[int]) -> Rows:
    """Row numbers of the next rows of those that were not skipped.

    >>> _numbered(1, 3, skipped=[2, 4]).tolist()
    [3, 5, 6]
    """
    rows = np.arange(n_seen + 1, n_seen + n_rows + 1)
    n_before = np.asarray(skipped, np.int64) - np.arange(len(skipped))  # rows kept before each skipped one, plus 1
    return rows + np.searchsorted(n_before, rows, side="right")


def _n_quotes(path: str) -> int:
    with pa.input_stream(path) as stream:
        return sum(block.count(b'"') for block in iter(lambda: stream.read(_CSV_BYTES), b""))


# JSON lines


def open_json_lines(path: str) -> RawTable:
    first = next(json_blocks(path), b"")
    if not first:
        raise InputError(f"{path} has no rows; give a table with at least one row")
    example = _example(path, first.split(b"\n", _N_EXAMPLES)[:_N_EXAMPLES])

    def read(columns: Mapping[str, str], problems: Problems) -> Batches:
        return json_batches(path, {name: (kind, example.get(name)) for name, kind in columns.items()}, problems)

    return RawTable(path, tuple(example), read)


def _example(path: str, lines: Sequence[bytes]) -> dict[str, Any]:
    """The names of the first rows, each with its first value that is not null."""
    example: dict[str, Any] = {}
    wrong = None
    for i, line in enumerate(lines):
        try:
            record = json_record(line, Place(path), i)
        except EventError as error:
            wrong = wrong or error
            continue
        example |= {name: value for name, value in record.items() if example.get(name) is None}
    if not example:
        raise wrong or InputError(f"{path} has no names in its rows; write one object per line")
    return example


_OPENERS: dict[tuple[str, ...], Callable[[str], RawTable]] = {
    (".parquet", ".pq"): open_parquet,
    (".csv", ".csv.gz"): open_csv,
    (".tsv", ".tsv.gz"): lambda path: open_csv(path, "\t"),
    (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"): open_json_lines,
}
