"""A request that fails or is cancelled does not fail the others of its batch."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from lcb.messages import Arm, DecisionRequest
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.decide.entry import Entry
from lcb.serve.decide_many import decide_many
from lcb.serve.errors import Problem
from lcb.serve.log.waiting import IdTaken
from lcb.serve.service import Service
from lcb.serve.threads import CALLER
from lcb.storage.store.base import Appended, Store
from lcb.storage.store.open_store import open_store

PATIENCE = 0.3


def asked(user: str, n_features: int) -> DecisionRequest:
    return DecisionRequest(user, [Arm(id, [1.0] * n_features) for id in "ab"])


async def held(service: Service, gate: threading.Event) -> asyncio.Future[None]:
    """The thread that writes has something else to do until the gate opens."""

    def wait(store: Store, seen: int) -> Appended:
        gate.wait(20)
        return Appended([], frozenset())

    job = service.journal.run(wait)
    await asyncio.sleep(0.05)
    return job


def begun(folder: Path) -> Service:
    settings = Settings(store=str(folder / "lcb.db"), limits=Limits(patience=PATIENCE))
    service = Service(settings, open_store(settings.store, serve=True))
    service.start()
    return service


def test_of_two_first_requests_that_are_written_together_one_says_how_many_features_there_are(tmp_path: Path) -> None:
    async def run() -> None:
        service, gate = begun(tmp_path), threading.Event()
        job = await held(service, gate)
        with pytest.raises(Problem, match="has not answered"):  # it stays in the row
            await service.decide(asked("Ann", 3))
        service.journal.patience = 20
        later = asyncio.create_task(service.decide(asked("Bob", 5)))
        await asyncio.sleep(0.05)
        gate.set()
        await job
        with pytest.raises(Problem, match="the arms have 5 features, but this service has 3"):
            await later
        await service.decide(asked("Cid", 3))
        assert service.journal.broken is None
        await service.stop()

    asyncio.run(run())


def test_who_gives_up_does_not_take_along_who_came_at_the_same_time(tmp_path: Path) -> None:
    async def run() -> None:
        service, gate = begun(tmp_path), threading.Event()
        await service.decide(asked("Ann", 3))
        service.journal.patience = 20
        job = await held(service, gate)
        stays, leaves = (asyncio.create_task(service.decide(asked(name, 3))) for name in ("Bob", "Cid"))
        await asyncio.sleep(0.05)
        leaves.cancel()
        await asyncio.sleep(0.6)  # time to look at who waits, twice
        gate.set()
        await job
        assert b"decision_id" in await stays
        await service.stop()

    asyncio.run(run())


def test_of_entries_that_are_written_together_only_those_are_lost_whose_ids_are_taken(tmp_path: Path) -> None:
    async def run() -> None:
        service = begun(tmp_path)
        await service.decide(asked("Ann", 3))
        made = [service.decisions.decide(asked(user, 3)) for user in ("Ann", "Bob", "Cid")]
        entries = [one for one in made if isinstance(one, Entry)]
        await service.journal.append(entries[1])
        with pytest.raises(IdTaken) as taken:
            await service.journal.append(*entries)
        assert taken.value.ids == {entries[1].row.id}
        stored = [row.id for row in service.store.events(0) if row.kind == "decision"]
        assert stored[1:] == [entries[1].row.id, entries[0].row.id, entries[2].row.id]
        assert service.journal.n_waiting == 0
        assert all(service.journal.pending(one.key) is None for one in entries)
        await service.stop()

    asyncio.run(run())


def test_of_a_batch_as_many_wait_as_there_is_room_for(tmp_path: Path) -> None:
    async def run() -> None:
        service, gate = begun(tmp_path), threading.Event()
        users = ["Ann", "Bob", "Cid", "Dan", "Eve"]
        await decide_many(service, [asked(user, 3) for user in users])
        service.journal.patience, service.journal.places.most = 20, 3
        job = await held(service, gate)
        later = asyncio.create_task(decide_many(service, [asked(user, 3) for user in users]))
        await asyncio.sleep(0.05)
        assert service.journal.n_waiting == 3
        gate.set()
        await job
        found = await later
        assert [isinstance(one, bytes) for one in found] == [True, True, True, False, False]
        assert all(isinstance(one, Problem) and one.status == 503 for one in found[3:])
        await service.stop()

    asyncio.run(run())


def test_one_caller_leaves_places_to_others_who_ask_too(tmp_path: Path) -> None:
    """Who asks for more than there are places for is refused first."""

    async def run() -> None:
        service, gate = begun(tmp_path), threading.Event()
        users = [f"user{i}" for i in range(30)]
        await decide_many(service, [asked(user, 3) for user in users])
        service.journal.patience, service.journal.places.most = 20, 20
        CALLER.set("other")
        await service.decide(asked("Ann", 3))
        job = await held(service, gate)
        CALLER.set("greedy")
        greedy = asyncio.create_task(decide_many(service, [asked(user, 3) for user in users]))
        await asyncio.sleep(0.05)
        assert service.journal.n_waiting == 10
        again = await decide_many(service, [asked(user, 3) for user in users])
        assert all(isinstance(one, Problem) and "10 of them yours" in one.detail for one in again)
        CALLER.set("other")
        others = [asyncio.create_task(service.decide(asked("Ann", 3))) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert service.journal.n_waiting == 13
        gate.set()
        await job
        assert sum(isinstance(one, bytes) for one in await greedy) == 10
        assert all([isinstance(await one, bytes) for one in others])
        assert service.journal.n_waiting == 0
        await service.stop()

    asyncio.run(run())
