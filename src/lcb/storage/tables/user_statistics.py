"""Reads a table of statistics, one row per user, made by one GROUP BY where the events are.

count         number of rewards
square_sum    sum of reward * reward
moment        list of d numbers: sum of reward * x[j]
gram          list of d * d numbers, row by row: sum of x[i] * x[j]
user          optional: an integer or a string, each once
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.progress import Progress, silent
from lcb.stats import UserStats, upper
from lcb.storage.tables.arrow import is_list
from lcb.storage.tables.codes import IntegerCodes, StringCodes
from lcb.storage.tables.event_rows import check_present, check_users, read_list_matrix, read_numbers
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.parts import list_parts
from lcb.storage.tables.possible_sums import check_sums
from lcb.storage.tables.row_errors import Place
from lcb.storage.tables.table import Kind
from lcb.words import format_count

_COLUMNS: dict[str, Kind] = {"count": "number", "square_sum": "number", "moment": "number", "gram": "number"}


def read_user_statistics(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str] = (),
    dtype: DTypeLike = np.float64,
    progress: Progress = silent,
) -> UserStats:
    """Return the statistics of a table, or of its parts; `features` are the names of the d features."""
    _check_names(features)
    packed: list[Any] = []
    users = _Users()
    d = n_rows = 0
    for part in list_parts(path):
        table = open_table(part)
        columns: dict[str, Kind] = {**_COLUMNS, **({"user": "id"} if "user" in table.names else {})}
        users.start(part, "user" in columns)
        first_row = 1
        for batch, _ in table.batches(columns):
            if batch.num_rows == 0:
                continue
            place = Place(part, first_row)
            d = d or _count_features(batch, features, place)
            packed.append(_read_batch(batch, d, place).astype(dtype))
            users.add(batch.column("user") if "user" in columns else None, place)
            first_row += batch.num_rows
            n_rows += batch.num_rows
            progress(f"reading {os.path.basename(part)}", n_rows, None)
    if not packed:
        raise InputError(f"{os.fspath(path)} has no rows; give a table with a row per user")
    names = tuple(features) or tuple(f"x{j}" for j in range(d))
    return UserStats(np.concatenate(packed, axis=1), d, users.names, names)


def _check_names(features: Sequence[str]) -> None:
    for name in features:
        if list(features).count(name) > 1:
            raise InputError(f"columns has {name} more than once; give each feature of the lists a name of its own")


def _count_features(batch: Any, features: Sequence[str], place: Place) -> int:
    column = batch.column("moment")
    check_present(column, "moment", place)
    if not is_list(column.type) or not len(column[0]):
        raise place.error(0, "moment is no list of numbers; it is [sum(reward * x1), sum(reward * x2), ...]")
    if features and len(column[0]) != len(features):
        named = format_count(len(features), "feature")
        raise InputError(
            f"columns names {named} ({', '.join(features[:20])}), but the lists of {place.path} are of "
            f"{len(column[0])}: moment has {len(column[0])} numbers in row {place.first_row}; name each, in their order"
        )
    return len(column[0])


def _read_batch(batch: Any, d: int, place: Place) -> Floats:
    """Return the statistics (p, n) of a batch."""
    for name in ("moment", "gram"):
        if not is_list(batch.column(name).type):
            raise place.error(0, f"{name} is no list of numbers; it is a list of sums, see docs/large.md")
    count, square_sum = (read_numbers(batch.column(name), name, place) for name in ("count", "square_sum"))
    moment = read_list_matrix(batch.column("moment"), "moment", [f"moment[{j}]" for j in range(d)], place)
    _check_gram_lengths(batch.column("gram"), d, place)
    cells = [f"gram[{i}, {j}]" for i in range(d) for j in range(d)]
    gram = read_list_matrix(batch.column("gram"), "gram", cells, place).reshape(-1, d, d)
    check_sums(count, square_sum, moment, gram, place)
    rows, columns = upper(d)
    return np.concatenate([gram[:, rows, columns].T, moment.T, square_sum[None], count[None]])


def _check_gram_lengths(column: Any, d: int, place: Place) -> None:
    wrong = pc.not_equal(pc.list_value_length(column), d * d)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        words = f"moment has {d}: all {d} * {d} = {d * d} sums of x[i] * x[j] are wanted, row by row, in one list"
        raise place.error(row, f"gram has {format_count(len(column[row]), 'number')}, {words}")


class _Users:
    """The names of the users, each once in all tables."""

    def __init__(self) -> None:
        self.codes: IntegerCodes | StringCodes | None = None
        self.n = 0
        self.parts: list[tuple[str, bool]] = []  # path, whether it has names
        self.starts: list[int] = []  # users before each part

    @property
    def names(self) -> tuple[Any, ...]:
        return tuple(self.codes.names().to_pylist()) if self.codes else ()

    def start(self, part: str, named: bool) -> None:
        """Begin a table; all must have names, or none."""
        other = next((path for path, has_names in self.parts if has_names != named), None)
        if other is not None:
            which, without = (other, part) if not named else (part, other)
            raise InputError(f"{which} has a column user, {without} none; give it in all tables or in none")
        self.parts.append((part, named))
        self.starts.append(self.n)

    def add(self, column: Any | None, place: Place) -> None:
        if column is None:
            return
        ids = check_users(column, place)
        of_integers = bool(pa.types.is_integer(ids.type))
        self.codes = self.codes or (IntegerCodes() if of_integers else StringCodes())
        if isinstance(self.codes, IntegerCodes) != of_integers:
            kinds = ("integers", "text") if of_integers else ("text", "integers")
            raise InputError(f"{place.path} column user holds {kinds[0]}, {self.parts[0][0]} {kinds[1]}; convert one")
        codes = self.codes.codes(ids)
        repeated = codes != np.arange(self.n, self.n + len(codes))
        if repeated.any():
            row = int(np.argmax(repeated))
            self._refuse(ids[row].as_py(), int(codes[row]), row, place)
        self.n += len(codes)

    def _refuse(self, name: Any, code: int, row: int, place: Place) -> None:
        path, _ = self.parts[bisect_right(self.starts, code) - 1]
        if path != place.path:
            words = "give a user one row in all tables: add up its rows, or leave one table out"
            raise place.error(row, f"user {name!r} is in {path} too; {words}")
        raise place.error(row, f"user {name!r} is there twice; GROUP BY user, one row each")
