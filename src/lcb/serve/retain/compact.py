"""Compacts a log while it is served: old events become a base and an archive.

1. A place to cut is found (`cut`).  Events up to it are replayed and written into files of the archive, which are on
   disk before anything else happens.  The base rows of users are computed.  The store is only read.  A log whose
   chain or base was changed is refused: afterwards nobody could tell.
2. One event, `compact`, goes into the log: from here on the log begins at the base.
3. Base rows are written in place of events, and events are removed, few in each transaction.

If the process is ended at any moment, the log is the old one (before 2) or the new one: a user's base row gives the
same state as the events it replaces, so it does not matter which of the two is there.  The next compaction goes on
where the last one was ended.  If a user is erased during 1, it begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from lcb.errors import StoreError, StoreUnavailable
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.base_bodies import CompactBody
from lcb.serve.event_ids import changes_reward, event_id, slot_of_reward
from lcb.serve.log.read_service import read_service
from lcb.serve.read_event import read_event
from lcb.serve.retain.archive import Archive, Writer, discard_new, read_archived_base
from lcb.serve.retain.base import (
    BaseCheck,
    build_changed,
    digest_base_row,
    digest_row,
    digest_rows,
    follows,
    list_base,
    stays,
)
from lcb.serve.retain.cut import find_cut
from lcb.serve.retain.folder import lock, make_folder
from lcb.serve.retain.ids import check_ids, digest_ids
from lcb.serve.retain.without_snapshots import WithoutSnapshots
from lcb.serve.state.users import UserGone
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.logs.files import FEATURE_MAP
from lcb.storage.store.base import LAST, NewRow, Row, Seal, Store
from lcb.storage.store.retention import BASE

_TRIES = 200  # to append `compact` while others write
_AGAIN = 5  # times that step 1 begins again because users were erased
_USERS, _EVENTS = 25, 100  # base rows written and events removed in one transaction
_PAUSE = 0.005  # seconds between two transactions of step 3, at least
_REPORT_EVERY = 1000
T = TypeVar("T")


@dataclass
class Compacted:
    """What a compaction has done."""

    upto: int  # the log begins after this event
    n_archived: int = 0  # events
    n_removed: int = 0  # rows
    n_users: int = 0
    n_kept: int = 0  # events that stay because a later reward changes one of them
    n_ahead: int = 0  # events met with a time in the future: a clock was ahead
    archive: str = ""
    seconds: float = 0.0


class _Erased(Exception):
    """A user was erased meanwhile."""


def compact(
    store: Store,
    folder: Path,
    keep: float,
    *,
    now: Callable[[], float] = time.time,
    address: str = "",
    progress: Progress = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> Compacted:
    """Compact a log: keep the events of the last `keep` seconds, and archive the others in `folder`."""
    began = time.monotonic()
    release = store.lead("compact")
    try:
        if (base := read_base(store)) is not None:
            Archive(folder, base.upto).check_there()
        make_folder(folder)
        if release is None:
            raise StoreUnavailable(f"{store.url} is being compacted by another process; wait until it has ended")
        with lock(folder, "compacting", wait=True):  # a service holds it for a moment to remove leftovers
            done = _compact(store, folder, keep, now, address, progress, sleep)
    finally:
        if release is not None:
            release()
    done.seconds = time.monotonic() - began
    return done


def _compact(
    store: Store,
    folder: Path,
    keep: float,
    now: Callable[[], float],
    address: str,
    progress: Progress,
    sleep: Callable[[float], None],
) -> Compacted:
    before = read_archived_base(store, folder)
    done = Compacted(0 if before is None else before.upto, archive=str(folder))
    if before is not None:
        archive = Archive(folder, before.upto)
        with archive.erasing():
            archive.settle(store)
        archive.list_parts()
        done.n_removed += _finish(store, before, progress, sleep)
    if words := check_ids(store):
        raise build_changed(store, f"the table archived ({words})")
    discard_new(folder)
    began = now()
    cut, done.n_ahead = find_cut(store, done.upto, began - keep, progress, began)
    if cut == done.upto:
        return done
    for _ in range(_AGAIN):
        plan = _Plan(store, folder, done.upto, cut, progress)
        try:
            plan.read_or_discard()
            body = plan.append(CompactBody(now(), keep, cut, b"", done.upto, b"", b"", [], 0, address))
        except (_Erased, UserGone) as error:
            plan.writer.discard()
            if isinstance(error, UserGone) and not plan.has_erasure():
                raise build_changed(store, f"a row up to event {cut}") from error
            continue
        break
    else:
        raise StoreUnavailable(f"users of {store.url} were erased {_AGAIN} times meanwhile; compact at a quieter time")
    archive = Archive(folder, cut)
    with archive.erasing():
        archive.settle(store)
    archive.list_parts()  # nothing is removed that is not there
    done.upto, done.n_archived = cut, cut - body.before
    done.n_users, done.n_kept = body.n_users, len(body.kept)
    done.n_removed += _finish(store, body, progress, sleep)
    return done


class _Plan:
    """Step 1, and the event of step 2."""

    def __init__(self, store: Store, folder: Path, after: int, cut: int, progress: Progress) -> None:
        self.store, self.folder, self.after, self.cut, self.progress = store, folder, after, cut, progress
        self.head = store.head()
        log = WithoutSnapshots(store, base=after)
        self.world = World(log)
        log.world = self.world
        self.before = read_base(store)
        if self.before is not None:
            self.world.begin_at(self.before)
        self.settings = read_service(store, cut)
        self.writer = Writer(folder, self.settings.feature_map, FEATURE_MAP)
        self.link: bytes | None = None
        self.final: dict[str, float] = {}  # rewards that were changed, by slot
        self.digests: dict[int, bytes] = {}  # of the rows that stay, by seq
        self.salts: dict[str, bytes | None] = {}  # of the last events of users whose events go
        self.changing: set[str] = set()  # users with a later reward that the base alone cannot take

    def read_or_discard(self) -> None:
        """Do `read`; if it fails, leave no files: they have users who may be erased before the next compaction."""
        try:
            self.read()
        except BaseException:
            self.writer.discard()
            raise

    def read(self) -> None:
        """Replay and archive the events up to the cut, and look at those after it."""
        if self.settings.rewards in ("sum", "last"):
            self._look_at(self.store.events(self.after, self.cut))
        self._look_at(self.store.events(self.cut, self.head))
        world = self.world
        check = BaseCheck(self.before)
        for row, seal in self.store.sealed_events(-LAST, self.after):
            self._note(row, seal)
            check.see(row, seal)
        check.end(self.store)
        self.link = None if self.before is None else self.before.link
        for row, seal in self.store.sealed_events(self.after, self.cut):
            if not follows(self.link, row, seal):
                raise build_changed(self.store, f"event {row.seq}")
            body = read_event(row)
            world.late.replay(row, body)
            self._note(row, seal)
            self.writer.add(row, seal, self._build_reward(row, body))
            self.link = seal.link
            if row.seq % _REPORT_EVERY == 0:
                self.progress("archiving events", row.seq - self.after, self.cut - self.after)
        self.writer.flush()
        if self.link is None:
            raise StoreError(
                f"event {self.cut} of {self.store.url} has no link: an earlier version of lcb wrote it; compact later, "
                "when newer events are old enough"
            )

    def _note(self, row: Row, seal: Seal) -> None:
        if stays(row, ()):
            self.digests[row.seq] = digest_row(row, seal)
        elif row.user is not None:
            self.salts[row.user] = seal.salt

    def _look_at(self, rows: Iterator[Row]) -> None:
        """Note changed rewards, users whose later rewards need their earlier events, and erasures."""
        for row in rows:
            if row.kind == "erase" and row.seq > self.head:
                raise _Erased
            if row.kind != "reward":
                continue
            body: events.RewardBody = read_event(row)
            changes = changes_reward(row.id)
            if changes:
                self.final[slot_of_reward(row.id)] = body.reward
            if row.seq > self.cut and body.decision <= self.cut and (changes or body.item is None):
                assert row.user is not None
                self.changing.add(row.user)

    def has_erasure(self) -> bool:
        """Whether a user was erased since the log was looked at."""
        return any(row.kind == "erase" for row in self.store.events(self.head))

    def _build_reward(self, row: Row, body: Any) -> tuple[Any, ...] | None:
        if row.kind != "reward" or changes_reward(row.id):
            return None
        return build_reward(row, body, self.final.get(slot_of_reward(row.id), body.reward))

    def append(self, body: CompactBody) -> CompactBody:
        """Compute the base, and append the event `compact` when nothing was written since; others may write meanwhile.

        Raises _Erased if a user was erased since step 1 began.
        """
        base = self._fold_users()
        row, n_changing = None, -1
        for _ in range(_TRIES):
            seen = self.store.head()
            self._look_at(self.store.events(self.head, seen))
            self.head = seen
            if row is None or len(self.changing) != n_changing:
                body, n_changing = self._complete(body, base), len(self.changing)
                row = NewRow(event_id("compact", self.cut), "compact", None, None, events.encode(body))
                continue  # that took a while: look again at what was written
            try:
                if row.id not in self.store.append([row], seen, (), {row.id}).refused:
                    return body
            except StoreUnavailable as error:
                if not error.busy:
                    raise
        raise StoreUnavailable(
            f"{self.store.url} is written so fast that no compaction fits in; compact when it is calmer"
        )

    def _fold_users(self) -> _Base:
        """Compute the digests of all rows that stay, and of the new base rows."""
        base, names = _Base(self.digests, {}, {}), sorted(self.salts)
        for n, (name, rows, found) in enumerate(list_base(self.world, self.store, names, self.cut)):
            if found is None:
                self.changing.update([name] if rows and rows[-1].kind != BASE else [])
                continue
            base.new[name] = found.event.seq, digest_base_row(found.row, self.salts[name])
            base.replaced[name] = [row.seq for row in rows if row.kind == BASE]
            if n % _REPORT_EVERY == 0:
                self.progress("folding users", n, len(names))
        return base

    def _complete(self, body: CompactBody, base: _Base) -> CompactBody:
        """Return the event with the base, without the users whose later rewards need their earlier events."""
        digests, kept = dict(base.digests), list[int]()
        for name, (seq, digest) in base.new.items():
            if name not in self.changing:
                digests[seq] = digest
                for old in base.replaced[name]:
                    del digests[old]
        for name in sorted(self.changing):
            for row in self.store.events_of(name, 0, self.cut):
                if row.kind != BASE:
                    kept.append(row.seq)
                    digests[row.seq] = digest_row(*next(self.store.sealed_events(row.seq - 1, row.seq)))
        assert self.link is not None
        return msgspec.structs.replace(
            body,
            link=self.link,
            world=self.world.snapshot().body,
            base=digest_rows(digests),
            kept=sorted(kept),
            n_users=len(base.new),
            ids=digest_ids(self.store, self.cut, set(kept)),
        )


def build_reward(row: Row, body: events.RewardBody, final: float) -> tuple[Any, ...]:
    """Return the row of a reward in the table of rewards, with its final value."""
    about = (row.seq, body.decision, int(body.at * 1e6), body.recommender, row.model)
    return (row.user, body.item, final, body.propensity, events.floats(body.x), *about)


class _Base(NamedTuple):
    digests: dict[int, bytes]  # of rows that stay, by seq
    new: dict[str, tuple[int, bytes]]  # by user: seq and digest of the base row
    replaced: dict[str, list[int]]  # by user: seqs of earlier base rows


def _finish(store: Store, base: CompactBody, progress: Progress, sleep: Callable[[float], None]) -> int:
    """Step 3, or what is left of it: write base rows, remove events; returns how many."""
    kept = set(base.kept)
    if all(row.seq in kept for row in _list_going(store, base.upto)):
        return 0
    world = World(store)
    world.begin_at(base)
    names = {row.user: row.seq for row in _list_going(store, base.upto) if row.user is not None}
    going = [name for name, seq in names.items() if seq not in kept]
    found = (one for _, _, one in list_base(world, store, going, base.upto) if one is not None)
    n = 0
    while rows := list(islice(found, _USERS)):
        _take_turns(lambda rows=rows: store.write_base(rows), sleep)  # type: ignore[misc]
        n += len(rows)
        progress("writing base rows", n, len(going))
    at, n_removed = 0, 0
    while (first := store.next_going(at, base.upto)) is not None:
        at = min(first - 1 + _EVENTS, base.upto)
        n_removed += _take_turns(lambda first=first, at=at: store.remove_events(first - 1, at, kept), sleep)  # type: ignore[misc]
        progress("removing events", at, base.upto)
    return n_removed


def _list_going(store: Store, upto: int) -> Iterator[Row]:
    """Yield the events up to `upto` that a compaction removes."""
    if store.next_going(0, upto) is not None:
        yield from (row for row in store.events(0, upto) if not stays(row, ()))


def _take_turns(work: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """Run a transaction, again while the store is busy, and leave the store to others for as long as it took."""
    while True:
        began = time.monotonic()
        try:
            done = work()
        except StoreUnavailable as error:
            if not error.busy:
                raise
            sleep(_PAUSE)
            continue
        sleep(min(max(time.monotonic() - began, _PAUSE), 1.0))
        return done
