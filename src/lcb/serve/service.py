"""The service without HTTP: requests in, answers out, each after its event is on disk."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import structlog

from lcb import messages
from lcb.errors import InputError, LCBError, StoreUnavailable
from lcb.serve import events
from lcb.serve.config.settings import Settings
from lcb.serve.decide.desk import Desk, Entry
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, model_id, reward_id, user_snapshot
from lcb.serve.log.bootstrap import FirstItems, prepare, read_first_items
from lcb.serve.log.erasure import build_erasure
from lcb.serve.log.journal import Behind, IdTaken, Journal
from lcb.serve.state.users import WARMUP, User
from lcb.serve.state.world import World
from lcb.serve.strict_json import decode
from lcb.storage.store.base import Appended, NewRow, Row, Snapshot, Store

T = TypeVar("T")
_KEPT_AT_ONCE = 2000
_READERS, _MOST_READING = 8, 64
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)
Watcher = Callable[[Row, Any], None]


class Service:
    """Settings, a store, a clock and a source of ids; `start` brings it up, `stop` drains it.

    An empty catalogue is filled with `items`, else with the file that the settings name.
    """

    def __init__(
        self, settings: Settings, store: Store, *, items: FirstItems | None = None,
        now: Callable[[], float] = time.time, new_id: Callable[[], str] | None = None,
        seed: Callable[[], bytes] = lambda: os.urandom(16),
        monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.settings, self.store, self.now = settings, store, now
        self.new_id = new_id or time_ordered_ids(now)
        self._fetches: dict[str | None, asyncio.Future[None]] = {}  # users who are being read
        self._passed: set[str | None] = set()  # those of them of whom an event came meanwhile
        self._readers = ThreadPoolExecutor(_READERS, "lcb-read")
        self._n_reading = 0
        self._sizing = asyncio.Lock()
        self.watchers: list[Watcher] = []  # told of every event after it is applied
        self._arriving: dict[str, asyncio.Event] = {}  # users whose first decision is on its way
        self.world = World(store, most_users=settings.limits.cached_users)
        prepare(settings, store, self.world, now, self.new_id, seed, items)
        self.desk = Desk(self.world, settings.share, now, self.new_id, shadow=settings.shadow)
        if settings.items is not None and not len(self.world.catalogue):
            self._fill(items or read_first_items(settings.items))
        limits = settings.limits
        self.journal = Journal(
            store, self.desk, most_waiting=limits.max_waiting, patience=limits.patience, applied=self._watch,
            monotonic=monotonic, sleep=sleep,
        )  # fmt: skip

    def _fill(self, items: FirstItems) -> None:
        """Put the first items into an empty catalogue."""
        try:
            made = self.desk.items(decode(_ITEMS, items.body))
        except Problem as problem:
            raise InputError(f"items {items.name}: {problem}; give a JSON file as PUT /v1/items takes it") from None
        first = {made.row.id} if made.first else set()
        for row in self.store.append([made.row], self.world.seq, (), first).rows:
            self.desk.apply(row)

    def _watch(self, row: Row, body: Any) -> None:
        if row.user in self._fetches:
            self._passed.add(row.user)
        elif row.kind == "erase":
            self._passed.update(self._fetches)
        if self.watchers:
            body = events.decode(row.kind, row.body) if body is None else body
            for watcher in self.watchers:
                watcher(row, body)

    def start(self, *, alone: bool = False) -> None:
        """From inside the event loop; `alone` as the journal has it."""
        self.journal.start(alone=alone)

    async def stop(self) -> None:
        """What waits is written, then a snapshot of everything, then nothing more."""
        await self.journal.stop()
        try:
            kept = self.snapshots()
            for start in range(0, len(kept), _KEPT_AT_ONCE):
                await asyncio.to_thread(self.store.append, [], self.world.seq, kept[start : start + _KEPT_AT_ONCE])
        except StoreUnavailable as error:  # the log has it all: only the next start is slower
            structlog.get_logger("lcb.serve").warning("no snapshot was written", error=str(error))
        finally:
            self._readers.shutdown(wait=False, cancel_futures=True)
            self.store.close()

    def snapshots(self) -> list[Snapshot]:
        """Of everything that the store has no snapshot of."""
        new = [(name, user) for name, user in self.world.users.items() if user.unsaved]
        return [self.world.snapshot(), *(Snapshot(user_snapshot(name), user.seq, user.pack()) for name, user in new)]

    # Requests

    def decide(self, request: messages.DecisionRequest, recommender: str | None = None) -> Awaitable[bytes]:
        """`recommender` is for a newcomer who is not to be assigned by share."""
        if self.desk.first:
            return self._first(lambda: self._decide(request, recommender))
        return self._decide(request, recommender)

    async def _decide(self, request: messages.DecisionRequest, recommender: str | None) -> bytes:
        id, known, looked = request.decision_id, None, self.store.inline
        while True:
            if id is not None and self.journal.pending(id) is not None:
                await self._settled(id)
            elif id is not None and not looked:
                known, looked = await self._far(self.store.event, id), True
            elif not self._has(request.user):
                await self._fetch_user(request.user)
            elif (first := self._arriving.get(request.user)) is not None:
                self.journal.check_room()  # who waits for another's place in a full queue is told at once
                await first.wait()
            else:
                made = self.desk.decide(request, recommender, known)
                if isinstance(made, bytes):
                    return made
                if await (self._arrived(request.user, made) if made.newcomer else self._appended(made)):
                    return made.answer
                looked = self.store.inline

    async def reward(self, request: messages.RewardRequest) -> bytes:
        id = request.decision_id
        decision_id = decision_of_slot(id)
        while True:
            if self.journal.pending(decision_id) is not None:
                await self._settled(decision_id)
            elif self.journal.pending(reward_id(id)) is not None:
                await self._settled(reward_id(id))
            elif not self.store.inline and id not in self.desk.open:
                await self._fetch_slots(id)
            elif not self.store.inline and not self.world.knows(self.desk.open[id].user):
                await self._fetch_user(self.desk.open[id].user)
            else:
                made = self.desk.reward(request)
                if isinstance(made, bytes):
                    return made
                if await self._appended(made):
                    return made.answer
                self.desk.open.pop(id, None)

    async def user(self, name: str) -> User | None:
        """A user as of now, without holding up others."""
        if not name.isprintable():
            return None
        while not self._has(name):
            await self._fetch_user(name)
        return self.world.user(name)

    def items(self, request: messages.ItemsRequest) -> Awaitable[bytes]:
        if self.desk.first:
            return self._first(lambda: self._items(request))
        return self._items(request)

    async def _items(self, request: messages.ItemsRequest) -> bytes:
        while True:
            made = self.desk.items(request)
            if await self._appended(made):
                return made.answer

    async def erase(self, user: str) -> int:
        """A person's events, their ids, items and context, are gone when this returns; how many there were."""
        world, found = self.world, 0

        def rewrite(rows: list[Row]) -> Any:
            nonlocal found
            found = len(rows)
            if not rows:
                raise Problem(404, f"no user {user!r}; check the id", field="user")
            if not self.store.inline and rows[-1].seq > world.seq:
                raise Behind
            return build_erasure(world, rows, self.now(), self.new_id)

        world.unkept.add(user)
        world.users.pop(user, None)
        world.evicted.pop(user_snapshot(user), None)
        try:
            await self.journal.job(lambda store, seen: store.erase(user, rewrite, seen))
        finally:
            world.unkept.discard(user)
        return found

    async def add_model(
        self, manifest: bytes, tensors: bytes, *, active: bool, reason: str, n_users: int,
        score: float | None = None, baseline: float | None = None, n_started: int | None = None,
        seen: int | None = None,
    ) -> int:  # fmt: skip
        """A new version, served from here on if `active`; its number."""
        while True:
            await self._settled("model")
            version = max(self.world.versions, default=0) + 1
            body = events.ModelBody(
                self.now(), version, manifest, tensors, active, reason, n_users, score, baseline, n_started, seen
            )  # fmt: skip
            row = NewRow(model_id(version), "model", None, None, events.encode(body))
            if await self._appended(Entry(row, body, b"", "model")):
                return version

    async def activate(self, version: int, reason: str) -> None:
        """Newcomers get this version from here on; 0 is what served before there were classes."""
        known = self.world.versions.get(version)
        if known is None and version != WARMUP:
            there = ", ".join(map(str, [WARMUP, *self.world.versions]))
            raise Problem(404, f"no model version {version}; there are: {there}", field="version")
        try:
            if known is not None:
                known.models()
        except LCBError as error:
            raise Problem(409, str(error), field="version") from None
        body = events.ActivateBody(self.now(), version, reason)
        row = NewRow(f"activate/{self.new_id()}", "activate", None, None, events.encode(body))
        await self.journal.append(Entry(row, body, b"", row.id))

    # Waiting

    async def _arrived(self, user: str, entry: Entry) -> bool:
        """The first decision of somebody new: the next waits for it, or it might meet other models."""
        self._arriving[user] = asyncio.Event()
        try:
            return await self._appended(entry)
        finally:
            self._arriving.pop(user).set()

    async def _first(self, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Until one is in the log that says how many features there are, requests that do go one after another."""
        async with self._sizing:
            if self.desk.first:
                return await work()
        return await work()

    async def _appended(self, entry: Entry) -> bool:
        """Whether the event is in the log; False where another wrote one of this id first."""
        try:
            await self.journal.append(entry)
        except IdTaken:
            return False
        return True

    async def _settled(self, id: str) -> None:
        """Wait until an event that is on its way is in the log, or is refused."""
        while (waiting := self.journal.pending(id)) is not None:
            if waiting.done():  # whoever waited has given up, the event is still on its way
                raise Problem(503, f"{id} waits for the store; send the same again", retry_after=1)
            await asyncio.wait([waiting])

    async def _far(self, read: Callable[..., T], *arguments: Any) -> T:
        """Read from a store that is far, in a thread; when it does not answer, few wait for it and nobody for long."""
        trouble, patience = self.journal.trouble, self.settings.limits.patience
        if self._n_reading >= (_MOST_READING if trouble is None else 1):
            raise Problem(503, trouble or f"{self._n_reading} requests read from the store; try again", retry_after=1)
        self._n_reading += 1
        reading = asyncio.get_running_loop().run_in_executor(self._readers, read, *arguments)
        reading.add_done_callback(self._has_read)
        try:
            return await asyncio.wait_for(asyncio.shield(reading), patience)
        except TimeoutError:
            words = f"the store has not answered for {patience:g} s; send the same again"
            raise Problem(503, words, retry_after=1) from None

    def _has_read(self, reading: asyncio.Future[Any]) -> None:
        self._n_reading -= 1
        if not reading.cancelled():
            reading.exception()  # whoever asked may be gone

    def _has(self, name: str) -> bool:
        return self.store.inline or self.world.knows(name)

    async def _fetch_user(self, name: str) -> None:
        """Read a user into the cache without holding up others; those who ask at once read once."""
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = self._fetches[name] = asyncio.ensure_future(self._read_user(name))
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever asked may be gone
        await asyncio.shield(fetch)

    async def _read_user(self, name: str) -> None:
        """The log may move meanwhile: where an event of this user came by, what was read is thrown away."""
        try:
            user = await self._far(self.world.folded, name, self.world.seq)
            if name not in self._passed and not self.world.knows(name):
                self.world.take(name, user)
        finally:
            del self._fetches[name]
            self._passed.discard(name)

    async def _fetch_slots(self, id: str) -> None:
        """Bring a decision to hand that another replica made, or that is long ago."""
        n_erasures = self.world.n_erasures
        row = await self._far(self.store.event, decision_of_slot(id))
        if row is not None and row.seq > self.world.seq:
            await self.journal.job(lambda store, seen: Appended(list(store.events(seen)), frozenset()))
            return
        found = await self._far(self.desk.find, id)
        if self.world.n_erasures == n_erasures:
            self.desk.remember(found)


def time_ordered_ids(now: Callable[[], float]) -> Callable[[], str]:
    """Ids that sort by time, so that their index grows at its end; 26 hexadecimal digits."""
    chance = random.Random(os.urandom(16))
    return lambda: f"{int(now() * 1000):012x}{chance.getrandbits(56):014x}"
