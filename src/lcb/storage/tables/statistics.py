"""Reads event tables into statistics, in batches.

A table is Parquet (.parquet, .pq), CSV (.csv), TSV (.tsv) or JSON lines (.jsonl, .ndjson), text also with .gz.
Each row is one event:

    user      an integer or a string; in a CSV always a string, so that 007 stays 007
    reward    a number or a truth value
    x         a list of numbers, the features of the arm taken; or, with `columns`, one column each
    user_x    a list of numbers, the features of the user, if any; or, with `user_columns`, one column each

The path may be a folder of parts of one kind or a pattern (`parts/*.parquet`): threads then read several parts at once,
and rows are added in the order of the parts, so the result does not depend on the number of threads.

The user's features are crossed with the arm's (`lcb.features.cross`).  Rows are read in batches, 65,536 of
Parquet or a few megabytes of text: memory grows with users, never with events.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from lcb.errors import InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.progress import Progress, silent
from lcb.runtime.parallel import read_ahead
from lcb.stats import UserStats
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.codes import IntegerCodes, StringCodes, hash_ids
from lcb.storage.tables.event_rows import EventColumns, EventRows, Keep, read_rows
from lcb.storage.tables.parts import list_parts
from lcb.storage.tables.sample import HashedUsers, UserSample


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
    asked = EventColumns(columns, user_columns, reward_range)
    return _read(path, asked, None, progress or silent, {"count": False}).build(dtype).stats


def read_log(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    user_columns: Sequence[str] = (),
    reward_range: tuple[float, float] | None = None,
    dtype: DTypeLike = np.float64,
    keep_rows: bool = False,
    users: Collection[Hashable] | None = None,
    sample: UserSample | HashedUsers | None = None,
    folder: str | os.PathLike[str] | None = None,
    user: str = "user",
    reward: str = "reward",
    progress: Progress | None = None,
) -> EventLog:
    """Do the same as `read_stats`, with counts of clicks if rewards are two-valued, and with rows if `keep_rows`.

    With `users`, the log has only the rows of these users; with `sample` (`lcb.storage.tables.sample.draw_users`), of
    those whose names have a small hash or one of some hashes.  With `folder`, the statistics are in files there, and
    users have no names.  `user` and `reward` name their columns.
    """
    asked, keep = EventColumns(columns, user_columns, reward_range, user, reward), sample.keep if sample else None
    if users is not None:
        keep = partial(_find_named, list(users))
    sums = _read(path, asked, keep, progress or silent, {"keep_rows": keep_rows, "folder": folder})
    return sums.build(dtype, named=folder is None)


def _find_named(names: list[Hashable], column: Any) -> NDArray[np.bool_]:
    column = plain(column)
    return np.asarray(pc.is_in(column, value_set=pa.array(names, column.type)).to_numpy(zero_copy_only=False))


def _read(
    path: str | os.PathLike[str], asked: EventColumns, keep: Keep | None, progress: Progress, kept: dict[str, Any]
) -> _Sums:
    parts, sums = list_parts(path), _Sums(kept)
    for rows in read_ahead([partial(read_rows, part, asked, keep) for part in parts]):
        sums.add(rows)
        progress(f"reading {os.path.basename(rows.path)}", sums.n_rows, rows.n_rows if len(parts) == 1 else None)
    if sums.builder is None:
        raise InputError(f"{os.fspath(path)} has no rows; give a table with at least one row")
    return sums


class _Sums:
    """Adds rows to the statistics; users get codes in the order of their first row."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept, self.n_rows = kept, 0
        self.builder: LogBuilder | None = None
        self.codes: IntegerCodes | StringCodes = IntegerCodes()
        self.first: EventRows | None = None

    def add(self, rows: EventRows) -> None:
        if self.first is None or self.builder is None:
            self.first = rows
            self.builder = LogBuilder(len(rows.features), rows.features, **self.kept)
            self.codes = IntegerCodes() if pa.types.is_integer(rows.user.type) else StringCodes()
        self._check_same(rows, self.first)
        self.builder.add_at(self.codes.codes(rows.user).astype(np.intp), rows.x, rows.reward)
        self.n_rows += rows.n_read

    def build(self, dtype: DTypeLike, *, named: bool = True) -> EventLog:
        assert self.builder is not None
        names = self.codes.names()
        log = self.builder.build(dtype, users=tuple(names.to_pylist()) if named else ())
        return replace(log, hashes=hash_ids(names))

    def _check_same(self, rows: EventRows, first: EventRows) -> None:
        """Refuse a part whose features or type of ids differ from those of the parts before."""
        if rows.features != first.features:
            here, there = ", ".join(rows.features[:20]), ", ".join(first.features[:20])
            raise InputError(f"{rows.path} has the features {here}, {first.path} {there}; give parts of one table")
        if pa.types.is_integer(rows.user.type) != pa.types.is_integer(first.user.type):
            kinds = ("integers", "text") if pa.types.is_integer(rows.user.type) else ("text", "integers")
            raise InputError(f"{rows.path} column user holds {kinds[0]}, {first.path} {kinds[1]}; convert one")
