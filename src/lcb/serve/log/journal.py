"""Group commit: one thread appends what has queued up, in one transaction; answers leave after it is on disk.

The queue is bounded.  A store that is busy for a moment is waited for; one that is full or gone refuses the batch, and
nothing of it is in the log.  What comes in one turn of the event loop goes to the thread together, and the loop is
woken once per batch: each of the two waits for the other's lock on the interpreter as seldom as can be.

What other replicas wrote comes back with every append, and is looked for when there is nothing to append.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.decide.desk import Desk, Entry
from lcb.serve.errors import Problem
from lcb.serve.log.apply import Applying
from lcb.storage.store.base import Appended, Row, Store

_BATCH = 512
_PAUSE = 0.02  # before a busy store is tried again
_LOOK = 0.25  # seconds between two looks at who waits, and at what others wrote
_ENDING = 5.0  # for what cannot be applied when the service ends
_MOMENT = 0.001
_KEEP_WORLD = 5_000  # events between two snapshots of the world


class IdTaken(Exception):
    """Another wrote an event of this id first, or erased the person it is about; look again."""


class Behind(Exception):
    """A job that needs the world to have come as far as the log."""


class _Waiting(Struct):
    entry: Entry
    done: asyncio.Future[None]
    since: float
    made: int  # the log up to here is what it was made from


class _Job(Struct):
    """Something else for the one thread that writes: `work(store, seen)`."""

    work: Callable[[Store, int], Appended]
    done: asyncio.Future[None]


class Journal:
    """Between the desk and the store; `start` and all else but the writing belong to the event loop."""

    def __init__(
        self, store: Store, desk: Desk, *, most_waiting: int = 2000, patience: float = 10.0,
        applied: Callable[[Row, Any], None] | None = None, monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.store, self.desk = store, desk
        self.monotonic, self.sleep = monotonic, sleep
        self.most_waiting, self.patience = most_waiting, patience
        self.n_waiting = 0
        self.last_commit = 0.0  # seconds the last one took
        self.trouble: str | None = None  # why the last one failed
        self._gathered: list[_Waiting] = []  # not handed over yet
        self._queue: queue.SimpleQueue[list[_Waiting] | _Job | None] = queue.SimpleQueue()
        self._got: deque[_Waiting | _Job | None] = deque()  # of the writing thread
        self._order: deque[list[_Waiting]] = deque()
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._seen = desk.world.seq  # of the writing thread
        self._erased = 0  # where somebody was erased last: what a user's event was made from before that is gone
        self._kept = desk.world.seq
        self._applying = Applying(store, desk, applied)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._write, name="lcb-journal", daemon=True)

    def start(self, *, alone: bool = False) -> None:
        """`alone`: without the thread; whoever started it calls `step`."""
        self._loop = asyncio.get_running_loop()
        if not alone:
            self._thread.start()
        self._look()

    async def stop(self) -> None:
        """Write what has queued up, then end."""
        if self._looking is not None:
            self._looking.cancel()
        self._put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)
        until = self.monotonic() + _ENDING
        while self._applying.busy and self.monotonic() < until:
            await asyncio.sleep(0.01)
        self._applying.end()

    @property
    def broken(self) -> str | None:
        """Why nothing more can be answered."""
        return self._applying.broken

    def pending(self, key: str) -> asyncio.Future[None] | None:
        """Done when the entry of this key is in the log, or is not to be."""
        return self._pending.get(key)

    def append(self, entry: Entry) -> asyncio.Future[None]:
        """Done when the event is on disk and the world has moved; fails with a Problem, or `IdTaken`."""
        self.check_room()
        assert self._loop is not None
        done = self._loop.create_future()
        self.n_waiting += 1
        self._pending[entry.key] = done
        self._gathered.append(_Waiting(entry, done, self.monotonic(), self.desk.world.seq))
        if len(self._gathered) == 1:
            self._loop.call_soon(self._hand_over)
        return done

    def _hand_over(self) -> None:
        """What came in one turn of the event loop goes to the writing thread together."""
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._order.append(gathered)
            self._queue.put(gathered)

    def _put(self, last: _Job | None) -> None:
        self._hand_over()
        self._queue.put(last)

    def check_room(self) -> None:
        """A Problem where nobody more is to wait for the store."""
        if self.broken is not None:
            raise Problem(503, f"{self.broken}; verify the log, restart the service", retry_after=60)
        if self.n_waiting >= self.most_waiting:
            raise Problem(503, f"{self.n_waiting} requests wait for the store; try again in a second", retry_after=1)

    def _look(self) -> None:
        """Nobody waits longer than `patience`; what becomes of their event, the same request asked again will tell."""
        assert self._loop is not None
        order, now = self._order, self.monotonic()
        while order and (all(one.done.done() for one in order[0]) or now - order[0][0].since > self.patience):
            late = order.popleft()
            words = f"the store has not answered for {self.patience:g} s; send the same again"
            self._fail([one.done for one in late], Problem(503, words, retry_after=1))
        self._looking = self._loop.call_later(_LOOK, self._look)

    def job(self, work: Callable[[Store, int], Appended]) -> asyncio.Future[None]:
        """Done when what the work wrote, or found, is applied."""
        assert self._loop is not None
        done = self._loop.create_future()
        self._put(_Job(work, done))
        return done

    # The writing thread

    def _get(self, wait: bool) -> _Waiting | _Job | None:
        """What to write next; what others wrote is read while there is nothing."""
        while not self._got:
            try:
                found = self._queue.get(wait, None if self.store.inline else _LOOK)
            except queue.Empty:
                if not wait:
                    raise
                self._catch_up()
                continue
            self._got.extend(found if isinstance(found, list) else [found])
        return self._got.popleft()

    def _catch_up(self) -> None:
        try:
            if self.trouble is not None:
                self._meet(self.store.append([], self._seen).rows)
            rows: list[Row] = []
            for row in self.store.events(self._seen):
                rows.append(row)
                if len(rows) == _BATCH:
                    self._meet(rows)
                    rows = []
                    self._wait_for_world()
            self._meet(rows)
            self.trouble = None
        except StoreError as error:
            self.trouble = str(error)

    def _meet(self, rows: list[Row]) -> None:
        """Events that are in the log, by whomever."""
        if rows:
            self._saw(rows)
            self._call(self._settle, [], Appended(rows, frozenset()))

    def _wait_for_world(self) -> None:
        until = self.monotonic() + self.patience
        while self.desk.world.seq < self._seen and self.broken is None and self.monotonic() < until:
            self.sleep(_PAUSE / 10)

    def _write(self) -> None:
        while self.step():
            pass

    def step(self, *, most: int = _BATCH, wait: bool = True) -> bool:
        """Write what has queued up, at most so many events; False when nothing more will come, or waits.

        A job begins when the world is where the log is: an erasure changes what the world may have to read again.
        """
        batch: list[_Waiting] = []
        while len(batch) < most:
            try:
                one = self._get(wait and not batch)
            except queue.Empty:
                break
            if isinstance(one, _Waiting):
                batch.append(one)
            elif batch:
                self._commit(batch)
                self._got.appendleft(one)
                return True
            elif one is None:
                return False
            elif self.desk.world.seq < self._seen and self.broken is None:
                self._got.appendleft(one)
                if wait:
                    self.sleep(_MOMENT)
                return True
            else:
                self._run(one)
                return True
        if batch:
            self._commit(batch)
        return bool(batch)

    def _commit(self, batch: list[_Waiting]) -> None:
        world, evicted = self.desk.world, {}
        if world.seq >= self._erased:  # else there may be snapshots among them of somebody who is erased
            evicted, world.evicted = world.evicted, {}
        first = {one.entry.row.id for one in batch if one.entry.first}
        stale = {one.entry.row.id for one in batch if one.made < self._valid_from(one.entry)}
        stale |= {one.entry.row.id for one in batch[1:] if one.entry.first}  # what is before them may say otherwise
        rows = [one.entry.row for one in batch if one.entry.row.id not in stale]
        while True:
            began = self.monotonic()
            try:
                appended = self.store.append(rows, self._seen, list(evicted.values()), first)
            except StoreUnavailable as error:
                self.trouble = str(error)
                if error.busy and began - batch[0].since < self.patience:
                    self.sleep(_PAUSE)
                    continue
                self._call(self._refuse, batch, Problem(503, f"{error}; send the same again", retry_after=1))
                return
            except StoreError as error:
                self.trouble = str(error)
                self._call(self._refuse, batch, Problem(503, str(error), retry_after=10))
                return
            break
        self.last_commit, self.trouble = self.monotonic() - began, None
        self._saw(appended.rows)
        self._call(self._settle, batch, appended)

    def _valid_from(self, entry: Entry) -> int:
        """What was made from less of the log than this does not hold."""
        return self._seen if entry.first else self._erased if entry.row.user is not None else 0

    def _saw(self, rows: Sequence[Row]) -> None:
        if rows:
            self._seen = rows[-1].seq
            self._erased = max((row.seq for row in rows if row.kind == "erase"), default=self._erased)

    def _run(self, job: _Job) -> None:
        until = self.monotonic() + self.patience
        while True:
            try:
                appended = job.work(self.store, self._seen)
            except Behind:
                if self.monotonic() > until:
                    words = "the log moves faster than this replica follows; send the same again"
                    self._call(self._fail, [job.done], Problem(503, words, retry_after=1))
                    return
                self._catch_up()
                self._wait_for_world()
                continue
            except StoreUnavailable as error:
                self._call(self._fail, [job.done], Problem(503, f"{error}; send the same again", retry_after=1))
                return
            except Exception as error:  # noqa: BLE001 (whatever it is belongs to whoever asked)
                self._call(self._fail, [job.done], error)
                return
            break
        self._saw(appended.rows)
        self._call(self._settle_job, job, appended)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)

    # The event loop again

    def _settle(self, batch: list[_Waiting], appended: Appended) -> None:
        placed = {row.id: row.body for row in appended.rows}
        mine = [placed.get(one.entry.row.id) == one.entry.row.body for one in batch]
        bodies = {one.entry.row.id: one.entry.body for one, own in zip(batch, mine, strict=True) if own}
        self._applying.add(appended.rows, bodies, lambda error: self._answer(batch, mine, error))

    def _settle_job(self, job: _Job, appended: Appended) -> None:
        def then(error: Exception | None) -> None:
            if not job.done.done():
                job.done.set_result(None) if error is None else job.done.set_exception(error)

        self._applying.add(appended.rows, {}, then)

    def _answer(self, batch: list[_Waiting], mine: list[bool], error: Exception | None) -> None:
        self.n_waiting -= len(batch)
        for one, own in zip(batch, mine, strict=True):
            if self._pending.get(one.entry.key) is one.done:
                del self._pending[one.entry.key]
            if one.done.done():
                continue
            if error is not None:
                one.done.set_exception(error)
            elif own:
                one.done.set_result(None)
            else:
                one.done.set_exception(IdTaken(one.entry.row.id))
        world = self.desk.world
        if error is None and world.seq - self._kept >= _KEEP_WORLD:
            self._kept = world.seq
            kept = world.snapshot()
            world.evicted[kept.name] = kept

    def _refuse(self, batch: list[_Waiting], problem: Problem) -> None:
        self.n_waiting -= len(batch)
        for one in batch:
            if self._pending.get(one.entry.key) is one.done:
                del self._pending[one.entry.key]
        self._fail([one.done for one in batch], problem)

    @staticmethod
    def _fail(waiting: list[asyncio.Future[None]], error: Exception) -> None:
        for done in waiting:
            if not done.done():
                done.set_exception(error)
