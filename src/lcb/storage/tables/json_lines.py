"""JSON lines in batches: types from the first rows; a block that does not fit them is read again, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
from numpy.typing import NDArray

from lcb.errors import EventError, InputError
from lcb.storage.importing.problems import Problems
from lcb.storage.tables.batches import json_blocks
from lcb.storage.tables.diagnose import Place, json_record

Rows = NDArray[np.int64]


def json_batches(path: str, columns: Mapping[str, tuple[str, Any]], problems: Problems) -> Iterator[tuple[Any, Rows]]:
    """Batches of the columns, each given as (what it holds, an example), and the numbers of their rows."""
    schema = pa.schema({name: _type_of(path, name, *column) for name, column in columns.items()})
    ids = {name for name, (kind, _) in columns.items() if kind == "id"}
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    row = 1
    for block in json_blocks(path):
        n_lines = block.count(b"\n") + 1
        try:
            table = pa.json.read_json(pa.BufferReader(block), parse_options=options).combine_chunks()
        except pa.ArrowInvalid:
            table = None
        if table is not None and table.num_rows == n_lines:
            yield table.to_batches()[0], np.arange(row, row + n_lines)
        else:
            yield _line_by_line(Place(path), block.split(b"\n"), schema, ids, row, problems)
        row += n_lines


def _line_by_line(
    place: Place, lines: Sequence[bytes], schema: Any, ids: set[str], first: int, problems: Problems
) -> tuple[Any, Rows]:
    """What the fast reader gave up on: ids and lists must be of the first row's type, all else becomes text."""
    kinds = {field.name: _patient(field, ids) for field in schema}
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    rows = []
    for row, line in enumerate(lines, first):
        try:
            record = json_record(line, place, row - 1)
        except EventError as error:
            problems.add_unread(place.path, row, "no JSON object", str(error).partition(": ")[2])
            continue
        cells = {name: _cell(record.get(name), kind, name in ids) for name, kind in kinds.items()}
        wrong = next((name for name, cell in cells.items() if cell is _MIXED), None)
        if wrong is not None:
            said = f"{wrong} is {short(record[wrong])}; that of the first row is {_said(kinds[wrong])}"
            problems.add_unread(place.path, row, f"{wrong} of another type", said)
            continue
        for name, cell in cells.items():
            columns[name].append(cell)
        rows.append(row)
    made = pa.record_batch({name: pa.array(columns[name], kind) for name, kind in kinds.items()})
    return made, np.asarray(rows, np.int64)


_MIXED = object()  # stands for a value that is not of the type its column started with


def _type_of(path: str, name: str, kind: str, value: Any) -> Any:
    if kind == "id":
        if isinstance(value, bool) or not isinstance(value, int | str | None):
            raise InputError(f"{path} column {name} starts with {short(value)}; an integer or a string is wanted")
        return pa.int64() if isinstance(value, int) else pa.string()
    if isinstance(value, list):
        return pa.list_(pa.float64() if kind == "number" else _scalar(kind, value[0] if value else None))
    return _scalar(kind, value)


def _scalar(kind: str, value: Any) -> Any:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int | float):
        return pa.int64() if isinstance(value, int) and kind != "number" else pa.float64()
    return pa.string()


def _patient(field: Any, ids: set[str]) -> Any:
    if field.name in ids:
        return field.type
    return pa.list_(pa.string()) if pa.types.is_list(field.type) else pa.string()


def _cell(value: Any, kind: Any, is_id: bool) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_text(element) for element in value] if isinstance(value, list) else _MIXED
    if not is_id:
        return _text(value)
    if pa.types.is_integer(kind):
        fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        return value if fits else _MIXED
    return value if isinstance(value, str) and not _is_lone(value) else _MIXED


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode() if _is_lone(text) else text


def _is_lone(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _said(kind: Any) -> str:
    if pa.types.is_list(kind):
        return "a list"
    return "an integer" if pa.types.is_integer(kind) else "text"
