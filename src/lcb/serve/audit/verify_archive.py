"""Verifies a compacted log with its archive: everything is recomputed from the first event on, in a temporary store.

Beside the log itself, what was derived from the archived events is made again and compared: the base (`check_rows`),
the files of rewards that `lcb learn` reads, and the ids of archived decisions that the store remembers.  Snapshots are
compared with a fold of the base and the events after it, as the service makes them: a fold of all events may add up
numbers in another order.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lcb.errors import StoreError, StoreUnavailable
from lcb.progress import Progress, silent
from lcb.serve.audit.checks.base import check_digest
from lcb.serve.audit.checks.bodies import read_body
from lcb.serve.audit.checks.order import check_head, check_order
from lcb.serve.audit.checks.rows import check_rows
from lcb.serve.audit.checks.snapshots import check_snapshots
from lcb.serve.audit.report import Report
from lcb.serve.audit.verify import CACHED_BYTES, check_file, verify
from lcb.serve.event_ids import WORLD_SNAPSHOT, changes_reward, slot_of_reward
from lcb.serve.read_event import read_event
from lcb.serve.retain.archive import REWARD_SCHEMA, Archive, Part, build_table
from lcb.serve.retain.compact import build_reward
from lcb.serve.retain.whole_log import open_restored, open_whole
from lcb.serve.retain.without_snapshots import WithoutSnapshots
from lcb.serve.state.per_user.cache_on_disk import CacheOnDisk
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.logs.files import FEATURE_MAP
from lcb.storage.store.base import VOIDING, Head, Row, Store
from lcb.storage.store.retention import hash_id
from lcb.storage.store.sqlite.backup import RepeatedEvent


def verify_whole(
    store: Store, folder: Path, progress: Progress = silent, *, user: str | None = None, heads: Sequence[Head] = ()
) -> Report:
    """Verify a log with its archive, from its first event on; again if a user is erased or the log compacted then."""
    while True:
        report = _verify_once(store, folder, progress, user, heads)
        if not any(row.kind in VOIDING for row in store.events(report.upto)):
            return report


def _verify_once(store: Store, folder: Path, progress: Progress, user: str | None, heads: Sequence[Head]) -> Report:
    base = read_base(store)
    try:
        with open_restored(store, folder, progress) as whole:
            report = verify(whole, progress, user=user, heads=heads, whole=True)
            if base is not None and user is None:
                archive = Archive(folder, base.upto)
                check_rows(store, whole, archive, report)
                _check_ids(store, archive, report)
                for path in archive.list_strangers():
                    words = "does not belong to the archive; remove it, because no erasure changes it"
                    report.add_words(None, f"{path} {words}")
                _RewardsCheck(whole, archive, report).run()
        _compare_snapshots(store, None if user is None else CACHED_BYTES, report, progress)
    except RepeatedEvent:  # such a log cannot be replayed; say which events these are
        report = Report(store.head())
        check_order(open_whole(store, folder), report.upto, heads, report, progress)
    for row, seal in store.sealed_events(report.upto - 1, report.upto):
        check_head(store, Head(row.seq, seal.link), report)
    check_digest(store, report)
    if user is None:
        check_file(store, report)
    return report


def _compare_snapshots(store: Store, cached_bytes: int | None, report: Report, progress: Progress) -> None:
    """Compare the snapshots of a store with its log, replayed from the base without them."""
    kept, upto = store.snapshot(WORLD_SNAPSHOT), store.head()
    base = read_base(store)
    with CacheOnDisk(cached_bytes) as cache:
        log = WithoutSnapshots(store, base=0 if base is None else base.upto)
        world = World(log, cache=cache)
        log.world = weakref.proxy(world)  # in no cycle: the state is freed at once
        try:
            world.load(upto)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a damaged log raises is reported)
            words = f"the snapshots were not compared with the log: its replay ends ({type(error).__name__}: {error})"
            report.add_words(None, words)
            return
        check_snapshots(world, store, upto, kept, report, progress)


def _check_ids(store: Store, archive: Archive, report: Report) -> None:
    """Compare the remembered ids of archived decisions with the archive; of some, the store still has the events."""
    wanted = {hash_id(row.id): row for row, _ in archive.sealed_events(0, archive.upto) if row.kind == "decision"}
    found = set(store.list_archived())
    here = {hash_id(row.id) for row in store.events(0, archive.upto) if row.kind == "decision"}
    for one in sorted(wanted.keys() - found - here, key=lambda one: wanted[one].seq):
        words = "is not in the table of archived ids, so it could be used again"
        report.add_words(wanted[one].seq, f"the id {wanted[one].id!r} of this decision {words}")
    if n := len(found - wanted.keys()):
        report.add_words(None, f"the table of archived ids has {n} that no archived decision has")


class _RewardsCheck:
    """Makes the tables of rewards again.

    A table has the value that a reward had when the log was compacted.  Rewards that were changed while a compaction
    read the log, between its cut and its event, may have any of their values of that time.
    """

    def __init__(self, whole: Store, archive: Archive, report: Report) -> None:
        self.whole, self.archive, self.report = whole, archive, report
        self.changes: dict[str, list[tuple[int, float]]] = defaultdict(list)  # by slot: seq and value
        self.feature_map: bytes | None = None
        self.compactions: list[tuple[int, int]] = []  # cut, and seq of the event
        for row in whole.events(0):
            if row.kind not in ("reward", "service", "compact") or (body := read_body(row)) is None:
                continue
            if row.kind == "reward" and changes_reward(row.id):
                self.changes[slot_of_reward(row.id)].append((row.seq, body.reward))
            elif row.kind == "service" and row.seq <= archive.upto:
                self.feature_map = body.feature_map
            elif row.kind == "compact":
                self.compactions.append((body.upto, row.seq))

    def run(self) -> None:
        files = self.archive.list_rewards()
        for part in self.archive.list_parts():
            path = self.archive.folder / "rewards" / part.path.name
            words = self._compare(part, path if files.pop(path.name, None) else None)
            if words:
                self.report.add_words(None, f"{path} {words}")
        for path in files.values():
            self.report.add_words(None, f"{path} does not belong to the archive; remove it, or lcb learn reads it")

    def _compare(self, part: Part, path: Path | None) -> str:
        """Return in words how a file differs from its events; nothing if it does not."""
        rows = [row for row, _ in self.archive.sealed_events(part.first - 1, part.last)]
        rows = [row for row in rows if row.kind == "reward" and not changes_reward(row.id)]
        if any(read_body(row) is None for row in rows):
            return ""  # the replay has named the event
        if path is None:
            return f"is missing: its events have {len(rows)} rewards; restore it from a backup" if rows else ""
        try:
            table = self.archive.read_rewards(path)
        except StoreError as error:
            return f"is damaged: {error}"
        if (table.schema.metadata or {}).get(FEATURE_MAP) != self.feature_map:
            return "has another feature map than the log; restore it from a backup"
        if table.schema.equals(REWARD_SCHEMA) and len(table) == len(rows):
            stored = table.column("reward").to_pylist()
            made = [self._build(part, row, value) for row, value in zip(rows, stored, strict=True)]
            if not made or table.equals(build_table(made, REWARD_SCHEMA)):
                return ""
        return "does not have the rewards that its events give; restore it from a backup"

    def _build(self, part: Part, row: Row, stored: float) -> tuple[Any, ...]:
        """Return the row of a reward, with the stored value if the reward had it when the log was compacted."""
        body = read_event(row)
        cut, end = next((one for one in self.compactions if one[0] >= part.last), (self.archive.upto, 0))
        changes = self.changes.get(slot_of_reward(row.id), ())
        before = [body.reward, *(value for seq, value in changes if seq <= cut)]
        possible = [before[-1], *(value for seq, value in changes if cut < seq < end)]
        return build_reward(row, body, stored if stored in possible else possible[-1])
