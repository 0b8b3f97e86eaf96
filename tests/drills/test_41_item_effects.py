"""Drill 41: item effects are the same in any order of rewards, after a kill, an erasure and a new version, and on every
replica, the log alone gives them back, and one user moves an item no further than anybody else.
Each has a control: a build without the protection must fail it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest, ItemRequest, ItemsRequest, RewardRequest
from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.decide.rewards import Rewards
from lcb.serve.service import Service
from lcb.serve.state.items import ItemState, ItemSums
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.service_state import ServiceState
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store
from support import item_worlds
from support.harness import LONG
from support.inside import Inside, fold_log, sqlite
from support.item_worlds import ITEMS, add_version, fill

N = 400 if LONG else 60
Build = Callable[[], Inside]


@pytest.fixture
def build(tmp_path: Path) -> Any:
    made: list[Inside] = []

    def build() -> Inside:
        made.append(Inside(sqlite(tmp_path / f"lcb{len(made)}.db"), item_worlds.settings(uniform=0.2)))
        fill(made[-1])
        return made[-1]

    yield build
    for one in made:
        one.close()


def play(inside: Inside, seed: int, first: int = 0, n: int = N) -> dict[str, float]:
    """Let four users decide, and reward some decisions at once, some later; return those still without a reward."""
    rng = np.random.default_rng(seed)
    left: dict[str, float] = {}
    for i in range(first, first + n):
        more: dict[str, Any] = [{}, {"k": 2}, {"arms": ITEMS[:3]}][int(rng.integers(3))]
        answer = inside.decide(f"u{rng.integers(4)}", decision_id=f"d{i}", **more)
        for id in [slot["reward_id"] for slot in answer.get("slots") or ()] or [answer["decision_id"]]:
            left[id] = float(rng.random() < 0.3)
        if rng.random() < 0.6:
            id = list(left)[int(rng.integers(len(left)))]
            inside.reward(id, left.pop(id))
    return left


def read_effects(inside: Inside) -> list[tuple[float, float]]:
    return [inside.service.world.items.get(one["id"]) for one in ITEMS]


# The order of rewards


def play_in_order(build: Build, order: int) -> tuple[list[tuple[float, float]], list[Any]]:
    """Decide everything first, then reward in one order or another; return the effects and the users' states."""
    inside = build()
    ids = [inside.decide(f"u{i % 7}", decision_id=f"d{i}")["decision_id"] for i in range(N)]
    for i in np.random.default_rng(order).permutation(N):
        inside.reward(ids[i], float(i % 3 == 0))
        if i % 10 == 0:
            inside.decide("somebody else")
    users = [inside.service.world.user(f"u{i}").state for i in range(7)]
    assert verify(inside.store).differences == []
    return read_effects(inside), users


def test_the_order_of_rewards_changes_nothing(build: Build) -> None:
    (effects, users), (effects_again, users_again) = (play_in_order(build, order) for order in (1, 2))
    np.testing.assert_allclose(effects, effects_again, atol=1e-12)
    np.testing.assert_allclose(users, users_again, atol=1e-12)


def test_without_what_the_decision_logged_the_order_matters(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Rewards.build_event

    def build_event(self: Rewards, slot_id: str, slot: Any, sent: float, part: str | None) -> Any:
        slot.arm = msgspec.structs.replace(slot.arm, effect=self.world.items.get(slot.arm.id)[0])
        return whole(self, slot_id, slot, sent, part)

    monkeypatch.setattr(Rewards, "build_event", build_event)
    first, second = (_users_in_order(build, order) for order in (1, 2))
    assert np.abs(np.array(first) - np.array(second)).max() > 1e-6


def _users_in_order(build: Build, order: int) -> list[Any]:
    inside = build()
    ids = [inside.decide(f"u{i % 7}", decision_id=f"d{i}")["decision_id"] for i in range(N)]
    for i in np.random.default_rng(order).permutation(N):
        inside.reward(ids[i], float(i % 3 == 0))
    assert verify(inside.store).differences != []  # and the log shows it
    return [inside.service.world.user(f"u{i}").state for i in range(7)]


# Kill and replay


def play_with_kills(inside: Inside) -> list[Any]:
    """Play while the process is lost three times, once with snapshots; return what verification finds."""
    for i in range(3):
        play(inside, seed=i, first=i * N, n=N // 3)
        if i == 1:
            inside.service.store.append([], inside.service.world.seq, inside.service.build_snapshots())
        before = read_effects(inside)
        inside.crash()
        assert read_effects(inside) == before
    return verify(inside.store).differences


def test_effects_survive_a_kill_and_replay_bit_for_bit(build: Build) -> None:
    inside = build()
    assert play_with_kills(inside) == []
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []


def test_without_the_sums_in_the_snapshot_a_kill_loses_effects(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ItemState.restore
    monkeypatch.setattr(
        ItemState, "restore", lambda self, sums, learned: whole(self, ItemSums(version=sums.version), learned)
    )
    with pytest.raises(AssertionError):
        play_with_kills(build())


def test_a_decision_with_another_effect_is_found(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = build()
    play(inside, seed=0)
    whole = ItemState._compute
    monkeypatch.setattr(ItemState, "_compute", lambda self, item: (whole(self, item)[0] + 1e-15, whole(self, item)[1]))
    assert any("effect" in one or "distribution" in one for one in map(str, verify(inside.store).differences))


# A new version


def count_raters(store: Store, upto: int | None = None) -> dict[str, int]:
    """Return how many users have rewarded each item."""
    found = [
        (events.decode(row.kind, row.body).item, row.user) for row in store.events(0, upto) if row.kind == "reward"
    ]
    return Counter(item for item, _ in set(found))


def play_around_learning(inside: Inside) -> tuple[dict[str, int], dict[str, int]]:
    """Learn while rewards come in; return the users that the service counts by item, and those of the log."""
    left = play(inside, seed=0)
    seq, _ = inside.done(inside.service.begin_learning())
    for id in list(left)[: len(left) // 2]:
        inside.reward(id, left.pop(id))
    play(inside, seed=1, first=N, n=N // 2)
    learned = count_raters(inside.store, seq)  # what a version learned from the log up to `seq` knows
    made = item_worlds.models(dict.fromkeys(learned, 0.3))
    assert made.item_effects is not None
    counts = np.array([learned[id] for id in made.item_effects.ids], float)
    object.__setattr__(made.item_effects, "count", counts)
    add_version(inside, made, seen=seq)
    for id, reward in left.items():
        inside.reward(id, reward)
    return {one["id"]: inside.service.world.items.count(one["id"]) for one in ITEMS}, count_raters(inside.store)


def test_across_a_new_version_every_user_of_an_item_counts_once(build: Build) -> None:
    inside = build()
    counted, logged = play_around_learning(inside)
    assert counted == {one["id"]: logged.get(one["id"], 0) for one in ITEMS}
    assert verify(inside.store).differences == []


@pytest.mark.parametrize("wrong", ["lost", "twice"])
def test_without_the_second_table_rewards_are_lost_or_count_twice(
    build: Build, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    whole = ItemState.take_version

    def take(self: ItemState, version: int, seen: int | None, learned: Any) -> None:
        since = {} if wrong == "lost" else self.sums.since
        whole(self, version, seen, learned)
        self.sums.since = since

    monkeypatch.setattr(ItemState, "take_version", take)
    counted, logged = play_around_learning(build())
    assert (sum(counted.values()) < sum(logged.values())) == (wrong == "lost")
    assert (sum(counted.values()) > sum(logged.values())) == (wrong == "twice")


# One user who clicks and clicks


def bend(inside: Inside, clicks: int) -> tuple[float, float]:
    """Let 20 users dislike an item and one like it `clicks` times; return its effect and variance."""
    for n in range(20):
        inside.reward(inside.decide(f"u{n}", arms=[{"id": "i3"}])["decision_id"], 0.0)
    ids = [inside.decide("fan", arms=[{"id": "i3"}])["decision_id"] for _ in range(clicks)]
    for id in ids:
        inside.reward(id, 1.0)
    assert verify(inside.store).differences == []
    return inside.service.world.items.get("i3")


def test_one_user_who_clicks_often_moves_an_item_as_one_who_clicks_once(build: Build) -> None:
    once, often = bend(build(), 1), bend(build(), 100)
    assert often == pytest.approx(once, abs=0.002)
    inside = build()
    bend(inside, 30)
    before = read_effects(inside)
    inside.erase("fan")
    assert read_effects(inside) == before
    inside.crash()
    assert read_effects(inside) == before
    assert verify(inside.store).differences == []


def test_where_every_reward_counts_one_user_bends_an_item(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServiceState, "counts_users", False)
    once, often = bend(build(), 1), bend(build(), 100)
    assert often[0] - once[0] > 0.3
    assert often[1] < once[1] / 3


# One user whose features are very large


def bend_by_features(inside: Inside, size: float) -> float:
    """Let 20 users like an item, and one, who was shown it with such features, not; return its effect."""
    for n in range(20):
        inside.reward(inside.decide(f"u{n}", arms=[{"id": "i3"}])["decision_id"], 1.0)
    for i in range(20):
        inside.reward(inside.decide("stranger", arms=[{"id": f"i{i % 2}"}])["decision_id"], float(i % 2 == 0))
    shown = inside.decide("stranger", arms=[{"id": "i3", "x": [size, 0.0]}])
    inside.reward(shown["decision_id"], 0.0)
    assert verify(inside.store).differences == []
    return inside.service.world.items.get("i3")[0]


@pytest.mark.parametrize("size", [-1e6, 100.0, 1e6])
def test_a_user_with_very_large_features_moves_an_item_no_further_than_its_range(build: Build, size: float) -> None:
    usual, large = bend_by_features(build(), 1.0), bend_by_features(build(), size)
    assert abs(large - usual) < 1 / 20


def test_where_the_mean_is_not_held_to_the_range_such_a_user_decides_alone(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of before have such rewards; they are folded and verified as they are."""
    monkeypatch.setattr("lcb.serve.decide.rewards.bound_mean", lambda mean, bounds: mean)
    inside = build()
    assert bend_by_features(inside, 1e6) < -100
    monkeypatch.undo()
    before = read_effects(inside)
    inside.crash()
    assert read_effects(inside) == before
    assert verify(inside.store).differences == []


# Erasure


def play_and_erase(inside: Inside) -> list[Any]:
    play(inside, seed=0)
    before = read_effects(inside)
    inside.erase("u1")
    assert read_effects(inside) == before
    play(inside, seed=1, first=N, n=N // 3)
    return verify(inside.store).differences


def test_decisions_for_others_still_recompute_after_an_erasure(build: Build) -> None:
    inside = build()
    assert play_and_erase(inside) == []
    kept = [events.decode(row.kind, row.body) for row in inside.store.events(0) if row.kind == "erased reward"]
    assert any(one.residual for one in kept)
    assert all(one.x == b"" and one.reward == 0.0 for one in kept)
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
    seq, _ = inside.done(inside.service.begin_learning())
    add_version(inside, seen=seq)
    assert inside.service.world.items.sums.since == {}  # what was left of the erased is in no effect any more


def test_without_the_residuals_of_the_erased_decisions_do_not_recompute(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = build()
    play(inside, seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(UserFold, "moves_item", lambda *_: False)
        inside.erase("u1")
    assert verify(inside.store).differences != []


# Replicas


def test_replicas_have_the_same_effects(postgres_database: str) -> None:
    async def work() -> None:
        services = []
        for _ in range(2):
            services.append(
                await asyncio.to_thread(
                    Service, item_worlds.settings(store=postgres_database, uniform=0.2), open_store(postgres_database)
                )
            )
            services[-1].start()
        one, other = services
        await one.put_items(ItemsRequest([ItemRequest(item["id"], item["x"]) for item in ITEMS]))
        manifest, tensors = pack_models(item_worlds.models({"i0": 0.35}))
        await one.add_model(manifest, tensors, active=True, reason="a test", n_users=1)
        async with asyncio.timeout(60):
            while other.world.seq < one.world.seq:
                await asyncio.sleep(0.01)

        async def visit(n: int) -> None:
            here, there = (one, other) if n % 2 else (other, one)
            arms = [Arm(item["id"]) for item in ITEMS]
            answer = msgspec.json.decode(await here.decide(DecisionRequest(f"u{n % 5}", arms)))
            await there.reward(RewardRequest(answer["decision_id"], float(n % 3 == 0)))

        for n in range(0, N, 10):
            await asyncio.gather(*(visit(i) for i in range(n, n + 10)))
            if n == 20:
                await one.begin_learning()
        await one.erase("u1")
        async with asyncio.timeout(60):
            while one.world.seq != other.world.seq or one.world.seq < one.store.head():
                await asyncio.sleep(0.01)
        assert one.world.items.sums == other.world.items.sums
        assert one.world.items.sums.since
        for service in services:
            await service.stop()
        store = open_store(postgres_database)
        assert verify(store).differences == []
        assert compare_worlds(one.world, fold_log(store)) == []
        store.close()

    asyncio.run(asyncio.wait_for(work(), 120))
