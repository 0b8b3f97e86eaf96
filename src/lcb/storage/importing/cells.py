"""Converts columns to numbers and times; a row with a cell that cannot be converted is bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.importing.bad_rows import Check, show_cell
from lcb.storage.tables.arrow import convert_cells, is_number, is_string, parse_numbers, plain

_ZONE = r"(Z|[+-]\d\d:?\d\d)\s*$"


def to_numbers(column: Any, name: str, check: Check) -> NDArray[np.float32]:
    """Convert numbers, truth values or text to float32; rows with infinite or missing values are bad."""
    column = plain(column)
    _refuse_missing(column, name, check)
    if is_string(column.type):
        column = _convert_or_refuse(column, parse_numbers, f"{name} is no number", name, "a number is wanted", check)
    elif not is_number(column.type):
        raise InputError(f"column {name} of {check.path} holds {column.type}; numbers are wanted, convert it")
    values = _fill_missing(column.cast(pa.float64(), safe=False))
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    said = "a finite number is wanted"
    check.refuse(~np.isfinite(found), f"{name} is not finite", lambda i: f"{name} is {values[i]}; {said}")
    return found


def to_whole_numbers(column: Any, name: str, check: Check) -> Any:
    """Convert text or numbers to int64; a cell that is no whole number becomes null, and its row is bad."""
    column = plain(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    _refuse_missing(column, name, check)
    said = "a whole number is wanted"
    return _convert_or_refuse(column, _to_integers, f"{name} is no whole number", name, said, check)


class Orders:
    """Converts times or positions, all of one kind: whole numbers, numbers, or dates as microseconds since 1970."""

    def __init__(self) -> None:
        self.kind = ""

    def values(self, column: Any, name: str, check: Check) -> NDArray[Any]:
        """Return the values (n,), int64 or float64; 0 in bad rows."""
        column = plain(column)
        _refuse_missing(column, name, check)
        self.kind = self.kind or _find_kind(column, name, check)
        if is_string(column.type):
            said = f"a {self.kind} is wanted, as in most of the first rows"
            column = _convert_or_refuse(column, _PARSERS[self.kind], f"{name} is no time", name, said, check)
        elif _find_kind(column, name, check) != self.kind:
            raise InputError(f"column {name} of {check.path} holds {column.type}; the files before do not, convert one")
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        if self.kind != "number":
            said = "it is too large"
            return _fill_missing(_convert_or_refuse(column, _to_integers, f"{name} is no time", name, said, check))
        values = _fill_missing(column.cast(pa.float64()))
        check.refuse(~np.isfinite(values), f"{name} is not finite", lambda i: f"{name} is {values[i]}")
        return values


def _convert_or_refuse(
    column: Any, convert: Callable[[Any], Any], reason: str, name: str, said: str, check: Check
) -> Any:
    """Return the converted column; rows whose cell cannot be converted are bad."""
    blank = pc.is_null(column)
    if is_string(column.type):
        blank = pc.or_(blank, pc.fill_null(pc.equal(pc.binary_length(column), 0), True))
        column = pc.if_else(blank, pa.scalar(None, column.type), column)
    made, failing = convert_cells(column, convert)
    if len(failing):
        wrong = np.zeros(len(column), bool)
        wrong[failing] = True
        check.refuse(wrong, reason, lambda i: f"{name} is {show_cell(column, i)}; {said}")
    return made


def _refuse_missing(column: Any, name: str, check: Check) -> None:
    missing = np.array(column.is_null().to_numpy(zero_copy_only=False), bool)
    if is_string(column.type):
        blank = pc.fill_null(pc.equal(pc.binary_length(column), 0), False)
        missing |= blank.to_numpy(zero_copy_only=False)
    if missing.any():
        check.refuse(missing, f"{name} is missing", lambda i: f"{name} is missing")


def _fill_missing(column: Any) -> NDArray[Any]:
    """Return the values with 0 for null; rows with null are already marked as bad."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if column.null_count:
        column = pc.fill_null(column, 0)
    return np.asarray(column.to_numpy(zero_copy_only=False))


# How text is read


def _to_integers(values: Any) -> Any:
    return values.cast(pa.int64())


def _to_floats(text: Any) -> Any:
    return text.cast(pa.float64())


def _to_dates(text: Any) -> Any:
    """Parse dates; those without a time zone are taken as UTC."""
    zoned = pc.match_substring_regex(text, _ZONE)
    none = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, text, none).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    without = pc.if_else(zoned, none, text).cast(pa.timestamp("us")).cast(pa.int64())
    return pc.coalesce(with_zone, without)


_PARSERS = {"whole number": _to_integers, "number": _to_floats, "date": _to_dates}


def _find_kind(column: Any, name: str, check: Check) -> str:
    """Return the kind of a column of times: whole number, number or date; for text, its first 1,000 cells decide."""
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "whole number" if pa.types.is_integer(kind) else "number"
    if not is_string(kind):
        raise InputError(f"column {name} of {check.path} holds {kind}; numbers or dates are wanted, convert it")
    first = column.filter(pc.greater(pc.binary_length(column), 0))[:1000]
    n_failing = {found: len(convert_cells(first, parse)[1]) for found, parse in _PARSERS.items()}
    best = min(_PARSERS, key=lambda found: n_failing[found])
    if n_failing[best] < len(first) or not len(first):
        return best
    raise InputError(
        f"column {name} of {check.path} starts with {show_cell(first, 0)}; "
        "a number or a date such as 2024-05-01 12:30:00 is wanted"
    )
