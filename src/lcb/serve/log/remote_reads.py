"""Reads from a remote store without blocking the event loop: in threads, each with a deadline, callers in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lcb.errors import StoreError
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot
from lcb.serve.log.journal import Journal
from lcb.serve.state.reward_slots import RewardSlots
from lcb.serve.threads import CALLER, Threads
from lcb.storage.store.base import Appended, Row, Store

T = TypeVar("T")
_THREADS, _MOST = 8, 1064  # reads that have begun or wait
_PATIENT = 64  # reads of a caller that wait as long as any
_SOON = 0.2  # seconds within which further ones must begin, if no read ends meanwhile


class _Fetch:
    """A user who is being read for a caller."""

    def __init__(self, reading: asyncio.Future[None]) -> None:
        self.reading, self.outdated = reading, False  # outdated: an event of the user was applied meanwhile


class RemoteReads:
    """Loads users and reward slots into memory; its methods are called inside the event loop.

    Callers take turns, as in all pools of threads: a batch of newcomers, which reads each of them, waits for itself.
    """

    def __init__(self, journal: Journal, slots: RewardSlots, patience: float) -> None:
        self.journal, self.world, self.slots, self.patience = journal, journal.world, slots, patience
        self._fetches: dict[tuple[str, str], _Fetch] = {}  # by caller and user, while the user is read
        self._of_seen: dict[str, asyncio.Future[None]] = {}  # by user, while what the user was shown is read
        self._catching_up: asyncio.Future[None] | None = None
        self._threads = Threads(
            "read", _THREADS, _MOST - _THREADS, kind="reads from the store", retry_after=1, while_stuck=True
        )

    def end(self) -> None:
        self._threads.end()

    def note_events(self, rows: Sequence[Row]) -> None:
        """Note that events were applied, so reads of their users that have begun are outdated."""
        if self._fetches:
            users, erased = {row.user for row in rows}, any(row.kind == "erase" for row in rows)
            for (_, name), fetch in self._fetches.items():
                fetch.outdated |= erased or name in users

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that reads the store; while the store fails, at most one request waits for it."""
        trouble = self.journal.trouble
        if trouble is not None and self._threads.n_waiting > 0:
            raise Problem(503, trouble, retry_after=1)
        soon = None if self._threads.count_of(CALLER.get()) < _PATIENT else _SOON
        try:
            async with asyncio.timeout(self.patience):
                return await self._threads.run_within(soon, function, *arguments)
        except StoreError as error:
            self.journal.note_failed_read(error)
            raise
        except TimeoutError:
            words = f"the store has not answered for {self.patience:g} s; send the same request again"
            raise Problem(503, words, retry_after=1) from None

    async def catch_up(self) -> None:
        """Apply all that other replicas have written until now: a user whom one of them has erased is gone here too."""
        if not self.world.store.inline:
            await self._catch_up_to(await self.read(self.world.store.head))

    async def _catch_up_to(self, seq: int) -> None:
        """Apply the log at least up to `seq`; requests that need it at the same time do it once."""
        for _ in range(2):  # the first may have begun before this request
            if self.world.seq >= seq:
                return
            if self._catching_up is None or self._catching_up.done():
                self._catching_up = self.journal.run(_read_others)
                self._catching_up.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._catching_up)
        if self.world.seq < seq:
            raise Problem(503, f"the log ends at {self.world.seq}, its head is {seq}; verify the log", retry_after=60)

    async def fetch_user(self, name: str) -> None:
        """Read a user into the cache; concurrent calls of one caller for the same user read once."""
        key = CALLER.get(), name
        if key not in self._fetches:
            reading = asyncio.ensure_future(self._read_user(key))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._fetches[key] = _Fetch(reading)
        await asyncio.shield(self._fetches[key].reading)

    async def _read_user(self, key: tuple[str, str]) -> None:
        """Read a user as of now; the result is dropped if an event of theirs is applied meanwhile."""
        name = key[1]
        try:
            user = await self.read(self.world.loader.load, name, self.world.seq)
            if not self._fetches[key].outdated and not self.world.cache.knows(name):
                self.world.cache.admit(name, user)
        finally:
            del self._fetches[key]

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
            await self._catch_up_to(row.seq)
            return
        found = await self.read(self.slots.read, slot_id)
        if self.world.n_erasures == n_erasures:
            self.slots.admit(found)

    async def fetch_many_slots(self, slot_ids: Sequence[str]) -> dict[str, Problem]:
        """Do the same for the slots of a batch by one read; returns the refusals of decisions that the log has not.

        Those that it has, but that are not applied here yet, are left.
        """
        n_erasures = self.world.n_erasures
        found, missing = await self.read(self.slots.read_many, slot_ids)
        for slots in found:
            if self.world.n_erasures == n_erasures:
                self.slots.admit(slots)
        return missing


def _read_others(store: Store, seen: int) -> Appended:
    return Appended(list(store.events(seen)), frozenset())
