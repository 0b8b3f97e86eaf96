"""Recomputing one user keeps few other users in memory, gives all of it back, and finds what verifying all finds."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import StoreUnavailable
from lcb.serve.audit.report import Report
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.state.per_user.cache_on_disk import CacheOnDisk
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.users import User
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Store
from support import item_worlds
from support.harness import classes
from support.inside import Inside, sqlite
from support.mixture_service import MixtureInside
from support.old_log import OldLog
from support.sessions import run_session

module = sys.modules["lcb.serve.audit.verify"]
ARMS = [{"id": "a", "x": [1.0, 0.0, 0.5]}, {"id": "b", "x": [0.0, 1.0, 0.5]}]


@contextmanager
def counting(store: Store) -> Iterator[list[int]]:
    """Count the users in memory at every event that a verification reads."""
    counts, events = list[int](), store.events

    def read(after: int, upto: int | None = None) -> Iterator[Any]:
        for row in events(after, upto):
            if row.seq % 50 == 0:
                counts.append(count(User))
            yield row

    store.events = read  # type: ignore[method-assign]
    yield counts
    store.events = events  # type: ignore[method-assign]


def count(*kinds: type) -> int:
    return sum(issubclass(type(one), kinds) for one in gc.get_objects())  # isinstance would ask what proxies stand for


def find(report: Report) -> tuple[int, list[str]]:
    return report.n_decisions, [str(one) for one in report.differences]


def test_few_users_are_in_memory_and_none_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 20_000, raising=False)
    with log_of_many(tmp_path) as store:
        gc.collect()
        gc.disable()
        try:
            before, worlds = count(User), count(World, ServiceState)
            with counting(store) as counts:
                report = verify(store, user="many3")
            left = count(User), count(World, ServiceState)
        finally:
            gc.enable()
    assert find(report) == (1, [])
    assert max(counts) - before < 100
    assert left == (before, worlds)


@contextmanager
def log_of_many(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(recommenders=(RecommenderSpec("own", "linucb"),), pages=False)
    inside = Inside(sqlite(tmp_path / "lcb.db"), settings)
    try:
        for i in range(400):
            inside.reward(inside.decide(f"many{i}", arms=ARMS)["decision_id"], i % 2)
        yield inside.store
    finally:
        inside.close()


def check_each(store: Store) -> None:
    """Verify every user alone, with few and with all others in memory."""
    for name in store.users():
        few_kept = find(verify(store, user=name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "CACHED_BYTES", None)
            assert few_kept == find(verify(store, user=name))
        assert few_kept[1] == []


@pytest.mark.parametrize("rewards", ["once", "last", "sum"])
def test_every_user_of_a_session_is_recomputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewards: str) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    inside = run_session(tmp_path / "lcb.db", n=60, rewards=rewards)
    check_each(inside.store)
    inside.close()


def test_changed_rewards_and_item_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    inside = Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(uniform=0.2, rewards="last"))
    item_worlds.fill(inside)
    for turn in range(3):
        for i in range(12):
            inside.decide(f"user{i}", decision_id=f"d{turn}-{i}")
            inside.reward(f"d{turn}-{i}", i % 2)
            if turn:
                inside.reward(f"d{turn - 1}-{i}", 0.25)
    check_each(inside.store)
    inside.close()


def test_a_compacted_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    with OldLog(tmp_path / "log", 7, "last", n_users=8) as log:
        log.live(4)
        log.erase(next(iter(log.store.users())))
        log.live(4)
        log.compact(3)
        log.live(2)
        check_each(log.store)


def test_a_full_disk_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 20_000)

    def fail(self: CacheOnDisk, name: str, user: User) -> None:
        raise StoreUnavailable("full")

    monkeypatch.setattr(CacheOnDisk, "_set_aside", fail)
    with log_of_many(tmp_path) as store, pytest.raises(StoreUnavailable, match="full"):
        verify(store, user="many3")


def test_users_who_left_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    with MixtureInside(tmp_path) as inside:
        for user in range(6):
            inside.visit(user)
        inside.leave_all()
        inside.refit()
        for user in (1, 9, 2):
            inside.visit(user)
        check_each(inside.store)


def test_a_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    inside = Inside(sqlite(tmp_path / "lcb.db"), Settings(recommenders=(RecommenderSpec("lcb"),), pages=False))
    add = inside.service.add_model
    for version in (1, 2):
        manifest, tensors = pack_models(classes(seed=version, n_classes=3, n_features=3))
        more = {"canary": 0.5, "canary_users": 3} if version == 2 else {}
        inside.done(add(manifest, tensors, active=version == 1, reason="a test", n_users=1, **more))
    for turn in range(2):
        for i in range(12):
            inside.reward(inside.decide(f"user{i}", decision_id=f"{turn}-{i}", arms=ARMS)["decision_id"], i % 2)
    assert inside.service.world.canary.verdict is not None
    check_each(inside.store)
    inside.close()
