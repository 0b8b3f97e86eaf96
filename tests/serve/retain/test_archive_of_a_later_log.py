"""An archive that goes further than its store, as after an old store was restored: refused, and nothing is changed."""

from __future__ import annotations

import shutil

import pytest
from structlog.testing import capture_logs

from lcb.errors import StoreUnavailable
from lcb.serve.audit.verify import verify
from lcb.serve.retain import archive as archives
from lcb.serve.retain.archive import Archive
from lcb.serve.retain.whole_log import open_restored, open_whole
from lcb.serve.state.world_snapshot import read_base
from support.old_log import DAY, OldLog


def read_files(log):
    return {path: path.read_bytes() for path in log.archive.rglob("*.parquet*")}


def restore_old_store(log):
    """Put the store of today beside the archive of tomorrow; returns the last event of that."""
    log.stop()
    shutil.copy(log.folder / "lcb.db", log.folder / "backup.db")
    log.start()
    log.live(2)
    last = log.compact(DAY).upto
    log.stop()
    for path in log.folder.glob("lcb.db-*"):
        path.unlink()
    shutil.copy(log.folder / "backup.db", log.folder / "lcb.db")
    return last


@pytest.mark.parametrize("compacted", [True, False])
def test_an_archive_of_a_later_log_is_refused_until_its_files_are_moved_away(compacted, tmp_path):
    with OldLog(tmp_path / "log", 3, n_users=6) as log:
        log.live(2)
        upto = log.compact(DAY).upto if compacted else 0
        log.decide("newcomer", decision_id="late")  # the old store has it itself
        last = restore_old_store(log)
        was = f"compacted up to event {upto}" if compacted else "never compacted"
        words = f"goes on to event {last}, but this log was {was}: .* move its files .*away"
        before = read_files(log)
        with capture_logs() as logged:
            log.start()
        assert [one["event"] for one in logged if one["log_level"] == "warning"] == ["wrong archive"]
        head = log.store.chain_head()
        for user in ("newcomer", "u1"):
            with pytest.raises(StoreUnavailable, match=words):
                log.erase_now(user)
        with pytest.raises(StoreUnavailable, match=words):
            log.compact(0.0)
        with pytest.raises(StoreUnavailable, match=words):
            open_whole(log.store, log.archive)  # as learning does
        with pytest.raises(StoreUnavailable, match=words), open_restored(log.store, log.archive):
            pass  # as verify and export do
        assert read_files(log) == before
        assert log.store.chain_head() == head

        for path in before:
            if int(path.stem.partition("-")[2]) > upto:
                path.unlink()
        assert log.erase_now("newcomer") == 1
        assert log.erase_now("u1") > 1
        assert log.compact(0.0).upto > upto
        with open_restored(log.store, log.archive) as whole:
            assert verify(whole, whole=True).differences == []


def test_files_of_rewards_alone_are_refused_too(tmp_path):
    with OldLog(tmp_path / "log", 3, n_users=6) as log:
        log.live(2)
        upto = log.compact(DAY).upto
        first = next((log.archive / "rewards").iterdir())
        shutil.copy(first, first.with_name(f"{upto + 1}-{upto + 9}.parquet"))
        with pytest.raises(StoreUnavailable, match=f"goes on to event {upto + 9}"):
            open_whole(log.store, log.archive)


def test_a_compaction_that_ends_meanwhile_is_no_later_archive(tmp_path, monkeypatch):
    with OldLog(tmp_path / "log", 3, n_users=6) as log:
        log.live(2)
        first = log.compact(DAY).upto
        log.live(1)

        def read_then_compact(store):
            monkeypatch.undo()
            base = read_base(store)
            assert log.compact(0.0).upto > first
            return base

        monkeypatch.setattr(archives, "read_base", read_then_compact)
        assert open_whole(log.store, log.archive).archive.upto == first


def test_files_that_overlap_are_refused(tmp_path):
    (tmp_path / "events").mkdir()
    for name in ("1-10", "11-20", "15-20"):
        (tmp_path / "events" / f"{name}.parquet").touch()
    with pytest.raises(StoreUnavailable, match=r"15-20.parquet overlaps .* event 20"):
        Archive(tmp_path, 20).list_parts()
