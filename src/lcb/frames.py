"""DataFrames of other libraries, read through Arrow: pandas, polars, pyarrow, DuckDB, or a dictionary of columns.

    frame      anything with `__arrow_c_stream__` (the Arrow PyCapsule interface), or {"user": [...], ...}
    row        one event: the user, the reward, and what was shown: feature columns, or an item

Columns keep their names, which become the names of the features; a list column `v` gives v0, v1, ...  Without feature
columns each item is a feature of its own (one-hot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import EventError, InputError, need_extra
from lcb.stats import check_rows
from lcb.words import suggest

if TYPE_CHECKING:
    import pandas as pd

MOST_ITEMS = 300  # one-hot features; statistics of a user grow with the square of their number
_MEND = "correct or drop the row"


@dataclass(frozen=True, eq=False)
class FrameRows:
    """The rows of a frame as arrays."""

    code: Index = field(repr=False)  # (n,) of the user
    users: list[Any] = field(repr=False)  # their names, by code, in the order of their first row
    x: Floats = field(repr=False)  # (n, d)
    reward: Floats = field(repr=False)  # (n,)
    features: tuple[str, ...]


def is_frame(value: object) -> bool:
    """Whether a value is a DataFrame, an Arrow table or a dictionary of columns."""
    return hasattr(value, "__arrow_c_stream__") or isinstance(value, Mapping)


def to_arrow(frame: Any) -> Any:
    """Return a frame as a pyarrow table, without copying where its library allows that.

    >>> to_arrow({"user": ["ann"], "reward": [1]}).column_names
    ['user', 'reward']
    """
    import pyarrow as pa

    if not is_frame(frame):
        raise InputError(
            f"{type(frame).__name__} is no table that Arrow can read; give a DataFrame of pandas 2.2 or polars, a "
            "pyarrow table, a DuckDB relation, or a dictionary of columns"
        )
    try:
        table = pa.table(dict(frame)) if isinstance(frame, Mapping) else pa.table(frame)
    except (pa.ArrowException, ValueError, TypeError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"the table cannot be converted to Arrow ({said}); give each column one type") from None
    if not table.num_rows:
        raise InputError("the table has no rows; give a table with at least one row")
    return table


def decode(column: Any) -> Any:
    """Return an Arrow array without dictionary encoding.

    A dictionary may hold values that no row has, such as the categories of a filtered pandas column, and nulls.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    return (values.cast(pa.string()) if pa.types.is_string_view(values.type) else values).take(column.indices)


def read_rows(
    frame: Any, *, user: str = "user", reward: str = "reward", item: str | None = None, features: Sequence[str] = ()
) -> FrameRows:
    """Read users, rewards and features; without `features`, the list column x, or else the items, one-hot."""
    table = to_arrow(frame)
    item, columns = _choose_features(table, item, (features,) if isinstance(features, str) else tuple(features))
    code, users = _code(_find(table, user), user)
    rewards = _read_numbers(_find(table, reward), f"reward (column {reward})")
    if columns:
        x, names = _read_features(table, columns)
    else:
        assert item is not None
        x, names = _read_items(_find(table, item), item)
    check_rows(x, rewards, place="table", features=names)
    return FrameRows(code, users, x, rewards, names)


def build_frame(
    columns: Mapping[str, Any], index: Sequence[Any] | None = None, name: str | None = None
) -> pd.DataFrame:
    """Return a pandas DataFrame of these columns."""
    with need_extra("frames"):
        import pandas as pd

    return pd.DataFrame(dict(columns), index=None if index is None else pd.Index(index, name=name))


def _choose_features(table: Any, item: str | None, features: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    names = table.column_names
    if features or item is not None:
        if len(set(features)) < len(features):
            raise InputError(f"features names a column twice in {', '.join(features)}; name each column once")
        return item, features
    if "x" in names:
        return None, ("x",)
    if "item" in names:
        return "item", ()
    raise InputError(
        f"neither features nor an item is named; give features=[...] or item=..., of the columns {_list(names)}"
    )


def _find(table: Any, name: str) -> Any:
    names = table.column_names
    if names.count(name) != 1:
        hint = suggest(name, names) or f"the columns are {_list(names)}"
        raise InputError(f"the table has {'no' if name not in names else 'more than one'} column {name}; {hint}")
    column = table[name].combine_chunks()
    import pyarrow as pa

    return decode(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def _code(column: Any, name: str) -> tuple[Index, list[Any]]:
    """Return the codes (n,) of a column of ids in the order of their first row, and the ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    row = _find_missing(column)
    if row is not None:
        raise EventError(f"table row {row + 1}: {name} is missing; every row needs one, {_MEND}")
    if pa.types.is_floating(kind):
        raise InputError(
            f"column {name} holds {kind} (one missing id turns integers into floats); integers or strings are wanted, "
            f"convert it with astype"
        )
    if not (pa.types.is_integer(kind) or _is_text(kind)):
        raise InputError(f"column {name} holds {kind}; integers or strings are wanted, convert it")
    if _is_text(kind):
        column = column.cast(pa.large_string())
        empty = pc.index(pc.equal(pc.binary_length(column), 0), True).as_py()
        if empty >= 0:
            raise EventError(f"table row {empty + 1}: {name} is empty; every row needs one, {_MEND}")
    coded = column.dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.intp, copy=False), coded.dictionary.to_pylist()


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _find_missing(column: Any) -> int | None:
    """Return the first row that is null or nan; None if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not column.null_count and not pa.types.is_floating(column.type):
        return None
    row = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
    return None if row < 0 else int(row)


def _read_numbers(column: Any, what: str) -> Floats:
    import pyarrow as pa

    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (is_number or pa.types.is_decimal(kind)):
        raise InputError(f"{what} holds {kind}; numbers are wanted, convert it")
    row = _find_missing(column)
    if row is not None:
        raise EventError(f"table row {row + 1}: {what} is missing; every row needs one, {_MEND}")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _read_features(table: Any, columns: Sequence[str]) -> tuple[Floats, tuple[str, ...]]:
    """Return the features (n, d) and their names, from columns of numbers and columns of lists."""
    import pyarrow as pa

    found = {name: _find(table, name) for name in columns}
    nested = {name for name, column in found.items() if pa.types.is_nested(column.type)}
    parts = {name: _read_lists(found[name], name) if name in nested else None for name in columns}
    widths = [1 if part is None else part.shape[1] for part in parts.values()]
    x, names, j = np.empty((table.num_rows, sum(widths))), [], 0
    for (name, part), width in zip(parts.items(), widths, strict=True):
        if part is None:
            x[:, j] = _read_numbers(found[name], f"feature {name}")
            names.append(name)
        else:
            x[:, j : j + width] = part
            names += [f"{name}{i}" for i in range(width)]
        j += width
    return x, tuple(names)


def _read_lists(column: Any, name: str) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InputError(f"feature {name} holds {kind}; numbers or lists of numbers are wanted, convert it")
    row = _find_missing(column)
    if row is not None:
        raise EventError(f"table row {row + 1}: feature {name} is missing; every row needs one, {_MEND}")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != lengths[0])
    if len(wrong) or not lengths[0]:
        row = int(wrong[0]) if len(wrong) else 0
        raise EventError(f"table row {row + 1}: feature {name} has {lengths[row]} numbers, row 1 {lengths[0]}; {_MEND}")
    return _read_numbers(column.flatten(), f"feature {name}").reshape(-1, int(lengths[0]))


def _read_items(column: Any, name: str) -> tuple[Floats, tuple[str, ...]]:
    """Return one feature per item, (n, items), and the names of the items."""
    code, items = _code(column, name)
    if len(items) > MOST_ITEMS:
        raise InputError(
            f"column {name} has {len(items):,} items, one feature each; at most {MOST_ITEMS} are possible: give "
            "features=[...] that describe the items, or import the log with categories (lcb import)"
        )
    x = np.zeros((len(code), len(items)))
    x[np.arange(len(code)), code] = 1.0
    return x, tuple(str(item) for item in items)
