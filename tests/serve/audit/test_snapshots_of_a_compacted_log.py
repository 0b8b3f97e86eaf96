"""A verification with the archive compares the snapshots of the store too, as one without it does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.state.users import User
from lcb.serve.state.world import World
from lcb.storage.store.base import Snapshot
from lcb.storage.store.snapshots import add_checksums
from support.inside import Unsynced
from support.old_log import DAY, OldLog
from support.tampering import run_sql


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was compacted twice, with an erasure of an archived user, and with snapshots."""
    folder = tmp_path_factory.mktemp("old") / "log"
    with OldLog(folder, 5, n_users=8) as log:
        log.decide("late", decision_id="of-late")
        log.reward("of-late", 1.0)
        log.live(3)
        log.compact(1.5 * DAY)
        log.erase_now("late")
        log.live(3)
        log.compact(1.5 * DAY)
        log.live(1)
        log.stop()
    return folder


@pytest.fixture
def copy(old: Path, tmp_path: Path) -> Iterator[tuple[Unsynced, Path]]:
    shutil.copytree(old, folder := tmp_path / "log")
    store = Unsynced(folder / "lcb.db")
    yield store, folder / "lcb.db.archive"
    store.close()


def write_snapshot(store: Unsynced, one: Snapshot) -> None:
    run_sql(store.url, "insert or replace into snapshot values(?, ?, ?, ?)", add_checksums([one])[0])


@pytest.mark.parametrize("user", [None, "u1"])
def test_all_snapshots_are_compared_and_right_ones_are_no_difference(
    copy: tuple[Unsynced, Path], user: str | None
) -> None:
    store, archive = copy
    n = len(list(store.all_snapshots()))
    assert n > 5
    report = verify_whole(store, archive, user=user)
    assert (report.n_snapshots, report.n_damaged, report.differences) == (n, 0, [])
    assert verify(store, user=user).n_snapshots == n


def test_damaged_snapshots_are_counted_and_are_no_differences(copy: tuple[Unsynced, Path]) -> None:
    store, archive = copy
    n = len(list(store.all_snapshots()))
    one = next(store.all_snapshots("user/"))
    run_sql(store.url, "update snapshot set body = ? where name in (?, 'world')", (one.body[:-1], one.name))
    report = verify_whole(store, archive)
    assert (report.n_snapshots, report.n_damaged, report.differences) == (n - 2, 2, [])


def test_a_snapshot_of_a_user_with_a_wrong_state_is_named(copy: tuple[Unsynced, Path]) -> None:
    store, archive = copy
    one = next(store.all_snapshots("user/"))
    user = User.unpack(one.body)
    user.n_decisions += 1
    write_snapshot(store, one._replace(body=user.pack()))
    (found,) = verify_whole(store, archive).differences
    assert found.what == f"snapshot {one.name!r}"
    assert f"{user.n_decisions} decisions" in found.stored
    assert f"{user.n_decisions - 1} decisions" in found.recomputed


def test_a_snapshot_of_the_service_with_a_wrong_state_is_named(copy: tuple[Unsynced, Path]) -> None:
    store, archive = copy
    world = World(store)
    world.load()
    world.n_rewarded += 1
    write_snapshot(store, world.snapshot())
    (found,) = verify_whole(store, archive).differences
    assert found.what == "the service-wide snapshot, n_rewarded"
    assert (found.stored, found.recomputed) == (str(world.n_rewarded), str(world.n_rewarded - 1))


def test_a_snapshot_of_nobody_is_named(copy: tuple[Unsynced, Path]) -> None:
    store, archive = copy
    write_snapshot(store, next(store.all_snapshots("user/"))._replace(name="user/ghost"))
    (found,) = verify_whole(store, archive).differences
    assert found.what == "snapshot 'user/ghost'"


def test_a_log_that_was_never_compacted_has_its_snapshots_compared_too(tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 5, n_users=8) as log:
        log.live(2)
        log.stop()
        archive = log.archive
    store = Unsynced(tmp_path / "log" / "lcb.db")
    n = len(list(store.all_snapshots()))
    write_snapshot(store, next(store.all_snapshots("user/"))._replace(name="user/ghost"))
    report = verify_whole(store, archive)
    store.close()
    assert report.n_snapshots == n + 1
    assert [one.what for one in report.differences] == ["snapshot 'user/ghost'"]


def test_snapshots_that_a_service_writes_meanwhile_are_right(tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 5, n_users=8) as log:
        log.live(3)
        log.compact(DAY)
        log.live(1)
        left = [1.0, 1.0]

        def live_on(what: str, done: int, total: int | None) -> None:
            if what == "recomputing decisions" and left:
                log.live(left.pop())
                log.store.append([], log.store.head(), log.service.build_snapshots())

        store = log.open_other()
        report = verify_whole(store, log.archive, live_on)
        store.close()
        assert report.differences == []
        assert report.n_snapshots > 5
        assert len(left) < 2


def test_a_changed_head_is_named_with_the_archive_as_without_it(
    copy: tuple[Unsynced, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL keeps the head in a table of its own."""
    store, archive = copy
    assert verify_whole(store, archive).differences == []
    head = store.chain_head()
    monkeypatch.setattr(store, "chain_head", lambda: head._replace(link=bytes(32)))
    for report in (verify(store), verify_whole(store, archive)):
        assert report.first == head.seq
        assert "its table was changed" in str(report.differences[0])
