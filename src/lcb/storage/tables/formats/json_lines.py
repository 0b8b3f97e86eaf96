"""JSON lines in batches: the first rows give the types; a block that does not fit them is read again line by line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from lcb.errors import InputError
from lcb.storage.tables.row_errors import OnBadRow, refuse_row
from lcb.storage.tables.table import Batches, Kind, Rows, Table

JSON_BYTES = 4 << 20  # at a time
_LONGEST_LINE = 16 << 20
_N_FIRST_ROWS = 1000  # from which names and types are taken
_BLANK_LINES = re.compile(rb"\n\s+")
_NUMBERS = ("number", "number or text")


def open_json_lines(path: str) -> Table:
    """Open a table of one JSON object per line; its columns are those of the first rows."""
    block = next(_iterate_blocks(path), b"")
    if not block:
        raise InputError(f"{path} has no rows; give a table with at least one row")
    first = _find_first_values(path, block.split(b"\n", _N_FIRST_ROWS)[:_N_FIRST_ROWS])
    values = {name: value for name, (_, value) in first.items()}

    def read(columns: Mapping[str, Kind], on_bad_row: OnBadRow) -> Batches:
        types = {name: _infer_type(path, name, kind, *first.get(name, (1, None))) for name, kind in columns.items()}
        options = pa.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
        row = 1
        for block in _iterate_blocks(path):
            n_lines = block.count(b"\n") + 1
            try:
                table = pa.json.read_json(pa.BufferReader(block), parse_options=options).combine_chunks()
            except pa.ArrowInvalid:
                table = None
            if table is not None and table.num_rows == n_lines:
                yield table.to_batches()[0], np.arange(row, row + n_lines)
            else:
                cells = {name: _build_cell_reader(kind, types[name]) for name, kind in columns.items()}
                yield _read_lines(path, block.split(b"\n"), cells, row, on_bad_row)
            row += n_lines

    return Table(
        path,
        tuple(first),
        read,
        numeric=tuple(name for name, value in values.items() if isinstance(value, int | float)),
        lists=tuple(name for name, value in values.items() if isinstance(value, list)),
        may_have_more=True,
    )


def _iterate_blocks(path: str) -> Iterator[bytes]:
    """Yield complete, non-blank lines, megabytes at a time; a line too long to be a row is cut."""
    rest = b""
    with pa.input_stream(path) as stream:
        while chunk := stream.read(JSON_BYTES):
            head, newline, rest_of_chunk = chunk.rpartition(b"\n")
            block, rest = (rest + head, rest_of_chunk) if newline else (b"", rest + chunk)
            if len(rest) > _LONGEST_LINE:
                block, rest = rest, b""
            if block.strip():
                yield _BLANK_LINES.sub(b"\n", block.strip())
    if rest.strip():
        yield _BLANK_LINES.sub(b"\n", rest.strip())


def _find_first_values(path: str, lines: Sequence[bytes]) -> dict[str, tuple[int, Any]]:
    """Return the names in the first rows, each with its first value that is not null and the row of that value."""
    found: dict[str, tuple[int, Any]] = {}
    wrong = None
    for row, line in enumerate(lines, 1):
        try:
            record = _parse(line)
        except _BadLine as error:
            wrong = wrong or (row, str(error))
            continue
        found |= {name: (row, value) for name, value in record.items() if found.get(name, (0, None))[1] is None}
    if wrong and not found:
        refuse_row(path, wrong[0], "", wrong[1])
    if not found:
        raise InputError(f'{path} has no names in its rows; write one object per line, as {{"user": 1}}')
    return found


class _BadLine(Exception):
    """A line is not a JSON object, or a value in it is not of its column's type; says what is wrong."""


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_refuse_repeated_names)
    except UnicodeDecodeError:
        raise _BadLine("is not UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise _BadLine(f"is not one whole JSON object ({error})") from None
    if not isinstance(record, dict):
        raise _BadLine(f"is {short(record)}, not a JSON object; write one object per line")
    return record


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("it has the same name twice")
    return record


def _infer_type(path: str, name: str, kind: Kind, row: int, value: Any) -> Any:
    """Return the type of a column, from its first value."""
    if kind == "absent":
        return pa.null()
    if kind == "id":
        if isinstance(value, bool) or not isinstance(value, int | str | None):
            refuse_row(path, row, "", f"{name} is {short(value)}; an integer or a string is wanted")
        return pa.int64() if isinstance(value, int) else pa.string()
    if isinstance(value, list):
        return pa.list_(_infer_scalar_type(kind, value[0] if value else None))
    return _infer_scalar_type(kind, value)


def _infer_scalar_type(kind: Kind, value: Any) -> Any:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int) and kind not in _NUMBERS:
        return pa.int64()
    return pa.float64() if isinstance(value, int | float) or kind == "number" else pa.string()


def _read_lines(
    path: str,
    lines: Sequence[bytes],
    columns: Mapping[str, tuple[Any, Callable[[Any], Any]]],
    first_row: int,
    on_bad_row: OnBadRow,
) -> tuple[Any, Rows]:
    """Read lines one at a time; `columns` are types and readers of cells."""
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    rows = []
    for row, line in enumerate(lines, first_row):
        try:
            record = _parse(line)
        except _BadLine as error:
            on_bad_row(path, row, "no JSON object", str(error))
            continue
        found = {}
        for name, (_, read) in columns.items():
            try:
                found[name] = None if record.get(name) is None else read(record[name])
            except _BadLine as wanted:
                on_bad_row(path, row, f"{name} of another type", f"{name} is {short(record[name])}; {wanted}")
                break
        else:
            for name, cell in found.items():
                cells[name].append(cell)
            rows.append(row)
    made = pa.record_batch({name: pa.array(cells[name], kind) for name, (kind, _) in columns.items()})
    return made, np.asarray(rows, np.int64)


def _build_cell_reader(kind: Kind, expected: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the type of a column that is read line by line, and the function that converts its values."""
    if kind == "absent":
        return expected, _refuse_any
    if kind == "id":
        return expected, _read_integer if pa.types.is_integer(expected) else _read_string
    scalar, read = (pa.float64(), _read_number) if kind == "number" else (pa.string(), _read_text)
    if not pa.types.is_list(expected):
        return scalar, read
    wanted = "a list of numbers is wanted" if kind in _NUMBERS else "a list is wanted"
    return pa.list_(scalar), lambda value: _read_list(value, read, wanted)


def _refuse_any(value: Any) -> None:
    raise _BadLine("the rows before have none, give it in every row or in none")


def _read_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _BadLine("the rows before have integers")
    if not -(2**63) <= value < 2**63:
        raise _BadLine("integers have 64 bits, write longer ids as strings in every row")
    return value


def _read_string(value: Any) -> str:
    if not isinstance(value, str):
        raise _BadLine("the rows before have text")
    if _has_lone_surrogate(value):
        raise _BadLine("Unicode text without lone surrogates is wanted")
    return value


def _read_number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise _BadLine("a number is wanted")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode() if _has_lone_surrogate(text) else text


def _read_list(value: Any, read: Callable[[Any], Any], wanted: str) -> list[Any]:
    if not isinstance(value, list):
        raise _BadLine(wanted)
    return [None if element is None else read(element) for element in value]


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
