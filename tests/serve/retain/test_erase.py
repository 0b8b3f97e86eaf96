"""Erasures of users with archived events that fail, or that only the store or only the archive has seen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lcb.errors import StoreUnavailable
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.errors import Problem
from lcb.serve.retain import erasures
from support.inside import Unsynced
from support.old_log import DAY, OldLog


def start(log: OldLog) -> list[str]:
    """Start the service; returns its warnings."""
    with capture_logs() as logged:
        log.start()
    return [one["event"] for one in logged if one["log_level"] == "warning"]


def test_an_erasure_that_the_store_refuses_forgets_no_archived_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("the store is busy")

    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        log.decide("ann", decision_id="old")
        log.live(2)
        log.compact(DAY)
        with monkeypatch.context() as patch:
            patch.setattr(Unsynced, "erase", refuse)
            with pytest.raises(Problem, match="the store is busy"):
                log.erase_now("ann")
        assert log.status(log.begin_decide("ann", decision_id="old")) == 410
        assert verify_whole(log.store, log.archive).differences == []
        log.erase_now("ann")
        assert log.decide("ann", decision_id="old")["decision_id"] == "old"
        assert verify_whole(log.store, log.archive).differences == []


def test_a_store_of_before_an_erasure_beside_the_archive_of_after_it_is_told_at_the_start(tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        log.decide("ann")
        log.live(2)
        log.compact(DAY)
        log.stop()
        shutil.copy(log.folder / "lcb.db", log.folder / "backup.db")
        shutil.copytree(log.archive, log.folder / "backup")
        assert start(log) == []
        log.erase_now("ann")
        log.stop()
        shutil.copy(log.folder / "lcb.db", log.folder / "today.db")
        shutil.copytree(log.archive, log.folder / "today")

        def put(store: str, archive: str) -> None:
            for path in log.folder.glob("lcb.db*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.copy(log.folder / store, log.folder / "lcb.db")
            shutil.copytree(log.folder / archive, log.archive)

        put("backup.db", "today")
        assert start(log) == ["wrong archive"]
        with pytest.raises(StoreUnavailable, match=r"erased in the archive .* restore the archive of the same time"):
            log.erase_now("ann")
        assert log.erase_now("u1") > 0
        log.stop()
        put("today.db", "backup")
        assert start(log) == ["wrong archive"], "who was erased is in the archive again"
        log.stop()
        put("backup.db", "backup")
        assert start(log) == []
        assert log.erase_now("ann") > 0
        assert verify_whole(log.store, log.archive).differences == []


def test_many_erasures_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """More than there are threads: each needs one to begin and one to finish."""
    names = [f"ann{i}" for i in range(40)]
    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        for name in names:
            log.decide(name)
        log.live(2)
        log.compact(DAY)
        asked = [log.ask(log.service.erase(name)) for name in names]
        assert [log.ended(one) for one in asked] == [1] * len(names)
        assert verify_whole(log.store, log.archive).differences == []


def test_no_more_erasures_wait_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "_MOST", 3)
    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        for i in range(5):
            log.decide(f"ann{i}")
        log.live(2)
        log.compact(DAY)
        asked = [log.ask(log.service.erase(f"ann{i}")) for i in range(5)]
        assert [log.ended(one) for one in asked[:3]] == [1] * 3
        for one in asked[3:]:
            with pytest.raises(Problem, match="3 erasures are under way"):
                log.ended(one)
        assert log.erase_now("ann4") == 1


@pytest.mark.parametrize("then", ["repeat", "restart", "another"])
def test_an_erasure_that_is_stored_although_the_store_failed_is_finished(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase = Unsynced.erase

    def lose_answer(*given: Any) -> None:
        erase(*given)
        raise StoreUnavailable("the connection was lost")

    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        log.decide("ann", decision_id="old")
        log.live(2)
        log.compact(DAY)
        with monkeypatch.context() as patch:
            patch.setattr(Unsynced, "erase", lose_answer)
            with pytest.raises(Problem, match="the connection was lost"):
                log.erase_now("ann")
        if then == "restart":
            log.stop()
            assert start(log) == []
        elif then == "another":
            log.erase_now("u1")
        else:
            with pytest.raises(Problem, match="no user 'ann'"):
                log.erase_now("ann")
        assert verify_whole(log.store, log.archive).differences == []
        assert not list(log.archive.rglob("*.erased"))
