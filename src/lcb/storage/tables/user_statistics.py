"""Reads a table of statistics, one row per user, made by one GROUP BY where the events are.

count         number of rewards
square_sum    sum of reward * reward
moment        list of d numbers: sum of reward * x[j]
gram          list of d * d numbers, row by row: sum of x[i] * x[j]
user          optional: an integer or a string, each once
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from lcb.arrays import LARGEST, Floats
from lcb.errors import InputError
from lcb.progress import Progress, silent
from lcb.stats import UserStats, upper
from lcb.storage.tables.codes import IntegerCodes, StringCodes
from lcb.storage.tables.event_rows import check_users, read_list_matrix, read_numbers
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.parts import list_parts
from lcb.storage.tables.row_errors import Place
from lcb.storage.tables.table import Kind

_COLUMNS: dict[str, Kind] = {"count": "number", "square_sum": "number", "moment": "number", "gram": "number"}
_ROUNDING = 1e-6  # relative: sums of floats differ by their order


def read_user_statistics(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str] = (),
    dtype: DTypeLike = np.float64,
    progress: Progress = silent,
) -> UserStats:
    """Return the statistics of a table, or of its parts; `features` are the names of the d features."""
    packed: list[Any] = []
    users = _Users()
    d, n_rows = len(features), 0
    for part in list_parts(path):
        table = open_table(part)
        columns: dict[str, Kind] = {**_COLUMNS, **({"user": "id"} if "user" in table.names else {})}
        first_row = 1
        for batch, _ in table.batches(columns):
            if batch.num_rows == 0:
                continue
            place = Place(part, first_row)
            d = d or _count_features(batch, place)
            packed.append(_read_batch(batch, d, place).astype(dtype))
            users.add(batch.column("user") if "user" in columns else None, place)
            first_row += batch.num_rows
            n_rows += batch.num_rows
            progress(f"reading {os.path.basename(part)}", n_rows, None)
    if not packed:
        raise InputError(f"{os.fspath(path)} has no rows; give a table with a row per user")
    names = tuple(features) or tuple(f"x{j}" for j in range(d))
    return UserStats(np.concatenate(packed, axis=1), d, users.names, names)


def _count_features(batch: Any, place: Place) -> int:
    column = batch.column("moment")
    if not pa.types.is_nested(column.type) or column.null_count or not len(column[0]):
        raise place.error(0, "moment is no list of numbers; it is [sum(reward * x1), sum(reward * x2), ...]")
    return len(column[0])


def _read_batch(batch: Any, d: int, place: Place) -> Floats:
    """Return the statistics (p, n) of a batch."""
    for name in ("moment", "gram"):
        if not pa.types.is_nested(batch.column(name).type):
            raise place.error(0, f"{name} is no list of numbers; it is a list of sums, see docs/large.md")
    count, square_sum = (read_numbers(batch.column(name), name, place) for name in ("count", "square_sum"))
    moment = read_list_matrix(batch.column("moment"), "moment", [f"moment[{j}]" for j in range(d)], place)
    cells = [f"gram[{i}, {j}]" for i in range(d) for j in range(d)]
    gram = read_list_matrix(batch.column("gram"), "gram", cells, place).reshape(-1, d, d)
    _check(count, square_sum, moment, gram, place)
    rows, columns = upper(d)
    return np.concatenate([gram[:, rows, columns].T, moment.T, square_sum[None], count[None]])


def _check(count: Floats, square_sum: Floats, moment: Floats, gram: Floats, place: Place) -> None:
    """Refuse sums that no rows can have."""
    flat = gram.reshape(len(gram), -1)
    for name, values in (("count", count), ("square_sum", square_sum), ("moment", moment), ("gram", flat)):
        wrong = ~(np.abs(values.reshape(len(values), -1)) <= LARGEST * LARGEST).all(axis=1)
        _refuse(wrong, f"{name} is not finite; every sum must be, leave out rows without a number", place)
    _refuse((count < 1) | (count != np.floor(count)), "count is no whole number above 0; it is count(*)", place)
    _refuse(square_sum < 0, "square_sum is below 0; it is sum(reward * reward)", place)
    size = np.sqrt(np.maximum(np.einsum("nii->ni", gram), 0))
    _refuse((np.einsum("nii->ni", gram) < 0).any(axis=1), "the diagonal of gram is below 0; it is sum(x * x)", place)
    room = _ROUNDING * size[:, :, None] * size[:, None, :]
    uneven = (np.abs(gram - gram.transpose(0, 2, 1)) > room).any(axis=(1, 2))
    _refuse(uneven, "gram is not symmetric; give all sums of x[i] * x[j], row by row", place)
    large = (np.abs(gram) > (1 + _ROUNDING) * size[:, :, None] * size[:, None, :]).any(axis=(1, 2))
    _refuse(large, "gram has a sum of x[i] * x[j] that its diagonal does not allow; sum the same rows", place)
    large = (np.abs(moment) > (1 + _ROUNDING) * size * np.sqrt(square_sum)[:, None]).any(axis=1)
    _refuse(large, "moment is larger than gram and square_sum allow; sum the same rows, without nulls", place)


def _refuse(wrong: Any, words: str, place: Place) -> None:
    if wrong.any():
        raise place.error(int(np.argmax(wrong)), words)


class _Users:
    """The names of the users, each once."""

    def __init__(self) -> None:
        self.codes: IntegerCodes | StringCodes | None = None
        self.n = 0

    @property
    def names(self) -> tuple[Any, ...]:
        return tuple(self.codes.names().to_pylist()) if self.codes else ()

    def add(self, column: Any | None, place: Place) -> None:
        if column is None:
            return
        ids = check_users(column, place)
        self.codes = self.codes or (IntegerCodes() if pa.types.is_integer(ids.type) else StringCodes())
        codes = self.codes.codes(ids)
        repeated = codes != np.arange(self.n, self.n + len(codes))
        if repeated.any():
            row = int(np.argmax(repeated))
            raise place.error(row, f"user {ids[row].as_py()!r} is there twice; GROUP BY user, one row each")
        self.n += len(codes)
