"""Where the users of a cluster come from: event files that every machine reads, or a log that is sent.

A source fills shards, also one that is started anew after a loss: it reads or sends what that shard had, again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lcb.arrays import Index
from lcb.cluster.calls import MOST_RESTARTS, Calls, Lost
from lcb.cluster.shard import FIRST, FileSummary, Rows, read_file
from lcb.cluster.trees import N_PARTS
from lcb.errors import ClusterError, InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.progress import Progress, count_up, silent
from lcb.runtime.memory import SHARE
from lcb.stats import n_packed
from lcb.storage.tables.codes import hash_ids
from lcb.storage.tables.event_rows import EventColumns
from lcb.storage.tables.sample import HashedUsers, UserSample, sample_hashes
from lcb.words import format_count

_IN_FLIGHT = 4  # messages that are on their way to a shard
_MESSAGE = 1 << 26  # bytes of users that are sent at a time
_NOTICE_SECONDS = 5.0  # after which Ray has noticed that a node is gone


@dataclass(eq=False)
class FromLog:
    """A log in the memory of this process; its parts are ranges of users."""

    log: EventLog
    features: tuple[str, ...] = ()

    def fill(self, cluster: Calls, shards: dict[int, Any], ends: Sequence[int], progress: Progress) -> dict[int, Any]:
        """Send their users to some shards; return what each holds, or that it was lost."""
        log, begins = self.log, np.linspace(0, self.log.n_users, N_PARTS + 1).astype(int).tolist()
        size = log.stats.packed.itemsize * len(log.stats.packed)
        calls: list[Any] = []
        owner: list[int] = []
        for number, shard in shards.items():
            pieces: dict[int, EventLog] = {}
            n_bytes, last = 0, ends[number + 1] - 1
            for part in range(ends[number], last + 1):
                users = slice(begins[part], begins[part + 1])
                if users.stop > users.start:
                    pieces[part] = _cut(log, users)
                    n_bytes += size * (users.stop - users.start)
                if pieces and (n_bytes >= _MESSAGE or part == last):
                    progress("sending users", part + 1, N_PARTS)
                    cluster.wait(calls[-_IN_FLIGHT : -_IN_FLIGHT + 1], "users that were sent")
                    calls.append(shard.add_pieces.remote(pieces))
                    owner.append(number)
                    pieces, n_bytes = {}, 0
        sent = cluster.wait(calls, "users that were sent")
        lost = {number: one for number, one in zip(owner, sent, strict=True) if isinstance(one, Lost)}
        nobody = _cut(log, slice(0, 0))
        found = cluster.wait([shard.finish_pieces.remote(nobody) for shard in shards.values()], "users that were sent")
        return {**dict(zip(shards, found, strict=True)), **lost}

    def check_memory(self, free: Sequence[float]) -> None:
        need_room(self.log.n_users, self.log.n_features, self.log.stats.packed.dtype.itemsize, free)

    def count_bytes(self, n_users: int) -> float:
        return count_bytes(n_users, self.log.n_features, self.log.stats.packed.dtype.itemsize)


def _cut(log: EventLog, users: slice) -> EventLog:
    """Return some neighbouring users, with the arms of all."""
    stats = replace(log.stats, packed=np.ascontiguousarray(log.stats.packed[:, users]), users=())
    clicks = log.clicks
    if clicks is not None:
        clicks = replace(clicks, clicked=clicks.clicked[users], passed=clicks.passed[users])
    return EventLog(stats, clicks, log.two_valued, None, log.constant)


@dataclass(eq=False)
class FromFiles:
    """Event files; the parts are hash buckets of the users' names."""

    files: list[str]
    asked: EventColumns
    sample: UserSample | HashedUsers | None
    dtype: str
    summaries: list[FileSummary] = field(default_factory=list)
    rewards: tuple[float, ...] | None = None  # of all shards, once they are known
    free: tuple[float, ...] = ()  # bytes of memory on each machine

    def fill(self, cluster: Calls, shards: dict[int, Any], ends: Sequence[int], progress: Progress) -> dict[int, Any]:
        """Read the files with all CPUs, and give each of some shards the rows of its users."""
        calls = self._read(cluster, list(shards), ends, progress)
        found = self._wait(cluster, calls, list(shards), ends, progress)
        self.summaries = found
        features = check_same(found)
        self._need_room()
        added = {
            number: [shard.add_rows.remote(call[1 + i], features) for call in calls]
            for i, (number, shard) in enumerate(shards.items())
        }
        lost = _find_lost({number: cluster.wait(own, "rows for a node") for number, own in added.items()})
        if not lost and self.rewards is None:
            seen = cluster.wait([shard.count_rewards.remote() for shard in shards.values()], "the rewards")
            lost = _find_lost({number: [one] for number, one in zip(shards, seen, strict=True)})
            if not lost:
                self.rewards = tuple(sorted({value for one in seen for value in one})[:3])
        if lost:  # the others have begun as well: all are filled anew
            return {number: lost.get(number, next(iter(lost.values()))) for number in shards}
        done = [shard.finish.remote(self.rewards or (), self.dtype) for shard in shards.values()]
        return dict(zip(shards, cluster.wait(done, "statistics"), strict=True))

    def read_few(self, cluster: Calls, positions: Index, progress: Progress = silent) -> EventLog:
        """Read the rows of some of the first users, by their hashes, into this process; users keep this order."""
        few = replace(self, sample=HashedUsers(self._find_smallest()[positions]))
        calls = few._read(cluster, [0], [0, N_PARTS], progress)
        few._wait(cluster, calls, [0], [0, N_PARTS], progress)
        features = check_same(self.summaries)
        builder = LogBuilder(len(features), features, keep_rows=True)
        for call, file in zip(calls, self.files, strict=True):
            (rows,) = cluster.wait([call[1]], f"some rows of {file}")
            _refuse_lost(rows, f"reading {file}")
            if isinstance(rows, Rows):
                builder.add(rows.user.to_pylist(), rows.x, rows.reward)
        log = builder.build()
        return log.take(np.argsort(hash_ids(pa.array(log.stats.users)), kind="stable"))

    def _find_smallest(self) -> NDArray[np.uint64]:
        """Return the smallest hashes of all files, at least `FIRST` if there are so many."""
        return np.unique(np.concatenate([one.hashes for one in self.summaries]))

    def check_memory(self, free: Sequence[float]) -> None:
        """Keep how much memory is free on each machine; it is compared once the files are read."""
        self.free = tuple(free)

    def count_bytes(self, n_users: int) -> float:
        return count_bytes(n_users, len(check_same(self.summaries)), np.dtype(self.dtype).itemsize)

    def _need_room(self) -> None:
        hashes = self._find_smallest()
        n_users = len(hashes) if len(hashes) <= FIRST else sample_hashes(hashes, FIRST).n_in_all
        need_room(n_users, len(check_same(self.summaries)), np.dtype(self.dtype).itemsize, self.free)

    def _read(self, cluster: Calls, wanted: list[int], ends: Sequence[int], progress: Progress) -> list[list[Any]]:
        progress("reading files", 0, len(self.files))
        return [self._read_one(cluster, file, wanted, ends) for file in self.files]

    def _read_one(self, cluster: Calls, file: str, wanted: list[int], ends: Sequence[int]) -> list[Any]:
        keep = self.sample.keep if self.sample else None
        read = cluster.ray.remote(read_file).options(
            num_cpus=1, num_returns=1 + len(wanted), max_retries=MOST_RESTARTS, scheduling_strategy="SPREAD"
        )
        answers: list[Any] = read.remote(file, self.asked, keep, list(ends), wanted)
        return answers

    def _wait(
        self, cluster: Calls, calls: list[list[Any]], wanted: list[int], ends: Sequence[int], progress: Progress
    ) -> list[FileSummary]:
        """Wait until all files are read; those that a lost node was reading are read again."""
        for attempt in range(MOST_RESTARTS + 1):
            told = count_up(progress, "reading files", len(calls))
            found = cluster.wait([call[0] for call in calls], "the events", told)
            lost = [i for i, answer in enumerate(found) if isinstance(answer, Lost)]
            if not lost:
                return found
            if attempt == MOST_RESTARTS:
                _refuse_lost(found[lost[0]], f"reading {self.files[lost[0]]}")
            time.sleep(_NOTICE_SECONDS)
            for i in lost:
                calls[i] = self._read_one(cluster, self.files[i], wanted, ends)
        return []


def check_same(summaries: Sequence[FileSummary]) -> tuple[str, ...]:
    """Return the features of all files; refuse files that differ, or have no rows at all."""
    filled = [one for one in summaries if one.n_rows]
    if not filled:
        raise InputError(f"{os.path.dirname(summaries[0].path)} has no rows; give a table with at least one row")
    first = filled[0]
    for one in filled:
        if one.features != first.features:
            here, there = ", ".join(one.features[:20]), ", ".join(first.features[:20])
            raise InputError(f"{one.path} has the features {here}, {first.path} {there}; give parts of one table")
        if one.of_integers != first.of_integers:
            kinds = ("integers", "text") if one.of_integers else ("text", "integers")
            raise InputError(f"{one.path} column user holds {kinds[0]}, {first.path} {kinds[1]}; convert one")
    return first.features


def count_bytes(n_users: int, n_features: int, itemsize: int) -> float:
    """Return the memory that statistics need while they are built."""
    return 2.0 * n_users * n_packed(n_features) * itemsize


def need_room(n_users: int, n_features: int, itemsize: int, free: Sequence[float], beside: float = 0.0) -> None:
    """Raise ClusterError if statistics, and so many bytes beside, do not fit into the memory of the machines."""
    needed = count_bytes(n_users, n_features, itemsize) + beside
    if needed > SHARE * min(free) * len(free):
        raise ClusterError(
            f"statistics of about {n_users:,} users with {n_features} features need about {needed / 1e9:,.3g} GB of "
            f"memory on {format_count(len(free), 'node')}, where at least {min(free) / 1e9:,.3g} GB each are free; use "
            "--float32, --users or more nodes"
        )


def need_moved_room(n_users: int, needed: float, address: str, free: float) -> None:
    """Raise ClusterError if users of a machine that is gone do not fit on another one."""
    if needed > SHARE * free:
        raise ClusterError(
            f"a node is gone, and no other has room for its {n_users:,} users: they need about {needed / 1e9:,.3g} GB, "
            f"and the node {address} has {free / 1e9:,.3g} GB free; add a node and run the command again, or use "
            "--float32 or --users"
        )


def _refuse_lost(answer: Any, what: str) -> None:
    if isinstance(answer, Lost):
        raise ClusterError(f"{what} failed on the cluster: {answer.reason}; the file must be where every node finds it")


def _find_lost(answers: dict[int, list[Any]]) -> dict[int, Lost]:
    """Return the shards of which an answer was lost."""
    found = {number: [one for one in own if isinstance(one, Lost)] for number, own in answers.items()}
    return {number: own[0] for number, own in found.items() if own}
