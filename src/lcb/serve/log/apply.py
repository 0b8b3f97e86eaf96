"""Applies stored events to the state in memory, batch by batch, in the order of the log.

If an event needs a user who is not in memory and the store is remote, a thread reads the user first.  If the store is
local, a thread reads and folds only the large history of a user whose earlier reward changes.  Users with short
histories are folded at the end of a batch, some in each turn of the event loop.  So are the events themselves applied,
if it takes long: those of users who have to be read from a local store, or whose states are large.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from msgspec import Struct

from lcb.errors import StoreUnavailable
from lcb.serve.errors import Problem
from lcb.serve.log.decision_runs import apply_run
from lcb.serve.read_event import read_event
from lcb.serve.state.per_user.load_users import Prefetched
from lcb.serve.state.reward_slots import RewardSlots
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

_SOME = 0.01  # seconds of a turn of the event loop in which events are applied
_RETRY = 0.1  # seconds before a failed prefetch is tried again


class _Batch(Struct):
    """Stored events to apply, with the bodies that are known; `then` is called after them, with the error if any."""

    rows: list[Row]
    bodies: list[Any]  # None: to be decoded
    then: Callable[[Exception | None], None]
    n_applied: int = 0
    prepared: bool = False
    prefetched: bool = False


class EventApplier:
    """Applies events to `world` and `slots` inside the event loop; calls `on_applied` after the events of a batch."""

    def __init__(
        self,
        world: World,
        slots: RewardSlots,
        on_applied: Callable[[Sequence[Row], Sequence[Any]], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world, self.slots, self.monotonic = world, slots, monotonic
        self.broken: str | None = None  # why no request can be answered any more
        self._on_applied = on_applied
        self._batches: deque[_Batch] = deque()
        self._prefetcher = ThreadPoolExecutor(1, "lcb-prefetch")
        self._ended = False

    @property
    def busy(self) -> bool:
        return bool(self._batches)

    def apply(self, row: Row, body: Any = None) -> None:
        """Apply one stored event."""
        body = read_event(row) if body is None else body
        self.world.apply(row, body)
        self.slots.apply(row, body)

    def add(self, rows: list[Row], bodies: list[Any], then: Callable[[Exception | None], None]) -> None:
        """Apply `rows` after those added before, then call `then`; `bodies` are theirs, None if not decoded yet."""
        self._batches.append(_Batch(rows, bodies, then))
        if len(self._batches) == 1:
            self._proceed()

    def end(self) -> None:
        self._ended = True
        self._prefetcher.shutdown(wait=False)

    def _proceed(self) -> None:
        """Apply batches.  After an error the state differs from the log, so no request is answered any more."""
        while self._batches:
            batch, failed = self._batches[0], None
            try:
                if not self._apply_batch(batch):
                    return
            except Exception as error:  # noqa: BLE001 (after any error the state differs from the log)
                self._break(error)
            if self.broken is not None:
                failed = Problem(503, f"{self.broken}; verify the log, restart the service", retry_after=60)
            self._batches.popleft()
            batch.then(failed)

    def _apply_batch(self, batch: _Batch) -> bool:
        """Apply a batch; False if something must be done first, after which `_proceed` is called again."""
        if self.broken is not None:
            return True
        world, remote = self.world, not self.world.store.inline
        if remote:
            world.cache.hold()
        world.late.allowed = len(batch.rows) - batch.n_applied > 1
        rows, bodies, first, slots = batch.rows, batch.bodies, batch.n_applied, self.slots
        if not batch.prepared:
            world.fold.prepare(rows[first:], bodies[first:], world.user_in_memory)
            batch.prepared = True
        i, until = batch.n_applied, self.monotonic() + _SOME
        while (i := apply_run(world, slots, rows, bodies, i)) < len(rows):
            batch.n_applied = i
            row, body = rows[i], bodies[i]
            # while an erasure is pending, rows read before it may differ from what the log has now
            if remote:
                waits = not world.can_apply(row) or (world.erased and not batch.prefetched)
            else:
                waits = row.kind == "reward" and world.is_slow(row)
            if waits:
                self._note_applied(batch, first)
                world.late.end()
                world.late.allowed = False
                world.cache.hold()
                self._prefetch(batch)
                return False
            if body is None:
                body = bodies[i] = read_event(row)
            world.apply(row, body)
            slots.apply(row, body)
            i += 1
            if self.monotonic() > until and i < len(rows) and not world.late.names:
                batch.n_applied = i
                self._note_applied(batch, first)
                world.late.allowed = False
                asyncio.get_running_loop().call_soon(self._proceed)
                return False
        batch.n_applied = i
        self._note_applied(batch, first)
        world.late.allowed = False
        if world.late.names and not world.late.fold_some():
            asyncio.get_running_loop().call_soon(self._proceed)
            return False
        world.release()
        return True

    def _note_applied(self, batch: _Batch, first: int) -> None:
        """Tell about the events of a batch that were applied since `first`."""
        if self._on_applied is not None and first < batch.n_applied:
            applied = slice(first, batch.n_applied)
            self._on_applied(batch.rows[applied], batch.bodies[applied])

    def _prefetch(self, batch: _Batch) -> None:
        world, rows = self.world, batch.rows[batch.n_applied :]
        names = dict.fromkeys(row.user for row in rows if row.user is not None and not world.cache.knows(row.user))
        reading = asyncio.get_running_loop().run_in_executor(self._prefetcher, world.loader.prefetch, rows, names)
        reading.add_done_callback(lambda done: self._use_prefetched(batch, done))

    def _use_prefetched(self, batch: _Batch, done: asyncio.Future[Prefetched]) -> None:
        if done.cancelled() or self._ended:
            return
        error = done.exception()
        if isinstance(error, StoreUnavailable):
            asyncio.get_running_loop().call_later(_RETRY, self._prefetch, batch)
            return
        if error is not None:
            self._break(error)
        else:
            prefetched = done.result()
            left = slice(batch.n_applied, None)
            known = zip(prefetched.rows, batch.rows[left], batch.bodies[left], strict=True)
            batch.bodies[left] = [body if again == row else None for again, row, body in known]
            batch.rows[left] = prefetched.rows
            batch.prefetched, batch.prepared = True, False
            self.world.take_prefetched(prefetched)
        self._proceed()

    def _break(self, error: BaseException) -> None:
        self.broken = f"event {self.world.seq + 1} could not be applied ({type(error).__name__}: {error})"
        structlog.get_logger("lcb.serve").error("broken", error=self.broken, exc_info=error)
