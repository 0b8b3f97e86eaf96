"""Types of Arrow columns, and their cells converted: text parsed as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.frames import decode

_WORDS = ["false", "true"]  # no array: to make one, Arrow imports pandas where it is installed


def plain(column: Any) -> Any:
    """Return a column as one array without chunks and without dictionary encoding."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return decode(column)


def value_type(kind: Any) -> Any:
    """Return the type of the values, also of a dictionary-encoded column."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def use_common_types(table: Any) -> Any:
    """Return a table or a batch with texts as plain strings: libraries write them as views or with long offsets."""
    for j, field in enumerate(table.schema):
        kind = value_type(field.type)
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            table = table.set_column(j, field.with_type(pa.string()), _to_strings(table.column(j)))
    return table


def _to_strings(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_to_strings(chunk) for chunk in column.chunks], pa.string())
    return decode(column).cast(pa.string())


def is_number(kind: Any) -> bool:
    is_a = pa.types
    return bool(is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind) or is_a.is_boolean(kind))


def is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def parse_numbers(text: Any) -> Any:
    """Parse text as numbers; blanks around them, true and false are accepted.

    >>> parse_numbers(pa.array(["1", " 2.5", "True"])).to_pylist()
    [1.0, 2.5, 1.0]
    """
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        trimmed = pc.ascii_trim_whitespace(text)
        words = pc.index_in(pc.ascii_lower(trimmed), value_set=pa.array(_WORDS))
        others = pc.if_else(words.is_valid(), pa.scalar(None, pa.string()), trimmed)
        return pc.coalesce(words.cast(pa.float64()), others.cast(pa.float64()))


def split_lists(text: Any) -> Any:
    """Return cells such as "[0.1, 0.2]" or "[0.1 0.2]", as pandas and NumPy print them, as lists of text.

    >>> split_lists(pa.array(["[0.5, 1]", "[2 3 ]"])).to_pylist()
    [['0.5', '1'], ['2', '3']]
    """
    inside = pc.utf8_trim(text.cast(pa.string()), " []\n\t")
    return pc.split_pattern_regex(inside, r"\s*,\s*|\s+")


def are_lists(column: Any) -> bool:
    """Whether a column is of lists, or of text that begins as a list does."""
    if not is_string(column.type):
        return is_list(column.type)
    first = column.drop_null()[:1].to_pylist()
    return bool(first) and first[0].lstrip().startswith("[")


def convert_cells(column: Any, convert: Callable[[Any], Any]) -> tuple[Any, NDArray[np.int64]]:
    """Return the converted column, with null for cells that cannot be converted, and the indices of those cells.

    The whole column is tried first, then halves of the parts that fail.

    >>> made, failing = convert_cells(pa.array(["1", "x", "3"]), lambda part: part.cast(pa.int64()))
    >>> made.to_pylist(), failing.tolist()
    ([1, None, 3], [1])
    """
    parts: list[Any] = []
    failing: list[int] = []
    waiting = [(0, len(column))]
    while waiting:
        start, stop = waiting.pop()
        try:
            parts.append(convert(column[start:stop]))
        except pa.ArrowException:
            if stop - start == 1:
                failing.append(start)
                parts.append(None)
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
    kind = next((part.type for part in parts if part is not None), column.type)
    made = [pa.nulls(1, kind) if part is None else part for part in parts]
    return pa.concat_arrays(made), np.asarray(failing, np.int64)
