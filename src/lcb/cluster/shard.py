"""The users of one machine of a cluster: what the process there does.

Users are in 256 parts, which belong to the data: hash buckets of their names, or ranges of a log that was sent.  A
shard holds neighbouring parts, in their order; what it sums, it sums by part.  So the number of shards changes no bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.cluster.trees import N_PARTS, Sums
from lcb.errors import InputError
from lcb.event_log import Clicks, EventLog, LogBuilder
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import SumItems
from lcb.learners.shared.users import Work, sum_parts
from lcb.runtime import parallel
from lcb.runtime.memory import read_free_memory
from lcb.stats import UserStats, n_packed
from lcb.storage.tables.codes import IntegerCodes, StringCodes, hash_ids
from lcb.storage.tables.event_rows import EventColumns, EventRows, Keep, read_rows
from lcb.version import __version__

FIRST = 20_000  # users with the smallest hashes, of whom some are chosen to read their events again


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a file."""

    user: Any  # (n,) an Arrow array
    x: Floats  # (n, d)
    reward: Floats  # (n,)


@dataclass(frozen=True, eq=False)
class FileSummary:
    """What a file holds."""

    path: str
    features: tuple[str, ...]
    of_integers: bool  # its ids
    n_rows: int
    hashes: NDArray[np.uint64]  # the smallest of its users


@dataclass(frozen=True)
class Holding:
    """What a shard holds."""

    part_sizes: tuple[int, ...]  # users of each of its parts
    n_events: int
    rewards: tuple[float, ...]  # the different ones, at most three
    n_arms: int | None  # None: clicks are not counted


def find_part(hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the part of each hash.

    >>> find_part(np.array([0, 2**64 - 1], np.uint64)).tolist()
    [0, 255]
    """
    return (hashes >> np.uint64(56)).astype(np.intp)


def read_file(
    path: str, asked: EventColumns, keep: Keep | None, ends: Sequence[int], wanted: Sequence[int]
) -> list[FileSummary | Rows | None]:
    """Read a file; return its summary and its rows for each of the `wanted` shards.

    Shard s holds the parts from ends[s] to ends[s + 1].
    """
    if not os.path.exists(path):
        raise InputError(f"{path} is not on the node {gethostname()}; put the events where every node finds them")
    pieces: list[list[EventRows]] = [[] for _ in wanted]
    last: EventRows | None = None
    hashes, n_rows = np.zeros(0, np.uint64), 0
    place = np.full(len(ends) - 1, -1)
    place[list(wanted)] = np.arange(len(wanted))
    for rows in read_rows(path, asked, keep):
        own = hash_ids(rows.user)
        few = own if len(hashes) <= FIRST else own[own < hashes[-1]]
        hashes = np.unique(np.concatenate([hashes, few]))[: FIRST + 1] if len(few) else hashes
        n_rows, last = n_rows + len(rows.reward), rows
        if len(ends) == 2:
            pieces[0].append(rows)
            continue
        target = place[np.searchsorted(ends, find_part(own), side="right") - 1]
        order = np.argsort(target, kind="stable")
        bounds = np.searchsorted(target[order], np.arange(len(wanted) + 1))
        for i, piece in enumerate(pieces):
            chosen = order[bounds[i] : bounds[i + 1]]
            if len(chosen):
                user = rows.user.take(pa.array(chosen))
                piece.append(replace(rows, user=user, x=rows.x[chosen], reward=rows.reward[chosen]))
    if last is None:
        return [FileSummary(path, (), True, 0, hashes), *(None for _ in wanted)]
    summary = FileSummary(path, last.features, pa.types.is_integer(last.user.type), n_rows, hashes)
    return [summary, *(_join(piece) for piece in pieces)]


def _join(pieces: Sequence[EventRows]) -> Rows | None:
    if not pieces:
        return None
    users = [piece.user for piece in pieces]
    x, reward = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("x", "reward"))
    return Rows(pa.concat_arrays(users), x, reward)


class Shard:
    """The users of some neighbouring parts."""

    def __init__(self, parts: tuple[int, int], n_threads: int | None = None) -> None:
        self.parts = parts  # the first and the one after the last
        self._open = ExitStack()
        self.map = self._open.enter_context(parallel.threads(n_threads))
        self.builder: LogBuilder | None = None
        self.codes: IntegerCodes | StringCodes = IntegerCodes()
        self.log: EventLog | None = None
        self.pieces: dict[int, EventLog] = {}
        self.items: dict[int, ItemRows] = {}
        self.sizes: tuple[int, ...] = ()
        self.first = 0

    def describe(self) -> tuple[str, float]:
        """Return the version of lcb here, and the bytes of memory that are free."""
        return __version__, read_free_memory()

    # Users from files

    def add_rows(self, rows: Rows | None, features: tuple[str, ...]) -> int:
        """Add rows of a file, in the order of the files; return the users so far."""
        if self.builder is None:
            self.builder = LogBuilder(len(features), features)
            if rows is not None and not pa.types.is_integer(rows.user.type):
                self.codes = StringCodes()
        if rows is not None:
            self.builder.add_at(self.codes.codes(rows.user).astype(np.intp), rows.x, rows.reward)
        return self.builder.n_users

    def count_rewards(self) -> tuple[float, ...]:
        """Return the different rewards so far, at most three."""
        assert self.builder is not None
        return self.builder.rewards

    def finish(self, rewards: tuple[float, ...], dtype: str) -> Holding:
        """Make the statistics, in the order of the hashes; `rewards` are those of all shards."""
        assert self.builder is not None
        names = self.codes.names()
        hashes = hash_ids(names) if len(names) else np.zeros(0, np.uint64)
        log = self.builder.build(np.dtype(dtype), users=(), rewards=rewards)
        self.builder, self.codes = None, IntegerCodes()
        sizes = np.bincount(find_part(hashes), minlength=N_PARTS)
        return self._hold(log.take(np.argsort(hashes, kind="stable")), sizes)

    # Users that were sent

    def add_pieces(self, pieces: dict[int, EventLog]) -> None:
        """Keep the users of some parts."""
        self.pieces |= pieces

    def finish_pieces(self, nobody: EventLog) -> Holding:
        """Put the parts together, in their order; `nobody` is a log of no users."""
        logs = [self.pieces[part] for part in sorted(self.pieces)]
        sizes = np.zeros(N_PARTS, int)
        sizes[sorted(self.pieces)] = [log.n_users for log in logs]
        self.pieces = {}
        return self._hold(join_logs([nobody, *logs]), sizes)

    def _hold(self, log: EventLog, sizes: Index) -> Holding:
        self.log, self.sizes = log, tuple(sizes[slice(*self.parts)].tolist())
        rewards = log.levels or (() if log.constant is None else (log.constant,))
        arms = log.arms
        return Holding(self.sizes, log.n_events if log.n_users else 0, rewards, None if arms is None else len(arms))

    # Steps

    def get_arms(self) -> Floats | None:
        assert self.log is not None
        return self.log.arms

    def place_users(self, first: int, arms: Floats | None) -> None:
        """Say how many users are before these, and the arms of all shards."""
        assert self.log is not None
        self.first = first
        if arms is None:
            self.log = replace(self.log, clicks=None)
        elif self.log.clicks is not None:
            self.log = replace(self.log, clicks=number_arms(self.log.clicks, arms))

    def take(self, positions: Index) -> EventLog:
        """Return the users at these positions among those here, with the arms of all shards."""
        assert self.log is not None
        clicks = self.log.clicks
        if clicks is not None:
            clicks = replace(clicks, clicked=clicks.clicked[positions], passed=clicks.passed[positions])
        return EventLog(self.log.stats.take(positions), clicks, self.log.two_valued, None, self.log.constant)

    def sums(self, work: Work[Any]) -> Sums:
        """Return the sums over the parts that have users."""
        assert self.log is not None
        parts = self._list_parts()
        found = sum_parts(work, self.log, list(parts.values()), self.first, self.map) if parts else []
        return Sums.of(dict(zip(parts, found, strict=True)), *self.parts)

    def _list_parts(self) -> dict[int, slice]:
        """Return the users of each part that has some."""
        ends = np.cumsum(self.sizes).tolist()
        return {
            self.parts[0] + i: slice(end - size, end)
            for i, (size, end) in enumerate(zip(self.sizes, ends, strict=True))
            if size
        }

    # Rewards of items

    def add_item_rows(self, parts: dict[int, ItemRows]) -> None:
        """Keep the rewards of the users of some parts."""
        self.items |= parts

    def finish_items(self, x: Floats, effect: Floats, features: tuple[str, ...]) -> Holding:
        """Put the parts together, in their order; x (I, d) are the features of all items."""
        self.items = {part: replace(self.items[part], x=x) for part in sorted(self.items)}
        self.nobody = EventLog(UserStats(np.empty((n_packed(x.shape[1]), 0)), x.shape[1], (), features))
        return self.set_effect(effect)

    def set_effect(self, effect: Floats) -> Holding:
        """Hold the rewards less these effects (I,)."""
        logs = self.map(lambda rows: rows.history(effect), list(self.items.values()))
        sizes = np.zeros(N_PARTS, int)
        sizes[list(self.items)] = [log.n_users for log in logs]
        return self._hold(join_logs([self.nobody, *logs]), sizes)

    def sum_items(self, work: SumItems) -> Sums:
        """Return the sums over the rewards of each item, of the parts that have users."""
        found = self.map(work.run, list(self.items.values()))
        return Sums.of(dict(zip(self.items, found, strict=True)), *self.parts)


def number_arms(clicks: Clicks, arms: Floats) -> Clicks:
    """Return the counts with other columns: those of `arms` (A, d), which are sorted and contain all that are here."""
    from scipy.sparse import csr_array

    known = {row.tobytes(): i for i, row in enumerate(np.ascontiguousarray(arms))}
    column = np.array([known[row.tobytes()] for row in np.ascontiguousarray(clicks.arms)], np.int64)

    def renumber(counts: Any) -> Any:
        new = csr_array((counts.data, column[counts.indices], counts.indptr), (counts.shape[0], len(arms)))
        new.sum_duplicates()  # sorts, too
        return new

    return replace(clicks, arms=arms, clicked=renumber(clicks.clicked), passed=renumber(clicks.passed))


def join_logs(logs: Sequence[EventLog]) -> EventLog:
    """Return the users of several logs, one after the other; counted logs must have the same arms."""
    from scipy.sparse import vstack

    first = logs[0]
    packed = np.concatenate([log.stats.packed for log in logs], axis=1)
    stats = UserStats(packed, first.n_features, (), first.features)
    clicks = first.clicks
    counted = [log.clicks for log in logs if log.clicks is not None]
    if clicks is not None:
        clicked, passed = (vstack([getattr(one, name) for one in counted], "csr") for name in ("clicked", "passed"))
        clicks = replace(clicks, clicked=clicked, passed=passed)
    return EventLog(stats, clicks, first.two_valued, None, first.constant)
