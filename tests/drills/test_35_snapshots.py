"""Drill 35: snapshots are a cache: a damaged one is neither fatal nor believed, and none is needed to stop in time.

What is missing from the log before a snapshot is noticed at the start.
Users in memory are bounded in bytes, whatever their states take.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from lcb.errors import StoreError
from lcb.messages import Arm, DecisionRequest
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.log import bootstrap
from lcb.serve.service import Service
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.users import User
from lcb.serve.state.world import World, WorldSnapshot
from lcb.storage.store import snapshots
from lcb.storage.store.base import Row, Snapshot, Store
from lcb.storage.store.snapshots import add_checksums
from support.harness import LONG, serving
from support.inside import Unsynced, fold_log
from support.raw_requests import Local
from support.tampering import Tampered, run_sql

USER = "u3"
LINE = "is dropped"


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, rows: list[Row], tmp_path: Path) -> Tampered:
    """A log with the snapshots of the service and of a user."""
    sqlite = request.param == "sqlite"
    made = Tampered(str(tmp_path / "lcb.db") if sqlite else request.getfixturevalue("postgres_database"), rows, "u1")
    store = made.open()
    world = fold_log(store)
    user = world.user(USER)
    assert user is not None
    store.append([], made.n, [world.snapshot(), user.snapshot(USER)])
    store.close()
    return made


# Damage: each changes the two snapshots


def flip(log: Tampered) -> None:
    """A bit of a number: the count of users with a decision, the user's sum of rewards."""
    for name, body in log.run("select name, body from snapshot"):
        fields = msgspec.msgpack.decode(body)
        fields["n_started" if name == "world" else 6] += 1
        log.run("update snapshot set body = ? where name = ?", (msgspec.msgpack.encode(fields), name))


def cut(log: Tampered) -> None:
    for name, body in log.run("select name, body from snapshot"):
        log.run("update snapshot set body = ? where name = ?", (bytes(body)[:-3], name))


def move(log: Tampered) -> None:
    """A seq beyond the end of the log: no later snapshot would replace it."""
    log.run("update snapshot set seq = seq + 1000000")


def of_another_program(log: Tampered) -> None:
    """The checksums are right, but nothing can read the bodies."""
    for name, seq in log.run("select name, seq from snapshot"):
        (row,) = add_checksums([Snapshot(name, seq, b"\xc1 of a later version")])
        log.run("update snapshot set body = ?, checksum = ? where name = ?", (*row[2:], name))


def of_another_log(log: Tampered) -> None:
    """The checksums are right, but the log they were made from went on differently."""
    for name, body in log.run("select name, body from snapshot"):
        seq = log.n + 50 if name == "world" else log.n
        (row,) = add_checksums([Snapshot(name, seq, bytes(body))])
        log.run("update snapshot set seq = ?, checksum = ? where name = ?", (row[1], row[3], name))


DAMAGES = [flip, cut, move, of_another_program, of_another_log]


def drill(log: Tampered, damage: Callable[[Tampered], None], caplog: Any) -> None:
    damage(log)
    store = log.open()
    try:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lcb.storage"):
            world = World(store)
            world.load()
            user = world.loader.load(USER, log.n)
        truth = fold_log(store)
        assert compare_worlds(world, truth) == [], "a damaged snapshot was believed"
        assert user is not None
        assert user.pack() == truth.user(USER).pack(), "a damaged snapshot was believed"  # type: ignore[union-attr]
        lines = [one.getMessage() for one in caplog.records if LINE in one.getMessage()]
        assert len(lines) == 2, lines
        assert not [line for line in lines if USER in line], "the name of a user is in the operational log"
        assert verify(store).differences == []
        store.append([], log.n)  # the next commit deletes them
        assert log.run("select name from snapshot") == []
        store.append([], log.n, [world.snapshot(), user.snapshot(USER)])
        assert sorted(one.name for one in store.all_snapshots()) == [f"user/{USER}", "world"]
        again = World(store)
        again.load()
        assert again.seq == log.n
    finally:
        store.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_dropped_and_its_state_computed_again(
    log: Tampered, damage: Callable[[Tampered], None], caplog: Any
) -> None:
    drill(log, damage, caplog)


def test_without_checksums_a_damaged_snapshot_is_believed(
    log: Tampered, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: Any, found: list[Any]) -> Any:
        return iter([Snapshot(*row[:3]) for row in found])

    monkeypatch.setattr(snapshots.CheckedSnapshots, "_take_intact", take)
    with pytest.raises(AssertionError, match="a damaged snapshot was believed"):
        drill(log, flip, caplog)


def read_unchecked(store: Store, snapshot: Snapshot) -> Any:
    """Without a look at the end of the log, or at what the body is."""
    return msgspec.msgpack.decode(snapshot.body, type=WorldSnapshot)


def test_without_a_look_at_the_body_one_of_another_program_is_fatal(log: Tampered, caplog: Any, monkeypatch) -> None:
    monkeypatch.setattr("lcb.serve.state.world.decode_snapshot", read_unchecked)
    with pytest.raises(msgspec.DecodeError):
        drill(log, of_another_program, caplog)


def test_without_a_look_at_the_end_of_the_log_one_of_a_later_event_is_believed(
    log: Tampered, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("lcb.serve.state.world.decode_snapshot", read_unchecked)
    with pytest.raises(AssertionError):
        drill(log, of_another_log, caplog)


# Events that are missing before the snapshot, which the start does not read


def drill_missing(log: Tampered) -> None:
    check(log)
    log.run("delete from event where seq = ?", (log.n // 2,))
    with pytest.raises(StoreError, match=f"ends with event {log.n}, but has {log.n - 1} events: 1 are missing"):
        check(log)


def check(log: Tampered) -> None:
    store = log.open()
    try:
        bootstrap.check_whole(store)
        world = World(store)
        world.load()
        assert world.seq == log.n
    finally:
        store.close()


def test_an_event_missing_from_the_middle_is_noticed_at_the_start(log: Tampered) -> None:
    drill_missing(log)


def test_without_the_count_a_snapshot_hides_it(log: Tampered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "check_whole", lambda store: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        drill_missing(log)


def read_warning(log: Tampered) -> str:
    """Return what a start writes to the operational log about the chain."""
    store = log.open()
    with capture_logs() as said:
        bootstrap.check_whole(store)
    store.close()
    return " ".join(str(one["error"]) for one in said)


def test_events_that_were_numbered_anew_are_noticed_at_the_start(log: Tampered) -> None:
    check(log)
    assert read_warning(log) == ""
    log.run("delete from event where seq = ?", (log.n // 2,))
    log.shift(log.n // 2 + 1, -1)
    assert f"event {log.n // 2} is not what was written at this place; run: lcb log verify" in read_warning(log)


@pytest.mark.parametrize("n_left", [0, 20])
def test_links_that_were_removed_are_noticed_at_the_start(log: Tampered, n_left: int) -> None:
    if not log.inline:
        log.run("alter table event drop constraint event_has_link")
    log.run("update event set salt = null, digest = null, link = null where seq > ?", (n_left,))
    assert f"event {n_left + 1} is not what was written at this place; run: lcb log verify" in read_warning(log)


def test_a_service_does_not_start_on_a_log_with_a_missing_event(tmp_path: Path) -> None:
    path = tmp_path / "lcb.db"
    body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}, {"id": "b", "x": [2.0]}]}
    local = Local(str(path))
    for _ in range(5):
        assert local.send("POST", "/v1/decisions", body).status == 200
    local.down()
    run_sql(str(path), "delete from event where seq = 4")
    with pytest.raises(StoreError, match="1 are missing; restore it from a backup"):
        local.up()
    local.loop.close()


# A service that starts on damaged snapshots, and one that has no time to write them


def test_a_service_starts_on_damaged_snapshots_and_says_so(tmp_path: Path) -> None:
    body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}, {"id": "b", "x": [2.0]}]}
    with serving(tmp_path, limits={"drain": 0.0}) as server, server.client() as http:
        assert http.post("/v1/decisions", json=body).status_code == 200
        assert server.stop() == 0
    connection = sqlite3.connect(tmp_path / "lcb.db")
    assert connection.execute("update snapshot set body = substr(body, 2)").rowcount >= 1
    connection.commit()
    connection.close()
    with serving(tmp_path, limits={"drain": 0.0}) as server, server.client() as http:
        assert http.post("/v1/decisions", json=body).status_code == 200
        assert http.get("/v1/users/ann").json()["n_decisions"] == 2
        assert server.stop() == 0
        assert LINE in server.output.read_text()


def stop_without_time(folder: Path, without: tuple[str, ...], within: float = 40) -> None:
    with serving(folder, limits={"drain": 0.0}, without=without) as server, server.client() as http:
        body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
        assert http.post("/v1/decisions", json=body).status_code == 200
        began = time.monotonic()
        try:
            code: object = server.stop(within)
        except subprocess.TimeoutExpired:
            code = "still running"
        assert code == 0, f"exit code {code} after {time.monotonic() - began:.1f} s"
        assert "no time for all snapshots" in server.output.read_text()
    connection = sqlite3.connect(folder / "lcb.db")
    assert connection.execute("select count(*) from event where kind = 'decision'").fetchone() == (1,)
    connection.close()


def test_snapshots_that_take_too_long_are_left_and_the_exit_code_is_0(tmp_path: Path) -> None:
    stop_without_time(tmp_path, ("fast snapshots",))


def test_without_a_time_limit_snapshots_keep_the_service_from_ending(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code still running"):
        stop_without_time(tmp_path, ("fast snapshots", "time of snapshots"), within=4.5)


# Memory


def hold_users(store: Store, limits: Limits, n_users: int, n_features: int = 40) -> UserCache:
    """A LinUCB of its own for each user, 13 KB; returns the cache after a decision for each."""
    specs = (RecommenderSpec("own", "linucb", scope="user"),)

    async def work() -> UserCache:
        service = Service(Settings(recommenders=specs, pages=False, limits=limits), store)
        service.start()
        arm = [Arm("a", [1.0] * n_features)]
        for i in range(n_users):
            await service.decide(DecisionRequest(f"user{i}", arm))
        await service.stop()
        return service.world.cache

    return asyncio.run(work())


def drill_memory(store: Store, limits: Limits, n_users: int = 400 if LONG else 120) -> None:
    cache = hold_users(store, limits, n_users)
    states = [user.state for name in cache if (user := cache.peek(name)) is not None and user.state is not None]
    held = sum(state.nbytes for state in states)
    assert len(states) > 5
    assert held <= 400_000, f"{held} bytes in memory"
    assert held <= cache.n_bytes <= 400_000


def test_users_in_memory_are_bounded_in_bytes(tmp_path: Path) -> None:
    drill_memory(Unsynced(tmp_path / "lcb.db"), Limits(cached_bytes=400_000))


def test_without_the_limit_all_users_stay_in_memory(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="bytes in memory"):
        drill_memory(Unsynced(tmp_path / "lcb.db"), Limits(cached_bytes=10**12))


@pytest.mark.parametrize("n", [None, 5, 300, 90_300])
def test_the_bytes_that_are_counted_are_those_that_are_taken(n: int | None) -> None:
    """LinUCB of 300 features takes 723 KB per user.  Half of the states are as they are read from snapshots."""
    n_users = 20 if n == 90_300 else 2000
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = UserCache(None)
        for i in range(n_users):
            state = None if n is None else np.arange(n, dtype=float)
            user = User("lcb", 1, state, 1000 + i)
            user.n_decisions, user.n_rewards, user.reward_sum = 1000 + i, 1000 + i, i + 0.5
            cache.admit(f"user-{i:08d}", User.unpack(user.pack()) if i % 2 else user)
        del state, user
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.85 * taken < cache.n_bytes < 1.15 * taken, (cache.n_bytes, taken)
