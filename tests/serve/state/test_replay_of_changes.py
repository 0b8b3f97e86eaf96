"""A replay folds a user whose rewards changed when the state is needed, not after each change, with the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lcb.errors import StoreUnavailable
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.story import read_story
from lcb.serve.audit.verify import verify
from lcb.serve.retain.compact import compact
from lcb.serve.retain.whole_log import open_restored
from lcb.serve.service import Service
from lcb.serve.state import late_folds
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.world import World
from lcb.storage.store.base import Store
from support import item_worlds
from support.inside import Inside, WithoutSnapshots, fold_log, sqlite
from support.item_worlds import fill
from support.old_log import OldLog

N = 12


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each fold of a history had."""
    found, fold = list[int](), UserFold.fold

    def count(self: UserFold, rows: Any) -> Any:
        if rows := list(rows):
            found.append(len(rows))
        return fold(self, rows)

    monkeypatch.setattr(UserFold, "fold", count)
    return found


def load(store: Store, most_bytes: int | None = None) -> World:
    world = World(WithoutSnapshots(store), most_bytes=most_bytes)  # type: ignore[arg-type]
    world.load()
    return world


def pack(world: World, store: Store) -> dict[str, bytes]:
    return {name: user.pack() for name in store.users() if (user := world.user(name)) is not None}


def compare(store: Store) -> None:
    """Compare a replayed state with that of a world to which each event was applied alone."""
    alone, world = fold_log(store), load(store)
    assert compare_worlds(world, alone) == []
    assert pack(world, store) == pack(alone, store)
    assert world.snapshot().body == alone.snapshot().body
    assert verify(store).differences == []


def change(log: Inside) -> None:
    """Two users with N decisions each; all of their rewards change twice, in turns and one by one."""
    for i in range(N):
        for name in ("ann", "ben"):
            log.decide(name, decision_id=f"{name}{i}")
            log.reward(f"{name}{i}", 1.0)
    for value in (0.5, 0.25):
        for i in range(N):
            for name in ("ann", "ben"):
                log.reward(f"{name}{i}", value)


def test_a_user_is_folded_once_however_many_rewards_changed(tmp_path: Path, folded: list[int]) -> None:
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        change(log)
        for i in range(N):  # events without a user are left between other changes
            log.decide("gone", decision_id=f"gone{i}")
            log.reward(f"ann{i}", 0.75)
        log.erase("gone")
        folded.clear()
        world = load(log.store)
        assert folded == [5 * N, 4 * N], "a replay folds the whole history for each change"
        folded.clear()
        steps = read_story(world, log.store.stream_of("ann", 0, world.seq))
        assert folded == [5 * N], "a story folds the whole history for each change"
        assert [step.reward for step in steps] == [0.75] * N
        folded.clear()
        verify(log.store)
        assert len(folded) <= 4 + len(list(log.store.all_snapshots())), "a verification folds for each change"
        folded.clear()
        compact(log.store, log.archive, 0.0, now=lambda: log.wall + 1, sleep=lambda seconds: None)
        assert len(folded) <= 3 * 3, "a compaction folds for each change"
        log.crash()
        with open_restored(log.store, log.archive) as whole:
            assert verify(whole, whole=True).differences == []
            compare(whole)


@pytest.mark.parametrize("rule", ["last", "sum"])
@pytest.mark.parametrize("tight", [False, True])
def test_the_state_is_that_of_events_applied_alone(
    rule: str, tight: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, rules, model versions, erasures and several recommenders; `tight`: with hardly any memory."""
    if tight:
        monkeypatch.setattr(late_folds, "_LOOK_EVERY", 1)
        monkeypatch.setattr(late_folds, "_MOST_HELD", 3)
    with OldLog(tmp_path / "log", 7, rule, n_users=8) as log:
        log.live(4)
        log.erase(next(name for name in log.store.users()))
        log.live(4)
        compare(log.store)
        small, alone = load(log.store, most_bytes=2000), fold_log(log.store)
        assert compare_worlds(small, alone) == []
        assert pack(small, log.store) == pack(alone, log.store)
        assert len(small.cache) < log.n_users


@pytest.mark.parametrize("tight", [False, True])
def test_effects_of_items_are_those_of_events_applied_alone(
    tight: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tight:
        monkeypatch.setattr(late_folds, "_LOOK_EVERY", 1)
        monkeypatch.setattr(late_folds, "_MOST_HELD", 3)
    inside = Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(uniform=0.2, rewards="last"))
    try:
        fill(inside)
        change(inside)
        inside.decide("ann", decision_id="after")
        inside.reward("ben3", 0.75)
        inside.decide("cleo", decision_id="other")
        inside.reward("ben3", 0.5)
        compare(inside.store)
    finally:
        inside.close()


def test_a_service_says_that_a_user_was_erased_while_it_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another replica, after an event of the user was read."""
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        change(log)
        release, left = World.release, ["ann"]

        def erase(self: World) -> None:
            if left and self is not log.service.world:
                log.erase_now(left.pop())
            release(self)

        monkeypatch.setattr(World, "release", erase)
        other = log.open()
        try:
            with pytest.raises(StoreUnavailable, match="erased while the log was read; start again"):
                Service(log.settings, other)
            Service(log.settings, other)
        finally:
            other.close()
        assert not left
