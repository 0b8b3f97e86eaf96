"""CSV and TSV in batches of text cells; a row with too many or too few cells is a bad row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from lcb.errors import InputError
from lcb.storage.tables.row_errors import OnBadRow, refuse_row
from lcb.storage.tables.table import Batches, Kind, Rows, Table

_SEPARATORS = (";", "\t", "|", ",")
CSV_BYTES = 1 << 20  # at a time


def open_csv(path: str, delimiter: str = ",", names: Sequence[str] = (), quoted: bool = True) -> Table:
    """Open a table of text cells; `names` are given if the file has no header."""
    header, first = (tuple(names), ()) if names else _read_first_rows(path, delimiter)

    def read(columns: Mapping[str, Kind], on_bad_row: OnBadRow) -> Batches:
        bad: list[tuple[int, int]] = []  # row, number of cells

        def skip(row: Any) -> str:
            bad.append((row.number - (not names), row.actual_columns))
            return "skip"

        options = {
            "read_options": pa.csv.ReadOptions(
                block_size=CSV_BYTES, use_threads=False, column_names=list(names) or None
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=quoted,
                quote_char='"' if quoted else False,
                invalid_row_handler=None if on_bad_row is refuse_row else skip,  # None: stop at the first bad row
            ),
            "convert_options": pa.csv.ConvertOptions(
                check_utf8=False, include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string())
            ),
        }
        n_seen = n_reported = 0

        def report() -> int:
            for row, n_cells in bad[n_reported:]:
                message = f"{n_cells} cells, the header has {len(header)}"
                on_bad_row(path, row, "another number of cells than the header", message)
            return len(bad)

        try:
            for batch in pa.csv.open_csv(path, **options):
                n_reported = report()
                yield batch, _number_rows(n_seen, batch.num_rows, [row for row, _ in bad])
                n_seen += batch.num_rows
        except pa.ArrowInvalid:
            if quoted:
                _check_cells(path, delimiter, len(header))
            raise
        n_reported = report()
        if quoted and _count_quotes(path) % 2:  # an unclosed quote hides the rows after it
            _check_cells(path, delimiter, len(header))

    numeric = tuple(name for name, cell in zip(header, first, strict=False) if _is_number(cell))
    return Table(path, header, read, numeric=numeric)


def _read_first_rows(path: str, delimiter: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the header and the first row of data."""
    with _open_text(path) as text:
        rows = (tuple(row) for row in csv.reader(text, delimiter=delimiter) if row)
        try:
            names, first = next(rows, ()), next(rows, ())
        except csv.Error as error:
            raise InputError(f"{path} does not start like CSV ({error}); close its quotes") from None
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        raise InputError(f"{path} has a header that is not UTF-8 text; save the file as UTF-8")
    other = (
        next((one for one in _SEPARATORS if one != delimiter and one in names[0]), None) if len(names) == 1 else None
    )
    if other is not None:
        came = {"\t": "a tab", " ": "a blank"}.get(other, other)
        wanted = {"\t": "a tab"}.get(delimiter, delimiter)
        remedy = "name it .tsv" if other == "\t" else f"save it with {wanted} between columns"
        raise InputError(f"{path} has one column, {names[0]!r}: columns seem to be separated by {came}; {remedy}")
    return names, first


def _open_text(path: str) -> io.TextIOWrapper:
    """Open a text file, plain or gzipped; bytes that are not UTF-8 become lone surrogates."""
    return io.TextIOWrapper(pa.input_stream(path), encoding="utf-8-sig", errors="surrogateescape", newline="")


def _number_rows(n_seen: int, n_rows: int, skipped: Sequence[int]) -> Rows:
    """Return the row numbers of the next `n_rows` rows that were not skipped.

    >>> _number_rows(1, 3, skipped=[2, 4]).tolist()
    [3, 5, 6]
    """
    rows = np.arange(n_seen + 1, n_seen + n_rows + 1)
    n_before = np.asarray(skipped, np.int64) - np.arange(len(skipped))  # rows kept before each skipped one, plus 1
    return rows + np.searchsorted(n_before, rows, side="right")


def _check_cells(path: str, delimiter: str, n_cells: int) -> None:
    """Read the file row by row and refuse the first row that is not `n_cells` well-quoted cells."""
    row = 0
    try:
        with _open_text(path) as text:
            for cells in islice(csv.reader(text, delimiter=delimiter, strict=True), 1, None):
                row += bool(cells)
                if cells and len(cells) != n_cells:
                    refuse_row(path, row, "", f"{len(cells)} cells, the header has {n_cells}")
    except csv.Error as error:
        refuse_row(path, row + 1, "", f"a quote is not closed, or is inside a text ({error})")


def _count_quotes(path: str) -> int:
    with pa.input_stream(path) as stream:
        return sum(block.count(b'"') for block in iter(lambda: stream.read(CSV_BYTES), b""))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
