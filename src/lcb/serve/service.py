"""The service without HTTP: each request returns its answer once its event is stored and applied."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec
import structlog

from lcb import messages
from lcb.errors import InputError, LCBError
from lcb.serve import events
from lcb.serve.config.settings import Settings
from lcb.serve.decide.assignment import Assignment
from lcb.serve.decide.decisions import Begun, Decisions
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.items import build_items_event, read_items
from lcb.serve.decide.large import is_large, prepare
from lcb.serve.decide.rewards import Rewards
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, event_id, make_time_ordered_ids, reward_id
from lcb.serve.log.apply import EventApplier
from lcb.serve.log.bootstrap import FirstItems, prepare_log, read_first_items
from lcb.serve.log.journal import Journal
from lcb.serve.log.remote_reads import RemoteReads
from lcb.serve.log.waiting import IdTaken
from lcb.serve.log.watchers import Watchers
from lcb.serve.observe.places import Places
from lcb.serve.retain.check_start import check_start
from lcb.serve.retain.erasures import Erasures
from lcb.serve.retain.folder import find_folder
from lcb.serve.retain.settle import LeftoversWatch, settle_archive
from lcb.serve.state.canary import Verdict
from lcb.serve.state.per_user.load_users import LARGE_HISTORY
from lcb.serve.state.reward_slots import RewardSlots
from lcb.serve.state.users import WARMUP, User
from lcb.serve.state.world import World
from lcb.serve.strict_json import decode
from lcb.serve.threads import Threads
from lcb.storage.store.base import NewRow, Row, Snapshot, Store

_SNAPSHOTS_PER_COMMIT, _BYTES_PER_COMMIT = 2000, 4_000_000
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)


class Service:
    """A decision service on `store`; `start` and `stop` are called inside the event loop.

    An empty catalogue is filled with `items`, else with the file that the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        items: FirstItems | None = None,
        now: Callable[[], float] = time.time,
        new_id: Callable[[], str] | None = None,
        seed: Callable[[], bytes] = lambda: os.urandom(16),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings, self.store, self.now = settings, store, now
        self.archive = find_folder(store.url, settings.archive)
        self.places = Places(store.url, self.archive)
        self.new_id = new_id or make_time_ordered_ids(now)
        self.watchers = Watchers()
        self._sizing = asyncio.Lock()
        self.large = Threads("large", most_waiting=32, patience=5.0)  # very many arms, changes of many items
        self.n_in_batches: Counter[str] = Counter(decided=0, rewarded=0, refused=0)  # elements since the start
        self.arriving: dict[str, asyncio.Event] = {}  # users whose first decision is being stored
        self.world = World(store, most_bytes=settings.limits.cached_bytes)
        check_start(store)
        prepare_log(settings, store, self.world, now, seed, items)
        settle_archive(store, self.archive, self.world.state.archived_upto)
        self.assignment = Assignment(self.world.state, settings.share)
        self.slots = RewardSlots(self.world)
        self.decisions = Decisions(self.world, self.assignment, now, self.new_id, shadow=settings.shadow)
        self.rewards = Rewards(self.world, self.slots, now, monotonic)
        if settings.items is not None and not len(self.world.state.catalogue):
            self._fill_catalogue(items or read_first_items(settings.items))
        limits = settings.limits
        self.applier = EventApplier(self.world, self.slots, self._note_applied, monotonic)
        self.journal = Journal(
            store,
            self.applier,
            most_waiting=limits.max_waiting,
            patience=limits.patience,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._reads = RemoteReads(self.journal, self.slots, limits.patience)
        self._leftovers = LeftoversWatch(store, self.archive)
        self._erasures = Erasures(self.journal, self.archive, self.now, self.new_id)

    def _fill_catalogue(self, items: FirstItems) -> None:
        try:
            entry = build_items_event(self.world.state, decode(_ITEMS, items.body), self.now, self.new_id)
        except Problem as problem:
            raise InputError(f"items {items.name}: {problem}; give a JSON file like a body of PUT /v1/items") from None
        first = {entry.row.id} if entry.fixes_n_features else set()
        for row in self.store.append([entry.row], self.world.seq, (), first).rows:
            self.world.apply(row)

    def _note_applied(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        self._reads.note_events(rows)
        self.watchers.notify(rows, bodies)

    def start(self, *, alone: bool = False) -> None:
        """Start inside the event loop; `alone` starts no writing thread (see `Journal.start`)."""
        self.journal.start(alone=alone)
        if not alone:
            self._leftovers.start()

    async def stop(self) -> None:
        """Write the queued events, then all snapshots that the store does not have yet, and close the store."""
        self.large.end()
        await self.journal.stop()
        await self.save_snapshots()
        self.close()

    async def save_snapshots(self, seconds: float = math.inf) -> None:
        """Write the snapshots that the store does not have yet, as many as these seconds allow.

        Nothing is lost if some are not written: the next start reads more of the log.  None is written of a state that
        differs from the log.
        """
        if self.journal.broken is not None:
            return
        log, until = structlog.get_logger("lcb.serve"), time.monotonic() + seconds
        left = self.build_snapshots()
        try:
            while left and time.monotonic() < until:
                n = _count_for_commit(left)
                await asyncio.to_thread(self.store.append, [], self.world.seq, left[:n])
                del left[:n]
        except LCBError as error:
            log.warning("snapshots could not be written; the next start reads more of the log", error=str(error))
        else:
            if left:
                log.info("no time for all snapshots; the next start reads more of the log", n_left=len(left))

    def close(self) -> None:
        self._leftovers.end()
        self._reads.end()
        self.store.close()

    def build_snapshots(self) -> list[Snapshot]:
        """Return the snapshots that the store does not have yet."""
        return [self.world.snapshot(), *self.world.cache.unsaved_snapshots()]

    # Requests

    def decide(
        self, request: messages.DecisionRequest, recommender: str | None = None, *, large: bool = False
    ) -> Awaitable[bytes]:
        """Decide; a new user gets `recommender`, or if it is None one that is drawn by share.

        A request that is `large` is decided in a thread, however little it scores.
        """
        if self.world.state.n_features is None:
            return self._run_alone(lambda: self._decide(request, recommender, large))
        return self._decide(request, recommender, large)

    async def _decide(self, request: messages.DecisionRequest, recommender: str | None, large: bool) -> bytes:
        id, logged, looked_up = request.decision_id, None, self.store.inline
        large = large or is_large(self.world.state, request)
        prepared = await self.large.run_next(prepare, self.world.state, request) if large else None
        while True:
            if id is not None and self.journal.pending(id) is not None:
                await self._wait_for(id)
            elif id is not None and not looked_up:
                logged, looked_up = await self._reads.read(self.store.event, id), True
                if logged is None:
                    await self._reads.read(self.decisions.check_not_archived, id)
            elif not self.world.has_user(request.user):
                await self._reads.fetch_user(request.user)
            elif (first := self.arriving.get(request.user)) is not None:
                self.journal.check_room()  # refuse now if the queue is full
                await first.wait()
            elif request.seen is not None and not self.world.has_seen(request.user):
                await self._reads.fetch_seen(request.user)
            else:
                begun = self.decisions.begin(request, recommender, logged, prepared) if large else None
                entry = self.decisions.decide(request, recommender, logged) if begun is None else begun
                if isinstance(entry, bytes):
                    return entry
                stored = self._finish(entry) if isinstance(entry, Begun) else self._append(entry)
                if (answer := await (self._hold_user(request.user, stored) if entry.newcomer else stored)) is not None:
                    return answer
                looked_up = self.store.inline

    async def reward(self, request: messages.RewardRequest) -> bytes:
        id = request.decision_id
        decision_id = decision_of_slot(id)
        while True:
            if self.journal.pending(decision_id) is not None:
                await self._wait_for(decision_id)
            elif self.journal.pending(reward_id(id)) is not None:
                await self._wait_for(reward_id(id))
            elif id not in self.slots and not self.can_read_slots(decision_id):
                await self._reads.fetch_slots(id)
            elif not self.world.has_user(user := self.slots.get(id).user):
                await self._reads.fetch_user(user)
            else:
                entry = self.rewards.reward(request)
                if isinstance(entry, bytes):
                    return entry
                if (answer := await self._append(entry)) is not None:
                    return answer
                self.slots.forget(id)

    async def get_user(self, name: str) -> User | None:
        """Return a user; None if the log has no event of them, also if another replica has erased them."""
        if not name.isprintable():
            return None
        await self._reads.catch_up()
        while not self.world.has_user(name):
            await self._reads.fetch_user(name)
        return self.world.user(name)

    def put_items(self, request: messages.ItemsRequest, *, large: bool = False) -> Awaitable[bytes]:
        """Change the catalogue; the items of a large request are read in a thread."""
        if self.world.state.n_features is None:
            return self._run_alone(lambda: self._put_items(request, large))
        return self._put_items(request, large)

    async def _put_items(self, request: messages.ItemsRequest, large: bool) -> bytes:
        state = self.world.state
        items = await self.large.run(read_items, request, state.feature_map) if large else None
        while True:
            entry = build_items_event(state, request, self.now, self.new_id, items)
            if (answer := await self._append(entry)) is not None:
                return answer

    async def erase(self, user: str, by: events.Actor | None = None) -> int:
        """Remove everything personal from a user's events, also the archived; returns the number of these events."""
        return await self._erasures.erase(user, by)

    async def add_model(
        self, manifest: bytes, tensors: bytes, *, active: bool, reason: str, n_users: int, **more: Any
    ) -> int:
        """Add a model version, which new users get from now on if `active`; returns its number.

        `more` are the optional fields of `events.ModelBody`.
        """
        while True:
            await self._wait_for("model")
            version = max(self.world.state.versions, default=0) + 1
            body = events.ModelBody(self.now(), version, manifest, tensors, active, reason, n_users, **more)
            row = NewRow(event_id("model", version), "model", None, None, events.encode(body))
            if await self._append(Entry(row, body, b"", key="model")) is not None:
                return version

    async def end_canary(self, verdict: Verdict) -> bool:
        """Carry out the verdict on a canary; False if another replica has done it."""
        body = events.CanaryBody(self.now(), verdict.version, verdict.promoted, verdict.reason, events.encode(verdict))
        row = NewRow(event_id("canary", verdict.version), "canary", None, None, events.encode(body))
        return await self._append(Entry(row, body, b"", key=row.id)) is not None

    async def begin_learning(self) -> tuple[int, int]:
        """Write into the log that a version is learned from it; return the seq to learn up to, and n_started there."""
        await self._append_new("learning", events.LearningBody(self.now()))
        return self.world.items.sums.began, self.world.started_at_learning

    async def activate(self, version: int, reason: str, by: events.Actor | None = None) -> None:
        """Give new users this model version from now on; 0 is the warm-up, which has no classes."""
        known = self.world.state.versions.get(version)
        if known is None and version != WARMUP:
            versions = ", ".join(map(str, [WARMUP, *self.world.state.versions]))
            raise Problem(404, f"no model version {version}; the versions are {versions}", field="version")
        try:
            if known is not None:
                known.models()
        except LCBError as error:
            raise Problem(409, str(error), field="version") from None
        await self._append_new("activate", events.ActivateBody(self.now(), version, reason, by))

    def declare_teachers(self, closed: Collection[str]) -> None:
        """Before the start: write into the log which recommenders visitors do not teach, unless it says so already."""
        if self.world.state.closed != set(closed):
            row = self._build_row("teachers", events.TeachersBody(self.now(), sorted(closed)))
            for stored in self.store.append([row], self.world.seq).rows:
                self.applier.apply(stored)

    async def change_teachers(self, closed: Collection[str]) -> None:
        """Do the same while the service runs."""
        if self.world.state.closed != set(closed):
            await self._append_new("teachers", events.TeachersBody(self.now(), sorted(closed)))

    async def record(self, action: str, by: events.Actor, detail: str = "", **more: Any) -> None:
        """Append an audit event; `more` are the optional fields of `events.AuditBody`."""
        await self._append_new("audit", events.AuditBody(self.now(), action, by, detail, **more))

    async def record_refusal(self, address: str, n: int, asked: list[tuple[int, str]], key: str | None) -> None:
        """Append an event for `n` refused requests of one address; `asked` are their statuses and routes."""
        body = events.RefusedBody(self.now(), address, n, *asked[0], key, asked[1:])
        await self._append_new("refused", body)

    def _build_row(self, kind: str, body: Any) -> NewRow:
        return NewRow(event_id(kind, self.new_id()), kind, None, None, events.encode(body))

    async def _append_new(self, kind: str, body: Any) -> None:
        row = self._build_row(kind, body)
        await self.journal.append(Entry(row, body, b"", row.id))

    # Waiting

    async def _hold_user(self, user: str, first: Awaitable[bytes | None]) -> bytes | None:
        """Store a new user's first decision; their next decision waits for it and gets the same models."""
        self.arriving[user] = asyncio.Event()
        try:
            return await first
        finally:
            self.arriving.pop(user).set()

    async def _finish(self, begun: Begun) -> bytes | None:
        """Finish a large decision in a thread, and append it; it may be stored after events that it has not seen."""
        return await self._append(await self.large.run_next(self.decisions.finish, begun))

    async def _run_alone(self, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Run requests one at a time until an event in the log has fixed the number of features."""
        async with self._sizing:
            if self.world.state.n_features is None:
                return await work()
        return await work()

    async def _append(self, entry: Entry) -> bytes | None:
        """Append an event and return its answer; None if it must be built again from a newer state."""
        try:
            await self.journal.append(entry)
        except IdTaken:
            return None
        return entry.answer

    async def _wait_for(self, key: str) -> None:
        """Wait until the entry with this key is stored or refused."""
        while (waiting := self.journal.pending(key)) is not None:
            if waiting.done():  # its request gave up, but the event is still queued
                raise Problem(503, f"{key} is waiting for the store; send the same request again", retry_after=1)
            await asyncio.wait([waiting])

    async def fetch_slots(self, ids: Collection[str]) -> dict[str, Problem]:
        """Read slots that are not in memory together, where the event loop should not read them itself.

        Returns the refusals of decisions that the log does not have.
        """
        missing = [
            id
            for id in ids
            if id not in self.slots
            and self.journal.pending(decision_of_slot(id)) is None
            and not self.can_read_slots(decision_of_slot(id))
        ]
        return await self._reads.fetch_many_slots(missing) if missing else {}

    def can_read_slots(self, decision_id: str) -> bool:
        """Whether the event loop may read the slots of a decision itself."""
        return self.store.inline and self.store.bytes_of_event(decision_id) <= LARGE_HISTORY


def _count_for_commit(snapshots: list[Snapshot]) -> int:
    """Return how many of these snapshots one commit takes: at least one."""
    n_bytes = 0
    for n, one in enumerate(snapshots[:_SNAPSHOTS_PER_COMMIT], start=1):
        n_bytes += len(one.body)
        if n_bytes >= _BYTES_PER_COMMIT:
            return n
    return min(len(snapshots), _SNAPSHOTS_PER_COMMIT)
