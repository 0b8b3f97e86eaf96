"""Erasing a user whose rewards changed: what it writes is that of a fold after each event, without as many folds."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb import messages
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.learn.departures import Departures
from lcb.serve.log.erasure import Remains, build_erasure
from lcb.serve.service import Service
from lcb.serve.state.per_user import load_users, settling
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.users import User, weigh_own
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Row
from support import item_worlds
from support.inside import Inside, fold_log, sqlite

D, N_CLASSES = 3, 3
SPECS = {
    "warmup": RecommenderSpec("lcb", "thompson"),
    "thompson": RecommenderSpec("lcb", "thompson"),
    "clicks": RecommenderSpec("lcb", "posterior-mean"),
    "learned": RecommenderSpec("lcb", "learned-classes"),
    "personal": RecommenderSpec("lcb", "learned-classes"),
    "newest": RecommenderSpec("lcb", "learned-classes", pin=False),
    "everyone": RecommenderSpec("lcb", "linucb", scope="everyone"),
    "counting": RecommenderSpec("lcb", "exp3"),
    "mixture": RecommenderSpec("lcb", "mixture"),
}


def build_models(case: str, rng: np.random.Generator) -> LatentModels:
    """Classes so alike that a user is settled after some thirty rewards, or after none."""
    beta = 0.5 + (0.5 if case == "personal" else 0.25) * rng.normal(size=(N_CLASSES, D))
    if case == "clicks":
        return LatentModels(
            np.full(N_CLASSES, 1 / 3), beta / D, np.ones(N_CLASSES), likelihood="bernoulli", levels=(0.0, 1.0)
        )
    of_people = np.tile(0.02 * np.eye(D), (N_CLASSES, 1, 1)) if case == "personal" else None
    noise = np.full(N_CLASSES, 0.3)
    return LatentModels(np.full(N_CLASSES, 1 / 3), beta, noise, covariance=of_people, personal=case == "personal")


@pytest.fixture(params=SPECS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inside]:
    """A log with one user, whose rewards come late and change in any order while decisions go on."""
    rng, chance, case = np.random.default_rng(5), random.Random(5), request.param
    settings = Settings(recommenders=(SPECS[case],), pages=False, rewards="last", reward_range=(0.0, 1.0))
    inside = Inside(sqlite(tmp_path / "lcb.db"), settings)
    inside.items(*({"id": f"i{i}", "x": rng.random(D).tolist()} for i in range(5)))
    n = 0
    for step in range(400):
        if step in (0, 200) and SPECS[case].over_classes and case != "warmup":
            manifest, tensors = pack_models(build_models(case, rng))
            inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))
        if step % 4 == 0:
            n += 1
            inside.decide("ann", decision_id=f"d{n}", **({"k": 2} if n % 5 == 0 else {}))
        elif (slot := chance.randint(1, n)) % 7:
            inside.reward(f"d{slot}/1" if slot % 5 == 0 else f"d{slot}", chance.choice((0.0, 1.0, 0.3)))
        if case == "mixture" and step % 60 == 59:
            leave(inside)
    yield inside
    inside.close()


def leave(inside: Inside) -> None:
    """Let the idle time pass, and write that the user has left."""
    inside.pass_time(inside.settings.learning.idle + 1)
    assert inside.done(Departures(inside.service, lambda: None).write_due()) == 1


def compare(world: World, rows: list[Row]) -> list[User]:
    """Hold what an erasure writes against a fold of all events up to each."""
    rewrites, event = build_erasure(world, rows, 0.0, lambda: "x")
    body = events.decode("erase", event.body)
    after, added = list[User](), dict[str, tuple[int, float]]()
    for i, (row, rewrite) in enumerate(zip(rows, rewrites, strict=True)):
        user = world.fold.fold(rows[: i + 1])
        assert user is not None
        counts = (user.n_decisions, user.n_rewards, user.reward_sum, user.settled)
        assert body.history[i] == (row.seq, *counts)
        assert body.models is not None
        assert body.models[i] == user.model
        left = events.decode(rewrite.kind, rewrite.body)
        if rewrite.kind == "erased reward" and left.residual is not None:
            found = weigh_own(user.residuals, left.item)
            before = added.get(left.item, (0, 0.0))
            assert left.residual == (found[0] - before[0], found[1] - before[1])
            added[left.item] = found
        if rewrite.kind == "erased leave" and user.left == row.seq:
            assert user.state is not None
            assert left.row == user.state.tobytes()
        after.append(user)
    return after


def test_what_is_written_is_that_of_a_fold_after_each_event(log: Inside, request: pytest.FixtureRequest) -> None:
    rows = log.store.events_of("ann")
    after = compare(log.service.world, rows)
    n_changes = sum(row.kind == "reward" and "#" in row.id for row in rows)
    assert n_changes > 100
    case = request.node.callspec.params["log"]
    if case in ("thompson", "clicks", "learned", "personal", "newest"):
        settled = {user.settled for user in after}
        assert len(settled) > 4, "rewards must change when the user was settled"
        assert 0 in {user.settled for user in after[len(after) // 4 :]}
    if case == "mixture":
        assert sum(row.kind == "leave" for row in rows) > 5


def test_the_pasts_may_be_followed_few_at_a_time(log: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    world, rows = log.service.world, log.store.events_of("ann")
    wanted = build_erasure(world, rows, 0.0, lambda: "x")
    monkeypatch.setattr(settling, "_MOST_BYTES", 0)
    assert build_erasure(world, rows, 0.0, lambda: "x") == wanted


def test_events_may_be_taken_in_parts(log: Inside) -> None:
    world, rows = log.service.world, log.store.events_of("ann")
    wanted = build_erasure(world, rows, 0.0, lambda: "x")
    remains, cut = Remains(world), random.Random(1)
    while len(remains.taken) < len(rows):
        assert remains.continues_in(rows)
        remains.take(rows[len(remains.taken) : len(remains.taken) + cut.randint(1, 60)])
    assert (remains.rewrites, remains.build_event(0.0, "x")) == wanted
    assert not remains.continues_in(rows[1:])


def test_the_log_verifies_before_and_after(log: Inside) -> None:
    log.decide("ben", decision_id="of-ben")
    assert verify(log.store).differences == []
    log.erase("ann")
    assert verify(log.store).differences == []
    assert fold_log(log.store).snapshot().body == log.service.world.snapshot().body


def test_item_effects_stay_as_they_were(tmp_path: Path) -> None:
    inside = Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(rewards="last", reward_range=(0.0, 1.0)))
    item_worlds.fill(inside)
    chance = random.Random(3)
    for i in range(60):
        inside.decide("ann", decision_id=f"d{i}")
        for _ in range(4):
            inside.reward(f"d{chance.randint(0, i)}", chance.random())
    compare(inside.service.world, inside.store.events_of("ann"))
    before = inside.service.world.items.sums
    inside.erase("ann")
    assert inside.service.world.items.sums == before == fold_log(inside.store).items.sums
    assert verify(inside.store).differences == []
    inside.close()


@pytest.mark.parametrize("n", [20, 60])
def test_events_are_folded_less_often_than_rewards_change(
    tmp_path: Path, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(rewards="last", reward_range=(0.0, 1.0)))
    item_worlds.fill(inside)
    for i in range(n):
        inside.decide("ann", decision_id=f"d{i}")
        inside.reward(f"d{i}", 0.0)
    for value in (0.5, 1.0):
        for i in range(n):
            inside.reward(f"d{i}", value)
    n_steps, step = 0, UserFold.step

    def count(self: UserFold, user: User, row: Row, body: Any, reward: float) -> None:
        nonlocal n_steps
        n_steps += 1
        step(self, user, row, body, reward)

    monkeypatch.setattr(UserFold, "step", count)
    inside.erase("ann")
    assert n_steps <= 4 * n, "events are folded for each changed reward"
    inside.close()


def test_others_write_while_a_long_history_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_users, "LARGE_HISTORY", 1000)
    began, may_end, fold_count = threading.Event(), threading.Event(), UserFold.count

    def hold(self: UserFold, user: User, row: Row, body: Any) -> None:
        if threading.current_thread() is not threading.main_thread() and row.user == "ann":
            began.set()
            assert may_end.wait(30)
        fold_count(self, user, row, body)

    async def serve() -> None:
        spec = RecommenderSpec("own", "linucb")
        service = Service(Settings(recommenders=(spec,), pages=False), sqlite(tmp_path / "lcb.db")())
        service.start()

        async def decide(user: str, id: str) -> None:
            arms = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]
            await service.decide(
                msgspec.convert({"user": user, "decision_id": id, "arms": arms}, messages.DecisionRequest)
            )

        for i in range(20):
            await decide("ann", f"a{i}")
        monkeypatch.setattr(UserFold, "count", hold)
        erasing = asyncio.create_task(service.erase("ann"))
        try:
            assert await asyncio.to_thread(began.wait, 30)
            await asyncio.wait_for(decide("ben", "b0"), 10)
            assert not erasing.done()
        finally:
            may_end.set()
        assert await erasing == 20
        assert verify(service.store).differences == []
        await service.stop()

    asyncio.run(serve())
