"""Decisions that are applied in a run leave the same state as those that are applied one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.log import apply
from lcb.serve.log.decision_runs import apply_run
from lcb.storage.models.folder import pack_models
from support.harness import models_folder
from support.inside import Inside, fold_log, pack_cached_users, sqlite

SIMPLE = {"thompson", "posterior-mean", "learned-classes"}  # of these, decisions change no state
BANDITS = [*sorted(SIMPLE), "exp4p", "epoch-greedy", "mixture"]
SHARED = "linucb"
ARMS = [{"id": f"a{j}", "x": [float(i == j) for i in range(6)]} for j in range(4)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many decisions each run had."""
    found = list[int]()

    def count(world: Any, slots: Any, rows: Any, bodies: Any, first: int) -> int:
        place = apply_run(world, slots, rows, bodies, first)
        if place > first:
            found.append(place - first)
        return place

    monkeypatch.setattr(apply, "apply_run", count)
    return found


def serve(folder: Path, spec: RecommenderSpec, cached: int = 10**6) -> Iterator[Inside]:
    """Serve 30 users, new and known ones in the same commits, with rewards, lists, rules and changed rewards."""
    limits = Limits(cached_bytes=cached)
    settings = Settings(
        recommenders=(spec,), pages=False, limits=limits, rewards="last",
        models=None if spec.bandit == "mixture" else models_folder(folder), reward_range=(0.0, 1.0),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    with Inside(sqlite(folder / "lcb.db"), settings) as inside:
        for round in range(5):
            asked = []
            for i, user in enumerate(rng.permutation(10 + 5 * round).tolist()):
                arms = [{"id": f"a{j}", "x": rng.normal(size=6).tolist()} for j in range(4)]
                more: dict[str, Any] = {"k": 2} if i == 7 else {"exclude": ["a1"]} if i == 9 else {}
                asked.append((more, inside.begin_decide(f"u{user}", arms=arms, decision_id=f"d{round}-{user}", **more)))
            inside.write()
            assert [inside.status(one) for _, one in asked] == [200] * len(asked)
            for i in range(0, 10 + 5 * round, 3):
                if round > 1 and i % 2:
                    inside.begin_reward(f"d{round - 1}-{i}", 0.25)
                inside.begin_reward(f"d{round}-{i}", float(rng.random() < 0.4))
            inside.write()
        yield inside


@pytest.mark.parametrize("bandit", [*BANDITS, SHARED])
def test_a_run_leaves_the_state_of_the_log(bandit: str, tmp_path: Path, runs: list[int]) -> None:
    spec = RecommenderSpec("lcb", bandit, scope="everyone" if bandit == SHARED else "user")
    for inside in serve(tmp_path, spec):
        world = inside.service.world
        assert compare_worlds(world, fold_log(inside.store)) == []
        assert verify(inside.store, live=pack_cached_users(world)).differences == []
        assert (sum(runs) > 20) == (bandit in SIMPLE)


def test_decisions_of_a_canary_are_compared_one_by_one(tmp_path: Path, runs: list[int]) -> None:
    for inside in serve(tmp_path, RecommenderSpec("lcb", "thompson")):
        manifest, tensors = pack_models(inside.service.world.state.versions[1].models())
        more: dict[str, Any] = {"canary": 0.5, "canary_users": 10**6}
        inside.done(inside.service.add_model(manifest, tensors, active=False, reason="test", n_users=1, **more))
        runs.clear()
        for round in range(4):
            asked = [inside.begin_decide(f"new{i}", arms=ARMS, decision_id=f"e{round}-{i}") for i in range(20)]
            inside.write()
            for i, one in enumerate(asked):
                inside.ended(one)
                inside.begin_reward(f"e{round}-{i}", i % 2)
            inside.write()
        world = inside.service.world
        assert len(world.canary.rates) == 20
        assert compare_worlds(world, fold_log(inside.store)) == []
        assert runs == []


@pytest.mark.parametrize("cached", [10**6, 16_000])
def test_runs_keep_the_users_and_slots_that_are_kept_one_by_one(
    cached: int, tmp_path: Path, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> Iterator[list[Any]]:
        for name in ("in runs", "one by one"):
            (folder := tmp_path / name).mkdir()
            if name == "one by one":
                monkeypatch.setattr(apply, "apply_run", lambda world, slots, rows, bodies, first: first)
            for inside in serve(folder, RecommenderSpec("lcb", "thompson"), cached):
                world, slots = inside.service.world, inside.service.slots
                found = [list(world.cache), world.cache.n_bytes, pack_cached_users(world)]
                yield [*found, list(slots._slots.items()), slots._n_bytes]

    in_runs, one_by_one = read()
    assert in_runs == one_by_one
    assert sum(runs) > 5
