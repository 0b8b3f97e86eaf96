"""The slow pass that names the row, and a patient second reading of what the fast reader gave up on.

The fast readers of CSV and JSON lines say only that something is wrong.  What is here says where, and it
accepts what is merely unusual, such as `true` among numbers.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from reprlib import repr as short
from typing import Any

import pyarrow as pa

from lcb.errors import EventError, InputError

MEND = "mend or drop the row"


@dataclass(frozen=True)
class Place:
    """Some rows of a file; row 1 is the first row of data.

    >>> str(Place("clicks.csv", first_row=100).error(5, "reward is missing; mend or drop the row"))
    'clicks.csv row 105: reward is missing; mend or drop the row'
    """

    path: str
    first_row: int = 1

    def error(self, index: int, what: str) -> EventError:
        return EventError(one_line(f"{self.path} row {self.first_row + index}: {what}"))


def one_line(text: object) -> str:
    """A message without line breaks.

    >>> one_line("no such\\ncolumn")
    'no such column'
    """
    return " ".join(str(text).splitlines())


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the reading library raises into one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        remedy = "write or download it again, or check its permissions"
        raise InputError(one_line(f"{path} could not be read ({error}); {remedy}")) from None


def first_failing(values: Any, works: Callable[[Any], bool]) -> int:
    """Index of the first value for which a whole-array operation fails, in log2(n) tries.

    >>> first_failing([4, 9, -1, 2], lambda part: min(part) >= 0)
    2
    """
    return bisect_left(range(len(values)), True, key=lambda i: not works(values[: i + 1]))


def open_text(path: str) -> io.TextIOWrapper:
    """A text file, or one compressed with gzip; bytes that are not UTF-8 come as lone surrogates."""
    return io.TextIOWrapper(pa.input_stream(path), encoding="utf-8-sig", errors="surrogateescape", newline="")


def check_csv_cells(path: str, n_cells: int) -> None:
    """Read a CSV file row by row and refuse the first that is not `n_cells` well-quoted cells."""
    row = 0
    try:
        with open_text(path) as text:
            for cells in islice(csv.reader(text, strict=True), 1, None):
                if cells and len(cells) != n_cells:
                    raise Place(path).error(row, f"{len(cells)} cells, the header has {n_cells}; {MEND}")
                row += bool(cells)
    except csv.Error as error:
        raise Place(path).error(row, f"a quote is not closed or stands amid text ({error}); {MEND}") from None


def json_record(line: bytes, place: Place, index: int) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        record = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except UnicodeDecodeError:
        raise place.error(index, "is not UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise place.error(index, f"is not one whole JSON object ({error}); {MEND}") from None
    if not isinstance(record, dict):
        raise place.error(index, f"is {short(record)}, not a JSON object; write one object per line, {MEND}")
    return record


def json_schema(record: dict[str, Any], columns: Sequence[str], place: Place, absent: Sequence[str]) -> Any:
    """The types to expect of every line, from the first; those that must stay `absent` have type null."""
    user = record["user"]
    if user is None or isinstance(user, bool) or not isinstance(user, int | str):
        raise place.error(0, f"user is {short(user)}; an integer or a string is wanted, {MEND}")
    fields = {name: _list_type(record[name]) or _number_type(record[name]) for name in columns}
    fields["user"] = pa.int64() if isinstance(user, int) else pa.string()
    fields["reward"] = _number_type(record["reward"])
    return pa.schema(fields | dict.fromkeys(absent, pa.null()))


def json_batch(lines: Sequence[bytes], schema: Any, place: Place) -> Any:
    """Lines as a batch, one at a time; raises for the first that does not fit `schema`."""
    converters = {field.name: _converter(field) for field in schema}
    columns: dict[str, list[Any]] = {name: [] for name in converters}
    for index, line in enumerate(lines):
        record = json_record(line, place, index)
        for name, convert in converters.items():
            try:
                columns[name].append(convert(record.get(name)))
            except _Unfit as wanted:
                came = short(record[name])
                raise place.error(index, f"{name} is {came}; {wanted}, {MEND}") from None
    return pa.record_batch({field.name: pa.array(columns[field.name], _patient(field)) for field in schema})


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name stands in it twice")
    return record


class _Unfit(Exception):
    """A value is not of its column's type; says what is wanted."""


def _number_type(value: Any) -> Any:
    return pa.bool_() if isinstance(value, bool) else pa.float64()


def _list_type(value: Any) -> Any:
    return pa.list_(_number_type(value[0] if value else None)) if isinstance(value, list) else None


def _patient(field: Any) -> Any:
    """The type of a column read one value at a time: truth values have become numbers."""
    if field.name == "user" or pa.types.is_null(field.type):
        return field.type
    return pa.list_(pa.float64()) if pa.types.is_list(field.type) else pa.float64()


def _converter(field: Any) -> Callable[[Any], Any]:
    if field.name == "user":
        return _integer if pa.types.is_integer(field.type) else _string
    if pa.types.is_null(field.type):
        return _nothing
    return _list if pa.types.is_list(field.type) else _number


def _integer(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _Unfit("the users before are integers")
    if value is not None and not -(2**63) <= value < 2**63:
        raise _Unfit("integers have 64 bits, write longer ids as strings in every row")
    return value


def _string(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise _Unfit("the users before are strings")
    if value is not None and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _Unfit("Unicode text without lone surrogates is wanted")
    return value


def _nothing(value: Any) -> None:
    if value is not None:
        raise _Unfit("the rows before have none, give it in every row or in none")


def _number(value: Any) -> float | None:
    if value is not None and not isinstance(value, int | float):
        raise _Unfit("a number is wanted")
    try:
        return None if value is None else float(value)
    except OverflowError:
        return math.inf


def _list(value: Any) -> list[float | None] | None:
    if value is not None and not isinstance(value, list):
        raise _Unfit("a list of numbers is wanted")
    return None if value is None else [_number(element) for element in value]
