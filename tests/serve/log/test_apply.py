"""Changed rewards of a user with a long history are folded once in a commit, and the state is that of the log."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lcb.messages import ItemsRequest, RewardRequest
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.decide_many import build_rewards, reward_many
from lcb.serve.state import late_folds
from lcb.serve.state.per_user import load_users
from lcb.serve.state.per_user.own_rewards import OwnRewards
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.storage.models.folder import pack_models, save_models
from lcb.storage.store.sqlite.store import SQLite
from support import item_worlds
from support.inside import Inside, fold_log, sqlite
from support.item_worlds import fill
from support.old_log import OldLog

N = 12


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each fold of a history had."""
    found, fold = list[int](), UserFold.fold

    def count(self: UserFold, rows: Any) -> Any:
        found.append(len(rows := list(rows)))
        return fold(self, rows)

    monkeypatch.setattr(UserFold, "fold", count)
    return found


def compare(log: Inside) -> None:
    """Compare the state of the service with the log, replayed event by event."""
    world = log.service.world
    assert compare_worlds(world, fold_log(log.store)) == []
    live = {name: user.pack() for name in world.cache if (user := world.cache.peek(name)) is not None}
    assert verify(log.store, live=live).differences == []


@pytest.mark.parametrize("large", [False, True])
def test_a_user_is_folded_once_for_all_rewards_that_a_commit_changes(
    large: bool, tmp_path: Path, folded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        log.live(1)
        for i in range(N):
            for name in ("ann", "ben"):
                log.decide(name, decision_id=f"{name}{i}")
                log.reward(f"{name}{i}", 1.0)
        if large:  # a thread reads their events
            monkeypatch.setattr(load_users, "LARGE_HISTORY", 100)
        folded.clear()
        asked = [log.begin_reward(f"{name}{i}", 3.0) for i in range(N) for name in ("ann", "ben")]
        for one in asked:
            log.ended(one)
        assert folded == [3 * N, 3 * N], "each change folds the whole history"
        compare(log)


def test_events_among_changed_rewards_find_the_state_of_the_log(tmp_path: Path, folded: list[int]) -> None:
    """Decisions, first rewards and changes of the service between changes of one user, in one commit."""
    with OldLog(tmp_path / "log", 4, "sum", n_users=6) as log:
        log.live(1)
        for i in range(6):
            log.decide("ann", decision_id=f"a{i}")
        for i in range(4):
            log.reward(f"a{i}", 1.0, reward_id="first")
        asked = [
            log.begin_reward("a0", 1.0, reward_id="x"),
            log.begin_reward("a1", 1.0, reward_id="x"),
            log.begin_decide("ann", decision_id="b"),
            log.begin_reward("a2", 1.0, reward_id="x"),
            log.begin_reward("a4", 1.0, reward_id="x"),
            log.begin_reward("a3", 1.0, reward_id="x"),
            log.begin_decide("newcomer", decision_id="c"),
            log.begin_reward("a0", 2.0, reward_id="y"),
        ]
        for one in asked:
            log.ended(one)
        log.decide("ann", decision_id="d")
        compare(log)
        log.crash()
        log.decide("ann", decision_id="e")
        compare(log)


@pytest.fixture
def with_effects(tmp_path: Path) -> Iterator[Inside]:
    """A service whose items have effects, in which rewards may change."""
    inside = Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(uniform=0.2, rewards="last"))
    fill(inside)
    yield inside
    inside.close()


def decide_and_reward(inside: Inside, names: Sequence[str]) -> None:
    for i in range(N):
        for name in names:
            inside.decide(name, decision_id=f"{name}{i}")
            inside.reward(f"{name}{i}", float(i % 3 == 0))


def ask_many(inside: Inside, rewards: dict[str, float]) -> None:
    requests = [RewardRequest(id, reward) for id, reward in rewards.items()]
    assert all(isinstance(one, bytes) for one in inside.done(reward_many(inside.service, requests)))


def test_items_with_effects_need_no_fold_for_each_change(with_effects: Inside, folded: list[int]) -> None:
    inside = with_effects
    decide_and_reward(inside, ("ann", "ben"))
    folded.clear()
    ask_many(inside, {f"{name}{i}": 0.1 + i / 30 for i in range(N) for name in ("ann", "ben")})
    assert folded == [3 * N, 3 * N], "each change folds the whole history"
    compare(inside)
    ask_many(inside, {f"{name}{i}": 0.2 + i / 40 for i in range(N) for name in ("ann", "ben")})  # changed again
    inside.decide("ann", decision_id="after")
    compare(inside)


def test_a_canary_needs_no_fold_for_each_change(tmp_path: Path, folded: list[int]) -> None:
    """Neither before its verdict nor after it; the verdict finds the rates of all users."""
    save_models(item_worlds.models(), tmp_path / "models")
    settings = item_worlds.settings(models=str(tmp_path / "models"), rewards="last")
    inside = Inside(sqlite(tmp_path / "lcb.db"), settings)
    try:
        inside.items(*item_worlds.ITEMS)
        manifest, tensors = pack_models(item_worlds.models({"i0": 0.9}))
        more = {"active": False, "reason": "a test", "n_users": 1, "canary": 0.5, "canary_users": 3}
        inside.done(inside.service.add_model(manifest, tensors, **more))
        counts = inside.service.world.canary
        decide_and_reward(inside, ("ann", "ben"))
        assert len(counts.rates) == 2
        folded.clear()
        ask_many(inside, {f"{name}{i}": 0.1 + i / 30 for i in range(N) for name in ("ann", "ben")})
        assert folded == [3 * N, 3 * N], "each change folds the whole history"
        newcomers = [f"new{i}" for i in range(40)]
        for name in newcomers:
            inside.decide(name, decision_id=name)
        changes = {f"ann{i}": 0.3 for i in range(N)}  # in one commit with the rewards that bring the verdict
        asked = [inside.begin_reward(id, reward) for id, reward in changes.items()]
        asked += [inside.begin_reward(name, float(i % 4 == 0)) for i, name in enumerate(newcomers)]
        for one in asked:
            inside.ended(one)
        assert counts.verdict is not None
        compare(inside)
    finally:
        inside.close()


def test_a_batch_of_first_and_changed_rewards_folds_their_user_once(with_effects: Inside, folded: list[int]) -> None:
    inside = with_effects
    decide_and_reward(inside, ("ann",))
    for i in range(N):
        inside.decide("ann", decision_id=f"later{i}")
    folded.clear()
    ask_many(inside, {id: 0.5 for i in range(N) for id in (f"ann{i}", f"later{i}")})
    assert len(folded) == 1, "every first reward between two changes folds the whole history"
    compare(inside)


@pytest.mark.parametrize("large", [False, True])
def test_the_bytes_of_a_user_are_counted_once_for_a_batch(
    large: bool, with_effects: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, asked, bytes_of = with_effects, list[str](), SQLite.bytes_of
    decide_and_reward(inside, ("ann",))
    inside.service.world.cache.begin_erasing("ann")  # drops the user from memory
    inside.service.world.cache.end_erasing("ann")

    def count(self: SQLite, user: str, upto: int) -> int:
        asked.append(user)
        return bytes_of(self, user, upto)

    monkeypatch.setattr(SQLite, "bytes_of", count)
    if large:
        monkeypatch.setattr(load_users, "LARGE_HISTORY", 100)
    requests = [RewardRequest(f"ann{i}", 0.5) for i in range(N)]
    assert len(build_rewards(inside.service, requests, {})) == (0 if large else N)
    assert len(asked) <= 2


def test_the_slots_of_a_decision_are_read_without_the_other_events_of_their_user(
    with_effects: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, n_read = with_effects, 0
    decide_and_reward(inside, ("ann",))
    read = SQLite._read

    def count(self: SQLite, *given: Any) -> Any:
        nonlocal n_read
        n_read += len(found := read(self, *given))
        return found

    monkeypatch.setattr(SQLite, "_read", count)
    assert inside.service.slots.read("ann0")["ann0"].n == 1
    assert n_read == 2, "the decision, its reward, and others"


def wait_for(inside: Inside, task: asyncio.Task[Any]) -> None:
    """Wait for a request that needs a thread."""
    while not task.done():
        inside.write()
        time.sleep(0.001)
    task.result()


def test_a_thread_folds_a_user_with_a_long_history(with_effects: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop does not, and it does not read the user's rewards again for the effects of items."""
    inside, here, heard = with_effects, threading.current_thread(), list[str]()
    decide_and_reward(inside, ("ann", "ben"))
    monkeypatch.setattr(load_users, "LARGE_HISTORY", 100)
    fold, take_all = UserFold.fold, OwnRewards.take_all

    def listen_to_fold(self: UserFold, rows: Any) -> Any:
        if threading.current_thread() is here:
            heard.append("fold")
        return fold(self, rows)

    def listen_to_rewards(self: OwnRewards, rows: Any) -> None:
        if rows and threading.current_thread() is here:
            heard.append("rewards")
        take_all(self, rows)

    monkeypatch.setattr(UserFold, "fold", listen_to_fold)
    monkeypatch.setattr(OwnRewards, "take_all", listen_to_rewards)
    requests = [RewardRequest(f"{name}{i}", 0.1 + i / 30) for i in range(N) for name in ("ann", "ben")]
    wait_for(inside, inside.ask(reward_many(inside.service, requests)))
    wait_for(inside, inside.begin_reward("ann0", 0.9))
    assert heard == []
    monkeypatch.undo()
    compare(inside)


def test_a_user_folded_ahead_has_what_comes_before_the_changes_in_a_commit(
    with_effects: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First rewards, changes, an event of the service, a decision, and changes again, in one commit."""
    inside = with_effects
    decide_and_reward(inside, ("ann", "ben"))
    for i in range(4):
        inside.decide("ann", decision_id=f"later{i}")
        inside.decide("ben", decision_id=f"last{i}")
    monkeypatch.setattr(load_users, "LARGE_HISTORY", 100)
    asked = [inside.begin_reward(f"later{i}", 1.0) for i in range(3)]
    asked.append(inside.begin_reward("ann6", 0.5))  # from here on, a thread has read and folded
    asked += [inside.begin_reward(f"last{i}", 1.0) for i in range(4)]
    asked += [inside.begin_reward(f"{name}{i}", 0.9) for i in range(4) for name in ("ann", "ben")]
    asked.append(inside.ask(inside.service.put_items(ItemsRequest(items=[], remove=["i5"]))))
    asked += [inside.begin_reward(f"{name}{i}", 0.7) for i in range(4, 6) for name in ("ann", "ben")]
    asked.append(inside.begin_decide("ann", decision_id="between"))
    asked += [inside.begin_reward("later3", 1.0), inside.begin_reward("ann2", 0.3), inside.begin_reward("ann0", 0.2)]
    for one in asked:
        wait_for(inside, one)
    monkeypatch.undo()
    compare(inside)


def test_many_users_of_a_commit_are_folded_in_turns_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in between are answered from the state of the log."""
    monkeypatch.setattr(late_folds, "_SOME", -1.0)  # one user in each turn
    names = [f"user{i}" for i in range(6)]
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        log.live(1)
        for name in names:
            log.decide(name, decision_id=f"first-{name}")
            log.reward(f"first-{name}", 1.0)
        late = log.service.world.late
        asked = [log.begin_reward(f"first-{name}", 3.0) for name in names]
        log.turn()
        log.service.journal.step(wait=False)
        left = list[int]()
        while not left or left[-1]:
            log.turn(1)
            left.append(len(late.names))
            if left[-1] == 3:
                asked.append(log.begin_decide(names[-1], decision_id="meanwhile"))
        assert 3 in left
        for one in asked:
            log.ended(one)
        compare(log)
