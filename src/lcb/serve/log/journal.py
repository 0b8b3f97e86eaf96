"""Group commit: one thread writes queued events in one transaction; answers are sent after it is on disk.

The queue is bounded.  While the store is busy the thread tries again; if the store is full or gone, the batch is
refused and nothing of it is in the log.  Events of one turn of the event loop go to the thread together, and the thread
wakes the loop once per batch, so that the two compete little for the interpreter lock.

Every append also returns the events of other replicas; while there is nothing to append, they are polled for.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.decide.entry import Entry
from lcb.serve.errors import Problem
from lcb.serve.log.apply import EventApplier
from lcb.serve.log.trouble import Trouble
from lcb.serve.log.waiting import IdTaken, Job, Waiting, WorldBehindLog, list_entries
from lcb.serve.log.waiting_room import WaitingRoom
from lcb.storage.store.base import VOIDING, Appended, Row, Snapshot, Store

_BATCH = 512
_PAUSE = 0.02  # seconds before a busy store is tried again
_POLL = 0.25  # seconds between two checks of who waits too long, and of what other replicas wrote
_ENDING = 5.0  # seconds that stored events have to be applied when the service ends
_CHECK = 0.5  # seconds between two checks, while there is nothing to write, that the file of the store is in place
_MOMENT = 0.001
_SNAPSHOT_EVERY = 5_000  # events between two snapshots of the world


class Journal:
    """Writes entries to `store` in a thread and passes them to `applier`; its methods are for the event loop."""

    def __init__(
        self,
        store: Store,
        applier: EventApplier,
        *,
        most_waiting: int = 2000,
        patience: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.applier, self.world = store, applier, applier.world
        self.monotonic, self.sleep = monotonic, sleep
        self.places, self.patience = WaitingRoom(most_waiting, monotonic), patience
        self.last_commit = 0.0  # seconds that the last commit took
        self._trouble = Trouble(monotonic)
        self._gathered: list[Waiting] = []  # entries of this turn of the event loop
        self._queue: queue.SimpleQueue[list[Waiting] | Job | None] = queue.SimpleQueue()
        self._received: deque[Waiting | Job | None] = deque()  # used by the writing thread only
        self._batches: deque[list[Waiting]] = deque()  # handed over, oldest first
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._seen = self.world.seq  # used by the writing thread only
        self._erased = 0  # seq of the last erasure or compaction: user events built from an earlier state are void
        self._snapshot: Snapshot | None = None  # of the world, to be written with the next commit
        self._snapshot_seq = self.world.seq
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._write, name="lcb-journal", daemon=True)

    def start(self, *, alone: bool = False) -> None:
        """Start inside the event loop; `alone` starts no thread, and the caller calls `step` instead."""
        self._loop = asyncio.get_running_loop()
        self._seen = self.world.seq  # the application may have appended since this journal was made
        if not alone:
            self._thread.start()
        self._check_waiting()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)
        until = self.monotonic() + _ENDING
        while self.applier.busy and self.monotonic() < until:
            await asyncio.sleep(0.01)
        self.applier.end()

    @property
    def broken(self) -> str | None:
        """Why no request can be answered any more."""
        return self.applier.broken

    def pending(self, key: str) -> asyncio.Future[None] | None:
        """Return the future of the entry with this key while it is being written, else None."""
        return self._pending.get(key)

    def append(self, *entries: Entry) -> asyncio.Future[None]:
        """Return a future that is done when the events are stored and applied, together.

        It fails with a Problem if none is, or with `IdTaken`, which names those that are not.
        """
        self.check_room()
        assert self._loop is not None
        done, pending = self._loop.create_future(), self._pending
        caller = self.places.take(len(entries))
        for entry in entries:
            pending[entry.key] = done
        self._gathered.append(Waiting(entries, done, self.monotonic(), self.world.seq, caller))
        if len(self._gathered) == 1:
            self._loop.call_soon(self._hand_over)
        return done

    def _hand_over(self) -> None:
        """Give the entries of one turn of the event loop to the writing thread together."""
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._batches.append(gathered)
            self._queue.put(gathered)

    def _put(self, last: Job | None) -> None:
        self._hand_over()
        self._queue.put(last)

    @property
    def trouble(self) -> str | None:
        """Why the store does not accept writes; None: it does."""
        return self._trouble.words

    @property
    def lost(self) -> str | None:
        """Why the store no longer has what the state in memory was made of; None: it has."""
        return self._trouble.words if self._trouble.is_lost else None

    def note_failed_read(self, error: StoreError) -> None:
        """Know from a read that the log is another one, before the writing thread finds out."""
        if error.replaced:
            self._trouble.note(error)

    @property
    def n_waiting(self) -> int:
        return self.places.n

    @property
    def room(self) -> int:
        """How many more entries of the caller of this request may wait for the store."""
        return self.places.n_free

    def check_room(self) -> None:
        """Raise a Problem if no more entries of this caller may wait for the store."""
        if self.applier.broken is not None:
            raise Problem(503, f"{self.applier.broken}; verify the log, restart the service", retry_after=60)
        self.places.check()

    def _check_waiting(self) -> None:
        """Fail requests that waited longer than `patience`; a repeated request finds its event if it was stored."""
        assert self._loop is not None
        batches, now = self._batches, self.monotonic()
        while batches and (all(one.done.done() for one in batches[0]) or now - batches[0][0].since > self.patience):
            late = batches.popleft()
            words = f"the store has not answered for {self.patience:g} s; send the same request again"
            self._fail([one.done for one in late], Problem(503, words, retry_after=1))
        self._timer = self._loop.call_later(_POLL, self._check_waiting)

    def run(self, work: Callable[[Store, int], Appended]) -> asyncio.Future[None]:
        """Run `work(store, seen)` in the writing thread; the future is done when the events it returns are applied."""
        assert self._loop is not None
        done = self._loop.create_future()
        self._put(Job(work, done))
        return done

    # The writing thread

    def _get(self, wait: bool) -> Waiting | Job | None:
        """Return the next entry or job; while there is none, read what other replicas wrote."""
        while not self._received:
            try:
                found = self._queue.get(wait, _CHECK if self.store.inline else _POLL)
            except queue.Empty:
                if not wait:
                    raise
                self._check_store() if self.store.inline else self._catch_up()
                continue
            self._received.extend(found if isinstance(found, list) else [found])
        return self._received.popleft()

    def _check_store(self) -> None:
        """Find trouble, or the end of it, while nobody asks for a write."""
        try:
            self.store.check(writing=self._trouble.is_passing)
            if self._trouble.is_passing:
                self._trouble.note_check()
        except StoreError as error:
            self._trouble.note(error)

    def _catch_up(self) -> None:
        try:
            self.store.check()
            if self.trouble is not None:
                self._apply_others(self.store.append([], self._seen).rows)
            rows: list[Row] = []
            for row in self.store.events(self._seen):
                rows.append(row)
                if len(rows) == _BATCH:
                    self._apply_others(rows)
                    rows = []
                    self._wait_for_world()
            self._apply_others(rows)
            self._trouble.note_check()
        except StoreError as error:
            self._trouble.note(error)

    def _apply_others(self, rows: list[Row]) -> None:
        if rows:
            self._note_stored(rows)
            self._call(self._settle, [], Appended(rows, frozenset()))

    def _wait_for_world(self) -> None:
        until = self.monotonic() + self.patience
        while self._is_behind and self.broken is None and self.monotonic() < until:
            self.sleep(_PAUSE / 10)

    @property
    def _is_behind(self) -> bool:
        """Whether stored events are still to be applied, or users of applied ones to be folded."""
        return self.world.seq < self._seen or self.applier.busy

    def _write(self) -> None:
        while self.step():
            pass

    def step(self, *, most: int = _BATCH, wait: bool = True) -> bool:
        """Write queued events, until there are `most`; False if nothing is queued, or `stop` was called.

        A job waits until the state has caught up with the log, because an erasure rewrites events still to be applied,
        or whose users are still to be folded.
        """
        batch: list[Waiting] = []
        n = 0
        while n < most:
            try:
                one = self._get(wait and not batch)
            except queue.Empty:
                break
            if isinstance(one, Waiting):
                batch.append(one)
                n += len(one.entries)
            elif batch:
                self._commit(batch)
                self._received.appendleft(one)
                return True
            elif one is None:
                return False
            elif self._is_behind and self.broken is None:
                self._received.appendleft(one)
                if wait:
                    self.sleep(_MOMENT)
                return True
            else:
                self._run_job(one)
                return True
        if batch:
            self._commit(batch)
        return bool(batch)

    def _commit(self, batch: list[Waiting]) -> None:
        snapshots: list[Snapshot] = []
        # else some may be snapshots of the erased user, or of a state that differs from the log
        if self.world.seq >= self._erased and self.broken is None:
            snapshots = self.world.cache.take_evicted()
            if (snapshot := self._snapshot) is not None:
                self._snapshot = None
                snapshots.append(snapshot)
        entries = list_entries(batch)
        first = {entry.row.id for entry in entries if entry.fixes_n_features}
        if first or self._erased:
            stale = {e.row.id for one in batch for e in one.entries if one.is_older(e, self._valid_from(e))}
            stale |= {entry.row.id for entry in entries[1:] if entry.fixes_n_features}  # valid only as the first
            rows = [entry.row for entry in entries if entry.row.id not in stale]
        else:
            rows = [entry.row for entry in entries]
        while True:
            began = self.monotonic()
            try:
                appended = self.store.append(rows, self._seen, snapshots, first)
            except StoreUnavailable as error:
                self._trouble.note_failed_write(error)
                if error.busy and began - batch[0].since < self.patience:
                    self.sleep(_PAUSE)
                    continue
                self._call(self._refuse, batch, Problem(503, f"{error}; send the same request again", retry_after=1))
                return
            except StoreError as error:
                self._trouble.note_failed_write(error)
                self._call(self._refuse, batch, Problem(503, str(error), retry_after=10))
                return
            break
        self.last_commit = self.monotonic() - began
        self._trouble.note(None)
        self._note_stored(appended.rows)
        self._call(self._settle, batch, appended)

    def _valid_from(self, entry: Entry) -> int:
        """Return the oldest seq of a state that a valid entry may have been built from."""
        return self._seen if entry.fixes_n_features else self._erased if entry.row.user is not None else 0

    def _note_stored(self, rows: Sequence[Row]) -> None:
        if rows:
            self._seen = rows[-1].seq
            self._erased = max((row.seq for row in rows if row.kind in VOIDING), default=self._erased)

    def _run_job(self, job: Job) -> None:
        until = self.monotonic() + self.patience
        while True:
            try:
                appended = job.work(self.store, self._seen)
            except WorldBehindLog:
                if self.monotonic() > until:
                    words = "the log grows faster than this replica can follow; send the same request again"
                    self._call(self._fail, [job.done], Problem(503, words, retry_after=1))
                    return
                self._catch_up()
                self._wait_for_world()
                continue
            except StoreUnavailable as error:
                self._call(self._fail, [job.done], Problem(503, f"{error}; send the same request again", retry_after=1))
                return
            except Exception as error:  # noqa: BLE001 (raised again where the job was asked for)
                self._call(self._fail, [job.done], error)
                return
            break
        self._note_stored(appended.rows)
        self._call(self._settle_job, job, appended)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)

    # The event loop again

    def _settle(self, batch: list[Waiting], appended: Appended) -> None:
        """Apply what was stored, then answer the batch."""
        entries, rows, lost = list_entries(batch), appended.rows, set[int]()
        bodies: list[Any] = [entry.body for entry in entries]
        # rows of others come first: if the first is ours, all are, in our order
        if len(rows) != len(entries) or (rows and rows[0].id is not entries[0].row.id):  # not all, or others too
            placed, own = {row.id: row.body for row in rows}, {}
            for entry in entries:
                if placed.get(entry.row.id) == entry.row.body:
                    own[entry.row.id] = entry.body
                else:
                    lost.add(id(entry))
            bodies = [own.get(row.id) for row in rows]
        self.applier.add(rows, bodies, lambda error: self._answer(batch, lost, error))

    def _settle_job(self, job: Job, appended: Appended) -> None:
        def then(error: Exception | None) -> None:
            if not job.done.done():
                job.done.set_result(None) if error is None else job.done.set_exception(error)

        self.applier.add(appended.rows, [None] * len(appended.rows), then)

    def _answer(self, batch: list[Waiting], lost: set[int], error: Exception | None) -> None:
        """Answer a batch; `lost` are the `id` of the entries that were not stored."""
        self._end_waiting(batch)
        for one in batch:
            if one.done.done():
                continue
            if error is not None:
                one.done.set_exception(error)
            elif lost and (ids := [entry.row.id for entry in one.entries if id(entry) in lost]):
                one.done.set_exception(IdTaken(*ids))
            else:
                one.done.set_result(None)
        if error is None and self.world.seq - self._snapshot_seq >= _SNAPSHOT_EVERY:
            self._snapshot_seq = self.world.seq
            self._snapshot = self.world.snapshot()

    def _refuse(self, batch: list[Waiting], problem: Problem) -> None:
        self._end_waiting(batch)
        self._fail([one.done for one in batch], problem)

    def _end_waiting(self, batch: list[Waiting]) -> None:
        pending = self._pending
        for one in batch:
            self.places.leave(one.caller, len(one.entries))
            for entry in one.entries:
                if pending.get(entry.key) is one.done:
                    del pending[entry.key]

    @staticmethod
    def _fail(waiting: list[asyncio.Future[None]], error: Exception) -> None:
        for done in waiting:
            if not done.done():
                done.set_exception(error)
