"""Users with large states: a batch loads and stores some of them at a time, and others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest, RewardRequest
from lcb.serve import decide_many as many
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.decide_many import decide_many, find_user_now, reward_many, split_by_users
from lcb.serve.log import apply
from support.inside import Inside, fold_log, sqlite

N_FEATURES, N_USERS = 200, 20
STATE = 8 * (N_FEATURES * (N_FEATURES + 1) // 2)  # bytes, about
NAMES = [f"u{i}" for i in range(N_USERS)]
SETTINGS = Settings(limits=replace(Limits(), cached_bytes=16 * 5 * STATE))  # a part has room for some 4 users


def draw_arms() -> list[Arm]:
    return [Arm(f"a{i}", np.random.default_rng(i).random(N_FEATURES).tolist()) for i in range(2)]


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(sqlite(tmp_path / "lcb.db"), SETTINGS)
    arms = draw_arms()
    made.done(decide_many(made.service, [DecisionRequest(name, arms, decision_id=f"{name}-1") for name in NAMES]))
    made.done(reward_many(made.service, [RewardRequest(f"{name}-1", 1.0) for name in NAMES]))
    yield made
    made.close()


def compare(log: Inside) -> None:
    world = log.service.world
    assert compare_worlds(world, fold_log(log.store)) == []
    live = {name: user.pack() for name in world.cache if (user := world.cache.peek(name)) is not None}
    assert verify(log.store, live=live).differences == []


def split(log: Inside, users: Sequence[str | None]) -> tuple[list[int], int]:
    """Return the sizes of the parts of a batch, and how many pauses there were."""
    n_pauses = 0

    async def pause() -> None:
        nonlocal n_pauses
        n_pauses += 1
        await asyncio.sleep(0)

    async def run() -> list[int]:
        return [part.stop - part.start async for part in split_by_users(log.service, users, pause)]

    return log.run(run()), n_pauses


def test_a_part_of_a_batch_has_few_large_users_and_others_have_their_turn_before_the_next(inside: Inside) -> None:
    sizes, n_pauses = split(inside, NAMES)
    assert sizes == [4] * 5
    assert n_pauses >= 4
    assert split(inside, [None] * 20) == ([20], 0)


def test_newcomers_count_as_much_as_the_users_who_are_known(inside: Inside) -> None:
    assert split(inside, [f"new{i}" for i in range(N_USERS)])[0] == [4] * 5


def test_users_are_loaded_for_some_milliseconds_at_a_time(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_SOME", -1.0)
    monkeypatch.setattr(many, "_PARTS_OF_CACHE", 1)
    assert split(inside, NAMES) == ([N_USERS], N_USERS)


def test_a_reward_of_a_batch_is_counted_for_its_user(inside: Inside) -> None:
    asked = [f"{name}-1" for name in NAMES]
    assert [find_user_now(inside.service, id) for id in [*asked, "unknown"]] == [*NAMES, None]


def test_events_are_applied_some_milliseconds_at_a_time_to_the_same_state(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    applier, seqs = inside.service.applier, list[int]()
    note: Any = applier._on_applied

    def count(rows: Any, bodies: Any) -> None:
        seqs.append(len(rows))
        note(rows, bodies)

    monkeypatch.setattr(applier, "_on_applied", count)
    monkeypatch.setattr(apply, "_SOME", -1.0)
    arms = draw_arms()
    for i in (2, 3):
        asked = [DecisionRequest(name, arms, decision_id=f"{name}-{i}") for name in NAMES]
        assert all(isinstance(one, bytes) for one in inside.done(decide_many(inside.service, asked)))
        rewards = [RewardRequest(f"{name}-{i}", float(i % 2)) for name in NAMES]
        assert [one for one in inside.done(reward_many(inside.service, rewards)) if not isinstance(one, bytes)] == []
    assert sum(seqs) == 4 * N_USERS
    assert max(seqs) < N_USERS
    compare(inside)


def test_a_user_whose_snapshot_was_not_worth_writing_is_read_from_the_events(inside: Inside) -> None:
    arms, cache = draw_arms(), inside.service.world.cache
    cache.most_bytes = 2 * STATE
    for i in range(2, 9):
        for name in NAMES:
            inside.decide(name, decision_id=f"{name}-{i}", arms=[{"id": arm.id, "x": arm.x} for arm in arms])
            inside.reward(f"{name}-{i}", float(i % 2))
    assert len(cache) < 3
    stored = [inside.store.snapshot(f"user/{name}") for name in NAMES]
    assert any(one is not None for one in stored)
    compare(inside)
