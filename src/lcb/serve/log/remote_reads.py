"""Reads from a remote store without blocking the event loop: in a few threads, each read with a deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot
from lcb.serve.log.journal import Journal
from lcb.serve.state.reward_slots import RewardSlots
from lcb.storage.store.base import Appended, Row

T = TypeVar("T")
_THREADS, _MOST_READING = 8, 64
_MOST_WAITING, _SOON = 1000, 0.2  # further reads wait so many seconds: a batch of newcomers reads each of them


class RemoteReads:
    """Loads users and reward slots into memory; its methods are called inside the event loop."""

    def __init__(self, journal: Journal, slots: RewardSlots, patience: float) -> None:
        self.journal, self.world, self.slots, self.patience = journal, journal.world, slots, patience
        self._fetches: dict[str | None, asyncio.Future[None]] = {}  # by user, while the user is read
        self._of_seen: dict[str, asyncio.Future[None]] = {}  # the same for what users were shown
        self._outdated: set[str | None] = set()  # users of whom an event was applied while they were read
        self._threads = ThreadPoolExecutor(_THREADS, "lcb-read")
        self._n_reading = 0
        self._line: deque[asyncio.Future[None]] = deque()  # reads that wait for a place among those

    def end(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def note_events(self, rows: Sequence[Row]) -> None:
        """Note that events were applied, so reads of their users that have begun are outdated."""
        for row in rows if self._fetches else ():
            if row.user in self._fetches:
                self._outdated.add(row.user)
            elif row.kind == "erase":
                self._outdated.update(self._fetches)

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that reads the store; while the store fails, at most one request waits for it."""
        trouble = self.journal.trouble
        if self._n_reading < (_MOST_READING if trouble is None else 1):
            self._n_reading += 1
        elif trouble is not None or not await self._wait_for_place():
            words = trouble or f"{self._n_reading} requests are reading from the store; try again"
            raise Problem(503, words, retry_after=1)
        reading = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        reading.add_done_callback(self._end_read)
        try:
            return await asyncio.wait_for(asyncio.shield(reading), self.patience)
        except TimeoutError:
            words = f"the store has not answered for {self.patience:g} s; send the same request again"
            raise Problem(503, words, retry_after=1) from None

    async def _wait_for_place(self) -> bool:
        """Wait until a read ends and leaves its place; False if none does soon, or too many wait."""
        if len(self._line) >= _MOST_WAITING:
            return False
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await asyncio.wait_for(place, _SOON)
        except TimeoutError:
            return False
        except BaseException:
            if place.done() and not place.cancelled():
                self._leave_place()
            raise
        return True

    def _leave_place(self) -> None:
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._n_reading -= 1

    def _end_read(self, reading: asyncio.Future[Any]) -> None:
        self._leave_place()
        if not reading.cancelled():
            reading.exception()  # retrieved, because the request may have given up

    async def fetch_user(self, name: str) -> None:
        """Read a user into the cache; concurrent calls for the same user read once."""
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = self._fetches[name] = asyncio.ensure_future(self._read_user(name))
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(fetch)

    async def _read_user(self, name: str) -> None:
        """Read a user as of now; the result is dropped if an event of theirs is applied meanwhile."""
        try:
            user = await self.read(self.world.loader.load, name, self.world.seq)
            if name not in self._outdated and not self.world.cache.knows(name):
                self.world.cache.admit(name, user)
        finally:
            del self._fetches[name]
            self._outdated.discard(name)

    async def fetch_seen(self, name: str) -> None:
        """Read what a user was shown; concurrent calls for the same user read once."""
        fetch = self._of_seen.get(name)
        if fetch is None:
            fetch = self._of_seen[name] = asyncio.ensure_future(self._read_seen(name))
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(fetch)

    async def _read_seen(self, name: str) -> None:
        found, items = None, self.world.seen
        items.begin_reading(name)
        try:
            found = await self.read(items.read, name, self.world.seq)
        finally:
            del self._of_seen[name]
            items.admit(name, found)

    async def fetch_slots(self, slot_id: str) -> None:
        """Read the slots of a decision that is not in memory: another replica made it, or it is old."""
        n_erasures = self.world.n_erasures
        row = await self.read(self.world.store.event, decision_of_slot(slot_id))
        if row is not None and row.seq > self.world.seq:
            await self.journal.run(lambda store, seen: Appended(list(store.events(seen)), frozenset()))
            return
        found = await self.read(self.slots.read, slot_id)
        if self.world.n_erasures == n_erasures:
            self.slots.admit(found)

    async def fetch_many_slots(self, slot_ids: Sequence[str]) -> None:
        """Do the same for the slots of a batch by one read; those that the log does not have, or not yet, are left."""
        n_erasures = self.world.n_erasures
        for found in await self.read(self.slots.read_many, slot_ids):
            if self.world.n_erasures == n_erasures:
                self.slots.admit(found)
