"""Mixtures of running services: users leave after `idle`, the learning process refits, replicas hold the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import numpy as np

from lcb.evaluate.worlds.paper import SimulatedUsers, SimulatedWorld
from lcb.event_log import EventLog
from lcb.learners.mixture.learner import fit
from lcb.models import LatentModels
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning
from lcb.serve.web import keys
from lcb.stats import UserStats
from lcb.storage.models.folder import save_models
from lcb.storage.store.open_store import open_store
from support.running import Running, arms_of, running

MODELS = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0, 0.3], [0.0, 1.0, 0.3]], sigma2=[0.01, 0.01])
SPEC = RecommenderSpec("mix", "mixture", settings={"n_samples": 2, "n_sweeps": 4}, uniform=0.0)


def draw(n_users: int, seed: int = 0) -> SimulatedUsers:
    return SimulatedWorld(MODELS, n_arms=4).draw(n_users, 4, np.random.default_rng(seed))


async def wait_until(condition: Callable[[], bool], seconds: float = 240) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def start(service: Running) -> None:
    service.app.refits.start()
    service.app.departures.start()


async def stop(service: Running) -> None:
    await service.app.departures.stop()
    await service.app.refits.stop()


def test_two_replicas_on_postgres_seat_refit_and_erase_alike(postgres_database):
    given = {"recommenders": (SPEC,), "pages": False, "learning": Learning(idle=0.3)}

    async def drive() -> None:
        async with running(postgres_database, **given) as one, running(postgres_database, **given) as other:
            for service in (one, other):
                start(service)
            await one.visits("a", draw(6))
            await other.visits("b", draw(6, 1))
            mixtures = [service.world.mixtures for service in (one, other)]
            await wait_until(lambda: all(each.history.get("mix") and not each.present for each in mixtures))
            await wait_until(lambda: not one.app.refits.running and not other.app.refits.running)
            for service in (one, other):
                await stop(service)
            await one.decide("a0", arms_of(draw(1, 2).contexts[0, 0]))  # comes back
            await one.service.erase("b1")
            head = one.service.store.head()
            await wait_until(lambda: one.world.seq == other.world.seq == head)
            assert compare_worlds(one.world, other.world) == []
            assert len(one.world.mixtures.mixtures["mix"].seats) == 11  # the erased user is in until the next refit
            assert len(one.world.mixtures.mixtures["mix"].samples) == 2
            assert one.app.refits.error is None
            assert other.app.refits.error is None

    asyncio.run(drive())
    store = open_store(postgres_database, create=False)
    try:
        report = verify(store)
    finally:
        store.close()
    assert report.differences == []
    assert report.n_erased == 4


def test_a_mixture_refits_where_keys_were_created_before_the_service_began(tmp_path):
    with closing(open_store(str(tmp_path / "lcb.db"))) as store:
        keys.create(store, "first", "writer", 0.0, "here")

    async def drive() -> None:
        async with running(tmp_path, recommenders=(SPEC,), pages=False, learning=Learning(idle=0.3)) as service:
            start(service)
            await service.visits("a", draw(6))
            await wait_until(lambda: service.app.refits.error or service.world.mixtures.history.get("mix"))
            await stop(service)
            assert service.app.refits.error is None

    asyncio.run(drive())


def test_a_mixture_learned_offline_goes_on_with_its_classes(tmp_path):
    past = draw(40, seed=3)
    user = np.repeat(np.arange(40), 4)
    stats = UserStats.from_rows(user, past.contexts[:, :, 0].reshape(-1, 3), past.rewards[:, :, 0].ravel())
    save_models(fit(EventLog(stats), rng=np.random.default_rng(0)).models, tmp_path / "models")
    given = {"recommenders": (SPEC,), "pages": False, "models": str(tmp_path / "models")}

    async def drive() -> None:
        async with running(tmp_path, **given) as service:
            mixture = service.world.mixtures.mixtures["mix"]
            assert [round(share, 1) for share in sorted(mixture.shares().values())[-2:]] == [0.5, 0.5]
            users = draw(12, seed=4)
            shown = await service.visits("u", users)
            best = users.means.argmax(axis=2)
            assert (shown == best)[:, 1:].mean() > 0.8  # the classes are known: one reward tells which it is
            assert not mixture.seats
        async with running(tmp_path, **given) as service:
            assert service.world.mixtures.mixtures["mix"].shares() == mixture.shares()

    asyncio.run(drive())
