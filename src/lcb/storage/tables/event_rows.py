"""The rows of an event table as arrays, checked batch by batch; an error names the file, the row and the column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.errors import EventError
from lcb.features import cross, cross_names
from lcb.stats import check_rows
from lcb.storage.tables.arrow import parse_numbers, plain
from lcb.storage.tables.feature_columns import check_id_type, choose_features
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.row_errors import MEND, Place, find_first_failing
from lcb.storage.tables.table import Kind

Keep = Callable[[Any], NDArray[np.bool_]]  # a column of users to a mask of the rows that are wanted


@dataclass(frozen=True)
class EventColumns:
    """Which columns of an event table are features (none named: x and user_x), and which rewards may occur."""

    columns: Sequence[str] = ()
    user_columns: Sequence[str] = ()
    reward_range: tuple[float, float] | None = None
    user: str = "user"  # the name of its column
    reward: str = "reward"


@dataclass(frozen=True, eq=False)
class EventRows:
    """Some rows of a part of a table."""

    path: str
    features: tuple[str, ...]
    user: Any  # (n,) an Arrow array of integers or strings
    x: Floats  # (n, d)
    reward: Floats  # (n,)
    n_read: int  # rows of the file, also those that were not kept
    n_rows: int | None  # of the whole file, if it says so


def read_rows(path: str, asked: EventColumns, keep: Keep | None = None) -> Iterator[EventRows]:
    """Yield the rows of a table in batches, only those of users that `keep` wants."""
    table = open_table(path).rename({"user": asked.user, "reward": asked.reward})
    arm, user = choose_features(table, asked.columns, asked.user_columns)
    kinds: dict[str, Kind] = {"user": "id", "reward": "number", **dict.fromkeys(arm + user, "number")}
    if table.may_have_more and not user:
        kinds["user_x"] = "absent"
    part: _Part | None = None
    first_row = 1
    for batch, _ in table.batches(kinds):
        if batch.num_rows == 0:
            continue
        place = Place(path, first_row)
        part = part or _Part(arm, user, batch, place, asked.reward_range)
        users = check_users(batch.column("user"), place)
        if keep is None:
            yield part.convert(batch, users, place, table.n_rows)
        else:
            yield part.convert_kept(batch, users, keep, place, table.n_rows)
        first_row += batch.num_rows


class _Part:
    """Converts batches; the first row sets the length of the lists."""

    def __init__(
        self,
        arm_columns: Sequence[str],
        user_columns: Sequence[str],
        batch: Any,
        place: Place,
        reward_range: tuple[float, float] | None,
    ) -> None:
        self.arm_columns, self.user_columns, self.reward_range = arm_columns, user_columns, reward_range
        self.arm = _read_feature_names(batch, arm_columns, place)
        self.user = _read_feature_names(batch, user_columns, place)
        self.features = cross_names(self.arm, self.user) if self.user else self.arm

    def convert(self, batch: Any, users: Any, place: Place, n_rows: int | None) -> EventRows:
        reward = read_numbers(batch.column("reward"), "reward", place)
        x = _read_matrix(batch, self.arm_columns, self.arm, place)
        user_x = _read_matrix(batch, self.user_columns, self.user, place)
        self._check(x, self.arm, reward, place)
        if self.user:
            self._check(user_x, self.user, reward, place)
            x = cross(x, user_x)
        return EventRows(place.path, self.features, users, x, reward, batch.num_rows, n_rows)

    def convert_kept(self, batch: Any, users: Any, keep: Keep, place: Place, n_rows: int | None) -> EventRows:
        mask = pa.array(keep(users))
        try:
            kept = self.convert(batch.filter(mask), users.filter(mask), place, n_rows)
        except EventError:
            self.convert(batch, users, place, n_rows)  # the same error, with the number of the row in the file
            raise
        return EventRows(kept.path, kept.features, kept.user, kept.x, kept.reward, batch.num_rows, n_rows)

    def _check(self, x: Floats, features: Sequence[str], reward: Floats, place: Place) -> None:
        check_rows(
            x, reward, place=place.path, first_row=place.first_row, features=features, reward_range=self.reward_range
        )


def check_users(column: Any, place: Place) -> Any:
    """Return a column of ids that are all present: int64 or strings."""
    column = plain(column)
    check_id_type(column.type, place.path)
    check_present(column, "user", place)
    if pa.types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise place.error(0, "a user after this row is 2^63 or more; write the ids as text") from None
    if not _can_decode(column):
        row = find_first_failing(column, _can_decode)
        raise place.error(row, "user is not UTF-8 text; save the file as UTF-8")
    empty = pc.equal(pc.binary_length(column), 0)
    if pc.any(empty).as_py():
        raise place.error(pc.index(empty, True).as_py(), f"user is empty; every row needs one, {MEND}")
    return column


def _read_feature_names(batch: Any, columns: Sequence[str], place: Place) -> tuple[str, ...]:
    """Return the columns' own names, or x0, x1, ... for a list column x."""
    if not columns or not _is_list(batch.column(columns[0])):
        return tuple(columns)
    name = columns[0]
    check_present(batch.column(name), name, place)
    n_features = len(batch.column(name)[0])
    if not n_features:
        raise place.error(0, f"{name} is an empty list; give every row the same features, at least one")
    return tuple(f"{name}{j}" for j in range(n_features))


def _read_matrix(batch: Any, columns: Sequence[str], features: Sequence[str], place: Place) -> Floats:
    """Return the values of `features` (n, d), from one list column or a column each."""
    if columns and _is_list(batch.column(columns[0])):
        return read_list_matrix(batch.column(columns[0]), columns[0], features, place)
    x = np.empty((batch.num_rows, len(columns)))
    for j, name in enumerate(columns):
        x[:, j] = read_numbers(batch.column(name), f"feature {name}", place)
    return x


def read_list_matrix(column: Any, name: str, features: Sequence[str], place: Place) -> Floats:
    """Return a column of lists as (n, d); every list must have one number for each of `features`."""
    column = plain(column)
    check_present(column, name, place)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths != len(features)).any():
        row = int(np.argmax(lengths != len(features)))
        raise place.error(row, f"{name} has {lengths[row]} numbers, the rows before {len(features)}; {MEND}")
    values = plain(column.flatten())
    if values.null_count:
        row, j = divmod(pc.index(values.is_null(), True).as_py(), len(features))
        raise place.error(row, f"feature {features[j]} is missing; every row needs one, {MEND}")
    return np.asarray(_to_floats(values).reshape(-1, len(features)))


def read_numbers(column: Any, name: str, place: Place) -> Floats:
    """Return a column of numbers, truth values or, in a CSV, text as floats."""
    column = plain(column)
    check_present(column, name, place)
    if not pa.types.is_string(column.type):
        return _to_floats(column)
    try:
        return _to_floats(parse_numbers(column))
    except pa.ArrowInvalid:
        row = find_first_failing(column, _can_parse)
        cell = column[row].as_buffer().to_pybytes().decode(errors="replace").strip()
        came = short(cell) if cell else "empty"
        raise place.error(row, f"{name} is {came}; a number is wanted, {MEND}") from None


def _can_parse(text: Any) -> bool:
    try:
        parse_numbers(text)
    except pa.ArrowInvalid:
        return False
    return True


def _can_decode(names: Any) -> bool:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def check_present(column: Any, name: str, place: Place) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise place.error(row, f"{name} is missing; every row needs one, {MEND}")


def _is_list(column: Any) -> bool:
    return bool(pa.types.is_nested(column.type))


def _to_floats(column: Any) -> Floats:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
