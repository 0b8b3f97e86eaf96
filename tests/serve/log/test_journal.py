"""A request that fails or is cancelled does not fail the others of its batch."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from lcb.messages import Arm, DecisionRequest
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.errors import Problem
from lcb.serve.service import Service
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
