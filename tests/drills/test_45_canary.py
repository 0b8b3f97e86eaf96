"""Drill 45: a canary that is worse is withdrawn and one that is better is promoted, by events that follow from the log;
its users are drawn once and stay, through kills, erasures and on every replica.  Controls: without the comparison a
worse version is promoted, and without the draw users change version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest, RewardRequest
from lcb.models import LatentModels
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.serve.learn.canaries import Canaries
from lcb.serve.service import Service
from lcb.serve.state.canary import PROMOTED, WITHDRAWN, Canary, CanaryCounts
from lcb.storage.models.folder import pack_models, save_models
from lcb.storage.store.open_store import open_store
from support.harness import LONG
from support.inside import Inside, fold_log, sqlite

LEAST, SHARE = (100, 0.3) if LONG else (12, 0.4)
STEPS = 6
BETA = np.hstack(
    [np.full((4, 4), 0.1) + 0.8 * np.eye(4), np.full((4, 1), 0.02)]
)  # the truth; nobody likes the last arm
ARMS = [{"id": f"a{j}", "x": [float(i == j) for i in range(5)]} for j in range(5)]
TRUE = LatentModels(np.full(4, 0.25), BETA, np.full(4, 0.1))
BLUNT = LatentModels([1.0], np.full((1, 5), 0.3) + np.arange(5) / 1e3, [0.2])  # one class: everybody gets the last arm
Start = Callable[..., Inside]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Inside] = []

    def start(first: LatentModels, bandit: str = "learned-classes") -> Inside:
        save_models(first, tmp_path / "models")
        spec = RecommenderSpec("lcb", bandit, uniform=0.0)
        learning = Learning(canary=SHARE, canary_users=LEAST)
        settings = Settings(models=str(tmp_path / "models"), recommenders=(spec,), learning=learning, pages=False)
        made.append(Inside(sqlite(tmp_path / "lcb.db"), settings, broken=None))
        watch(made[-1])
        return made[-1]

    yield start
    for one in made:
        one.close()


def watch(inside: Inside) -> None:
    async def begin() -> None:
        Canaries(inside.service).start()

    inside.run(begin())
    inside.write()


def add_canary(inside: Inside, models: LatentModels) -> int:
    manifest, tensors = pack_models(models)
    more: dict[str, Any] = {"canary": SHARE, "canary_users": LEAST}
    adding = inside.service.add_model(manifest, tensors, active=False, reason="a drill", n_users=1, **more)
    return inside.done(adding)


def visit(inside: Inside, name: str, seed: int, steps: int = STEPS) -> list[int]:
    """A user of a random class decides and answers; return the versions that served them."""
    rng = np.random.default_rng(seed)
    likes, models = BETA[int(rng.integers(4))], []
    for _ in range(steps):
        answer = inside.decide(name, arms=ARMS)
        models.append(answer["model"])
        inside.reward(answer["decision_id"], float(rng.random() < likes[int(answer["arm"][1:])]))
    return models


def play(inside: Inside, *, crash_at: int = 0, erase_at: int = 0, most: int = 40 * LEAST) -> dict[str, list[int]]:
    """Newcomers visit until the canary has ended; return the versions that served each."""
    served: dict[str, list[int]] = {}
    for i in range(most):
        if inside.service.world.state.canary is None:
            return served
        served[f"u{i}"] = visit(inside, f"u{i}", seed=i)
        if i == crash_at:
            inside.crash()
            watch(inside)
        if i == erase_at:
            inside.erase("u0")
    raise AssertionError("the canary does not end")


def outcome(inside: Inside) -> str | None:
    return inside.service.world.state.canaries[-1].outcome


@pytest.mark.parametrize("bandit", ["learned-classes", "posterior-mean"])
def test_a_worse_version_is_withdrawn(start: Start, bandit: str) -> None:
    inside = start(TRUE, bandit)
    old, new = inside.service.world.state.active, add_canary(inside, BLUNT)
    served = play(inside, crash_at=10, erase_at=15)
    assert outcome(inside) == WITHDRAWN
    assert inside.service.world.state.active == old
    assert {version for models in served.values() for version in models} == {old, new}
    again = next(name for name, models in served.items() if models[0] == new and name != "u0")
    pinned = bandit == "posterior-mean"  # whose state belongs to one version
    assert visit(inside, again, seed=0, steps=1) == [new if pinned else old]
    assert set(visit(inside, "later", seed=0)) == {old}
    check_log(inside)


def judge(group: list[float], others: list[float]) -> Any:
    counts = CanaryCounts()
    rates = [(i + 1, rate) for i, rate in enumerate(group)] + [(-i - 1, rate) for i, rate in enumerate(others)]
    counts.restore({place: (rate, True) for place, rate in rates}, None)
    return counts._judge(Canary(2, 1, SHARE, LEAST, 0), 1)


@pytest.mark.parametrize("huge", [1e9, -1e9])
def test_one_user_with_a_huge_reward_changes_no_verdict(huge: float) -> None:
    rng = np.random.default_rng(0)
    bad, good = rng.normal(0.1, 0.1, 30).tolist(), rng.normal(0.5, 0.1, 60).tolist()
    for group, others in ((bad, good), ([*bad, huge], good), (bad, [*good, huge])):
        assert not judge(group, others).promoted
        assert judge(others, group).promoted
    assert judge(bad, good) == judge(bad[::-1], good[::-1])


def test_a_version_as_good_as_the_old_one_is_withdrawn_once_in_forty_times() -> None:
    rng = np.random.default_rng(1)
    worse = [not judge(rng.normal(size=15).tolist(), rng.normal(size=30).tolist()).promoted for _ in range(800)]
    assert abs(np.mean(worse) - 0.025) < 4.5 * np.sqrt(0.025 * 0.975 / 800)


def test_a_better_version_is_promoted(start: Start) -> None:
    inside = start(BLUNT)
    new = add_canary(inside, TRUE)
    before = visit(inside, "old friend", seed=1, steps=1)
    play(inside)
    assert outcome(inside) == PROMOTED
    assert inside.service.world.state.active == new
    assert visit(inside, "old friend", seed=1, steps=1) == [new]  # learned-classes follows the newest
    assert before[0] in (new, new - 1)
    check_log(inside)


def check_log(inside: Inside) -> None:
    assert verify(inside.store).differences == []
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
    inside.stop()
    inside.start()
    assert verify(inside.store).differences == []


def test_a_user_is_assigned_once_and_those_who_were_there_before_are_not(start: Start) -> None:
    inside = start(TRUE)
    old = inside.service.world.state.active
    visit(inside, "before", seed=0)
    new = add_canary(inside, BLUNT)
    assert set(visit(inside, "before", seed=1)) == {old}
    served = [visit(inside, f"n{i}", seed=i, steps=2) for i in range(3 * LEAST // 2)]
    assert all(len(set(models)) == 1 for models in served)
    share = np.mean([models[0] == new for models in served])
    assert abs(share - SHARE) < 4.5 * np.sqrt(SHARE * (1 - SHARE) / len(served))


def test_activating_a_version_by_hand_ends_a_canary(start: Start) -> None:
    inside = start(TRUE)
    old, new = inside.service.world.state.active, add_canary(inside, BLUNT)
    visit(inside, "ann", seed=0)
    inside.done(inside.service.activate(old, "stop it"))
    assert inside.service.world.state.canary is None
    assert {version for i in range(9) for version in visit(inside, f"v{i}", seed=i, steps=1)} == {old}
    assert new in inside.service.world.state.versions
    check_log(inside)


def test_a_verdict_of_an_earlier_version_that_compared_mean_rates_verifies(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = CanaryCounts._judge

    def judge_means(self: CanaryCounts, canary: Canary, seq: int) -> Any:
        verdict = whole(self, canary, seq)
        assert verdict is not None
        return msgspec.structs.replace(verdict, ranked=False, low=-0.1, high=0.2, promoted=True)

    inside = start(TRUE)
    add_canary(inside, BLUNT)
    with monkeypatch.context() as patch:
        patch.setattr(CanaryCounts, "_judge", judge_means)
        play(inside)
    assert outcome(inside) == PROMOTED
    assert verify(inside.store).differences == []


# Controls


def test_without_the_comparison_a_worse_version_is_promoted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CanaryCounts._judge

    def judge(self: CanaryCounts, canary: Canary, seq: int) -> Any:
        verdict = whole(self, canary, seq)
        assert verdict is not None
        return msgspec.structs.replace(verdict, promoted=True)

    inside = start(TRUE)
    add_canary(inside, BLUNT)
    with monkeypatch.context() as patch:
        patch.setattr(CanaryCounts, "_judge", judge)
        play(inside)
    assert outcome(inside) == PROMOTED
    assert "the verdict on a canary" in str(verify(inside.store).differences[0])


def test_without_the_draw_by_name_the_log_does_not_recompute(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = start(TRUE)
    add_canary(inside, BLUNT)
    with monkeypatch.context() as patch:
        patch.setattr(Canary, "takes", lambda self, seed, user: len(user) > 2)
        for i in range(LEAST):
            visit(inside, f"u{i}", seed=i, steps=1)
    assert verify(inside.store).differences != []


# Replicas


def test_replicas_come_to_one_verdict(postgres_database: str, tmp_path: Path) -> None:
    save_models(TRUE, tmp_path / "models")
    learning = Learning(canary=SHARE, canary_users=6)
    spec = RecommenderSpec("lcb", "learned-classes", uniform=0.0)
    settings = Settings(models=str(tmp_path / "models"), recommenders=(spec,), learning=learning, pages=False)
    settings = replace(settings, store=postgres_database)
    arms = [Arm(one["id"], one["x"]) for one in ARMS]

    async def work() -> None:
        services, watching = [], []
        for _ in range(2):
            services.append(await asyncio.to_thread(Service, settings, open_store(postgres_database)))
            services[-1].start()
            watching.append(Canaries(services[-1]))
            watching[-1].start()
        manifest, tensors = pack_models(BLUNT)
        more: dict[str, Any] = {"canary": SHARE, "canary_users": 6}
        await services[0].add_model(manifest, tensors, active=False, reason="a drill", n_users=1, **more)
        async with asyncio.timeout(110):
            while services[1].world.state.canary is None:
                await asyncio.sleep(0.01)
            n = 0
            while services[0].world.state.canary is not None:
                rng = np.random.default_rng(n)
                likes = BETA[int(rng.integers(4))]
                for _ in range(4):
                    here, there = services[n % 2], services[(n + 1) % 2]
                    answer = msgspec.json.decode(await here.decide(DecisionRequest(f"u{n}", arms)))
                    reward = float(rng.random() < likes[int(answer["arm"][1:])])
                    await there.reward(RewardRequest(answer["decision_id"], reward))
                n += 1
            while services[0].world.seq != services[1].world.seq or services[0].world.seq < services[0].store.head():
                await asyncio.sleep(0.01)
        assert services[0].world.state.canaries == services[1].world.state.canaries
        assert services[1].world.state.canaries[-1].outcome in (PROMOTED, WITHDRAWN)
        for one in watching:
            await one.stop()
        for service in services:
            await service.stop()
        store = open_store(postgres_database)
        assert sum(row.kind == "canary" for row in store.events(0)) == 1
        assert verify(store).differences == []
        store.close()

    asyncio.run(asyncio.wait_for(work(), 120))
