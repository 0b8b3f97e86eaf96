"""An event table as a stream of batches: Parquet, CSV and JSON lines, told apart by suffix."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from lcb.errors import InputError
from lcb.storage.tables._header import Header
from lcb.storage.tables.arrow import is_list, is_number, is_string, value_type
from lcb.storage.tables.diagnose import Place, check_csv_cells, json_batch, json_record, json_schema, naming, open_text

BATCH_ROWS = 65_536
_CSV_BYTES = 1 << 20  # at a time; the reader holds up to 32 times as many
_JSON_BYTES = 4 << 20
_LONGEST_LINE = 16 << 20
_BLANK_LINES = re.compile(rb"\n\s+")


@dataclass(frozen=True)
class Table:
    """A table being read, and which of its columns hold features; `batches` have only the columns needed."""

    arm: tuple[str, ...]
    user: tuple[str, ...]
    batches: Iterator[Any]
    n_rows: int | None = None


def open_table(path: str, columns: Sequence[str], user_columns: Sequence[str]) -> Table:
    """Open a table by its suffix; only its beginning is read, the rest as `batches` are taken."""
    opener = _opener(path)
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        raise InputError(f"{path} {what}; give the path of one event table")
    if os.path.getsize(path) == 0:
        raise InputError(f"{path} is empty; give a table with at least one event")
    with naming(path):
        return opener(path, columns, user_columns)


def _opener(path: str) -> Callable[[str, Sequence[str], Sequence[str]], Table]:
    for suffixes, opener in _OPENERS.items():
        if path.lower().endswith(suffixes):
            return opener
    known = ", ".join(suffix for suffixes in _OPENERS for suffix in suffixes)
    raise InputError(f"{path} is of no known kind; give a file that ends in {known}")


def _needed(arm: Sequence[str], user: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(("user", "reward", *arm, *user)))


def _named_batches(path: str, batches: Iterable[Any]) -> Iterator[Any]:
    with naming(path):
        yield from batches


# Parquet


def _open_parquet(path: str, columns: Sequence[str], user_columns: Sequence[str]) -> Table:
    file = pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True, pre_buffer=False)
    types = {field.name: value_type(field.type) for field in file.schema_arrow}
    header = Header(
        path,
        file.schema_arrow.names,
        numeric=[name for name, kind in types.items() if is_number(kind)],
        lists=[name for name, kind in types.items() if is_list(kind)],
    )
    arm, user = header.choose(columns, user_columns)
    _check_types(path, types, arm + user)
    batches = file.iter_batches(BATCH_ROWS, columns=_needed(arm, user))
    return Table(arm, user, _named_batches(path, batches), file.metadata.num_rows)


def _check_types(path: str, types: dict[str, Any], features: Sequence[str]) -> None:
    user = types["user"]
    if not (pa.types.is_integer(user) or is_string(user)):
        hint = " (one missing id turns integers into floats)" if pa.types.is_floating(user) else ""
        raise InputError(f"{path} column user holds {user}{hint}; integers or strings are wanted, convert it")
    numbers = {"reward": types["reward"]} | {name: _element_type(types[name]) for name in features}
    for name, kind in numbers.items():
        if not is_number(kind):
            raise InputError(f"{path} column {name} holds {types[name]}; numbers are wanted, convert it")


def _element_type(kind: Any) -> Any:
    return value_type(kind.value_type) if is_list(kind) else kind


# CSV: every column as text, so that a cell that is no number can be shown


def _open_csv(path: str, columns: Sequence[str], user_columns: Sequence[str]) -> Table:
    with open_text(path) as text:
        rows = (row for row in csv.reader(text) if row)
        try:
            names, first = next(rows, []), next(rows, [])
        except csv.Error as error:
            raise InputError(f"{path} does not start as CSV does ({error}); close its quotes") from None
    if not _is_text(names):
        raise InputError(f"{path} has a header that is not UTF-8 text; save the file as UTF-8")
    numeric = [name for name, cell in zip(names, first, strict=False) if _looks_numeric(cell)]
    arm, user = Header(path, names, numeric).choose(columns, user_columns)
    return Table(arm, user, _named_batches(path, _csv_batches(path, _needed(arm, user), len(names))))


def _csv_batches(path: str, needed: Sequence[str], n_cells: int) -> Iterator[Any]:
    options = {
        "read_options": pa.csv.ReadOptions(block_size=_CSV_BYTES),
        "parse_options": pa.csv.ParseOptions(newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            check_utf8=False, include_columns=needed, column_types=dict.fromkeys(needed, pa.string())
        ),
    }
    try:
        yield from pa.csv.open_csv(path, **options)
    except pa.ArrowInvalid:
        check_csv_cells(path, n_cells)
        raise
    if _n_quotes(path) % 2:  # an unclosed quote in the last column swallows the rows after it, unnoticed
        check_csv_cells(path, n_cells)


def _n_quotes(path: str) -> int:
    with pa.input_stream(path) as stream:
        return sum(block.count(b'"') for block in iter(lambda: stream.read(_CSV_BYTES), b""))


def _is_text(names: Sequence[str]) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for name in names for letter in name)


def _looks_numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# JSON lines: types from the first line; a block that does not fit them is read again, line by line


def _open_json_lines(path: str, columns: Sequence[str], user_columns: Sequence[str]) -> Table:
    blocks = json_blocks(path)
    block = next(blocks, b"")
    if not block:
        raise InputError(f"{path} has no rows; give a table with at least one event")
    record = json_record(block.split(b"\n", 1)[0], Place(path), 0)
    header = Header(
        path,
        list(record),
        numeric=[name for name, value in record.items() if isinstance(value, int | float)],
        lists=[name for name, value in record.items() if isinstance(value, list)],
    )
    arm, user = header.choose(columns, user_columns)
    schema = json_schema(record, _needed(arm, user), Place(path), absent=() if user else ("user_x",))
    return Table(arm, user, _named_batches(path, _json_batches(path, chain([block], blocks), schema)))


def _json_batches(path: str, blocks: Iterable[bytes], schema: Any) -> Iterator[Any]:
    row = 1
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    for block in blocks:
        n_lines = block.count(b"\n") + 1
        try:
            batch = pa.json.read_json(pa.BufferReader(block), parse_options=options).combine_chunks()
        except pa.ArrowInvalid:
            batch = None
        if batch is None or batch.num_rows != n_lines:
            batch = json_batch(block.split(b"\n"), schema, Place(path, row))
        yield batch
        row += batch.num_rows


def json_blocks(path: str) -> Iterator[bytes]:
    """Whole lines but the blank ones, megabytes at a time; a line too long to be an event comes cut off."""
    rest = b""
    with pa.input_stream(path) as stream:
        while chunk := stream.read(_JSON_BYTES):
            head, newline, rest_of_chunk = chunk.rpartition(b"\n")
            block, rest = (rest + head, rest_of_chunk) if newline else (b"", rest + chunk)
            if len(rest) > _LONGEST_LINE:
                block, rest = rest, b""
            if block.strip():
                yield _BLANK_LINES.sub(b"\n", block.strip())
    if rest.strip():
        yield _BLANK_LINES.sub(b"\n", rest.strip())


_OPENERS = {
    (".parquet", ".pq"): _open_parquet,
    (".csv", ".csv.gz"): _open_csv,
    (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"): _open_json_lines,
}
