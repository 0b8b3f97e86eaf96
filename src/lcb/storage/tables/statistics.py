"""Reads event tables into statistics, in batches.

A table is Parquet (.parquet, .pq), CSV (.csv), TSV (.tsv) or JSON lines (.jsonl, .ndjson), text also with .gz.
Each row is one event:

    user      an integer or a string; in a CSV always a string, so that 007 stays 007
    reward    a number or a truth value
    x         a list of numbers, the features of the arm taken; or, with `columns`, one column each
    user_x    a list of numbers, the features of the user, if any; or, with `user_columns`, one column each

The user's features are crossed with the arm's (`lcb.features.cross`).  Rows are read in batches, 65,536 of
Parquet or a few megabytes of text: memory grows with users, never with events.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.features import cross, cross_names
from lcb.progress import Progress, silent
from lcb.stats import UserStats, check_rows
from lcb.storage.tables.arrow import parse_numbers, plain
from lcb.storage.tables.feature_columns import choose_features
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.row_errors import MEND, Place, find_first_failing
from lcb.storage.tables.table import Kind


def read_stats(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    user_columns: Sequence[str] = (),
    reward_range: tuple[float, float] | None = None,
    dtype: DTypeLike = np.float64,
    progress: Progress | None = None,
) -> UserStats:
    """Return the statistics of every user of an event table; users keep the order of their first row.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "clicks.csv")
    ...     _ = path.write_text("user,reward,age,hour\\nann,1,0.5,1\\nann,0,0.5,2\\nbob,true,0.25,1\\n")
    ...     stats = read_stats(path, columns=["age", "hour"])
    >>> stats.users, stats.count, stats.features
    (('ann', 'bob'), array([2., 1.]), ('age', 'hour'))
    """
    return _read(path, columns, user_columns, reward_range, progress, False, False).build(dtype).stats


def read_log(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    user_columns: Sequence[str] = (),
    reward_range: tuple[float, float] | None = None,
    dtype: DTypeLike = np.float64,
    keep_rows: bool = False,
    users: Collection[Hashable] | None = None,
    progress: Progress | None = None,
) -> EventLog:
    """Do the same as `read_stats`, with counts of clicks if rewards are two-valued, and with rows if `keep_rows`.

    With `users`, the log has only the rows of these users.
    """
    return _read(path, columns, user_columns, reward_range, progress, True, keep_rows, users).build(dtype)


def _read(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    user_columns: Sequence[str],
    reward_range: tuple[float, float] | None,
    progress: Progress | None,
    count: bool,
    keep_rows: bool,
    users: Collection[Hashable] | None = None,
) -> LogBuilder:
    name = os.fspath(path)
    table = open_table(name)
    arm, user = choose_features(table, columns, user_columns)
    kinds: dict[str, Kind] = {"user": "id", "reward": "number", **dict.fromkeys(arm + user, "number")}
    if table.may_have_more and not user:
        kinds["user_x"] = "absent"
    sums = _Sums(name, arm, user, reward_range, {"count": count, "keep_rows": keep_rows}, users)
    report = progress or silent
    for batch, _ in table.batches(kinds):
        sums.add(batch)
        report(f"reading {os.path.basename(name)}", sums.n_rows, table.n_rows)
    if sums.builder is None:
        raise InputError(f"{name} has no rows; give a table with at least one row")
    return sums.builder


class _Sums:
    """Adds batches to the statistics; the first row sets the length of the lists."""

    def __init__(
        self,
        path: str,
        arm_columns: Sequence[str],
        user_columns: Sequence[str],
        reward_range: tuple[float, float] | None,
        keep: dict[str, bool],
        users: Collection[Hashable] | None,
    ) -> None:
        self.path = path
        self.arm_columns, self.user_columns = arm_columns, user_columns
        self.reward_range = reward_range
        self.keep, self.users = keep, users
        self.n_rows = 0
        self.arm: tuple[str, ...] = ()
        self.user: tuple[str, ...] = ()
        self.builder: LogBuilder | None = None

    def add(self, batch: Any) -> None:
        if batch.num_rows == 0:
            return
        place = Place(self.path, self.n_rows + 1)
        codes, names = _code_users(batch.column("user"), place)
        reward = _read_numbers(batch.column("reward"), "reward", place)
        builder = self.builder or self._start(batch, place)
        x = _read_matrix(batch, self.arm_columns, self.arm, place)
        user_x = _read_matrix(batch, self.user_columns, self.user, place)
        self._check(x, self.arm, reward, place)
        if self.user:
            self._check(user_x, self.user, reward, place)
        rows = cross(x, user_x) if self.user else x
        if self.users is None:
            builder.add_coded(codes, names, rows, reward)
        else:
            wanted = np.array([name in self.users for name in names])[codes]
            builder.add([names[code] for code in codes[wanted].tolist()], rows[wanted], reward[wanted])
        self.n_rows += batch.num_rows

    def _check(self, x: Floats, features: Sequence[str], reward: Floats, place: Place) -> None:
        check_rows(
            x, reward, place=place.path, first_row=place.first_row, features=features, reward_range=self.reward_range
        )

    def _start(self, batch: Any, place: Place) -> LogBuilder:
        self.arm = _read_feature_names(batch, self.arm_columns, place)
        self.user = _read_feature_names(batch, self.user_columns, place)
        features = cross_names(self.arm, self.user) if self.user else self.arm
        self.builder = LogBuilder(len(features), features, **self.keep)
        return self.builder


def _code_users(column: Any, place: Place) -> tuple[Index, list[int | str]]:
    """Return the codes (n,) of a batch's users, and their names."""
    column = plain(column)
    _check_present(column, "user", place)
    coded = column.dictionary_encode()
    codes = coded.indices.to_numpy()
    try:
        users = coded.dictionary.to_pylist()
    except UnicodeDecodeError:
        row = int(np.argmax(codes == find_first_failing(coded.dictionary, _can_decode)))
        raise place.error(row, "user is not UTF-8 text; save the file as UTF-8") from None
    if "" in users:
        row = int(np.argmax(codes == users.index("")))
        raise place.error(row, f"user is empty; every row needs one, {MEND}")
    return codes, users


def _read_feature_names(batch: Any, columns: Sequence[str], place: Place) -> tuple[str, ...]:
    """Return the columns' own names, or x0, x1, ... for a list column x."""
    if not columns or not _is_list(batch.column(columns[0])):
        return tuple(columns)
    name = columns[0]
    _check_present(batch.column(name), name, place)
    n_features = len(batch.column(name)[0])
    if not n_features:
        raise place.error(0, f"{name} is an empty list; give every row the same features, at least one")
    return tuple(f"{name}{j}" for j in range(n_features))


def _read_matrix(batch: Any, columns: Sequence[str], features: Sequence[str], place: Place) -> Floats:
    """Return the values of `features` (n, d), from one list column or a column each."""
    if columns and _is_list(batch.column(columns[0])):
        return _read_list_matrix(batch.column(columns[0]), columns[0], features, place)
    x = np.empty((batch.num_rows, len(columns)))
    for j, name in enumerate(columns):
        x[:, j] = _read_numbers(batch.column(name), f"feature {name}", place)
    return x


def _read_list_matrix(column: Any, name: str, features: Sequence[str], place: Place) -> Floats:
    column = plain(column)
    _check_present(column, name, place)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths != len(features)).any():
        row = int(np.argmax(lengths != len(features)))
        raise place.error(row, f"{name} has {lengths[row]} numbers, the rows before {len(features)}; {MEND}")
    values = plain(column.flatten())
    if values.null_count:
        row, j = divmod(pc.index(values.is_null(), True).as_py(), len(features))
        raise place.error(row, f"feature {features[j]} is missing; every row needs one, {MEND}")
    return np.asarray(_to_floats(values).reshape(-1, len(features)))


def _read_numbers(column: Any, name: str, place: Place) -> Floats:
    """Return a column of numbers, truth values or, in a CSV, text as floats."""
    column = plain(column)
    _check_present(column, name, place)
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
        names.to_pylist()
    except UnicodeDecodeError:
        return False
    return True


def _check_present(column: Any, name: str, place: Place) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise place.error(row, f"{name} is missing; every row needs one, {MEND}")


def _is_list(column: Any) -> bool:
    return bool(pa.types.is_nested(column.type))


def _to_floats(column: Any) -> Floats:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
