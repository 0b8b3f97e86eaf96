"""Types of Arrow columns, and text parsed as numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WORDS = pa.array(["false", "true"])


def plain(column: Any) -> Any:
    """Return a column as one array without chunks and without dictionary encoding."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def value_type(kind: Any) -> Any:
    """Return the type of the values, also of a dictionary-encoded column."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
        words = pc.index_in(pc.ascii_lower(trimmed), value_set=_WORDS)
        others = pc.if_else(words.is_valid(), pa.scalar(None, pa.string()), trimmed)
        return pc.coalesce(words.cast(pa.float64()), others.cast(pa.float64()))
