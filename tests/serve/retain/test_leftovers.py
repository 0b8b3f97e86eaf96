"""Files of an ended compaction keep nobody who is erased after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lcb.errors import OutputError
from lcb.serve.retain import archive as archives
from lcb.serve.retain import compact as compaction
from lcb.serve.retain import settle
from lcb.serve.retain.archive import Archive
from lcb.serve.retain.folder import lock
from support.old_log import DAY, OldLog

WHO = "person-to-erase"


class Killed(BaseException):
    """The compacting process is gone."""


def opened(folder: Path, *, compacted: bool) -> OldLog:
    """A log whose next compaction would archive one decision and reward of a person, or the first."""
    log = OldLog(folder / "log", 5, n_users=6)
    log.live(3)
    if compacted:
        log.compact(DAY)
    log.decide(WHO, decision_id="personal-id")
    log.reward("personal-id", 3.0)
    log.live(3)
    return log


def end_compaction(log: OldLog, patch: pytest.MonkeyPatch) -> None:
    """Let a compaction be killed after it has written its files."""

    def die(*given: object) -> None:
        raise Killed

    with patch.context() as inside:
        inside.setattr(compaction._Plan, "append", die)
        inside.setattr(archives.Writer, "discard", lambda self: None)  # a killed process does nothing more
        with pytest.raises(Killed):
            log.compact(DAY)


def read_all(folder: Path) -> bytes:
    return b"".join(repr(pq.read_table(path).to_pylist()).encode() for path in sorted(folder.rglob("*.parquet*")))


def erase_after(log: OldLog, patch: pytest.MonkeyPatch) -> None:
    log.erase_now(WHO)


def erase_after_a_start(log: OldLog, patch: pytest.MonkeyPatch) -> None:
    log.crash()
    assert WHO.encode() not in read_all(log.archive), "a start leaves the files"
    log.erase_now(WHO)


def erase_meanwhile(log: OldLog, patch: pytest.MonkeyPatch) -> None:
    """The compaction is under way when the user is erased, and killed after it."""
    with lock(log.archive, "compacting"):
        log.erase_now(WHO)
        assert WHO.encode() in read_all(log.archive), "files of a compaction that is under way are taken away"
    watch = settle.LeftoversWatch(log.store, log.archive)
    patch.setattr(settle, "_EVERY", 0.01)

    async def wait() -> None:
        watch.start()
        try:
            async with asyncio.timeout(30):
                while archives.has_leftovers(log.archive):
                    await asyncio.sleep(0.01)
        finally:
            watch.end()

    asyncio.run(wait())


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("erase", [erase_after, erase_after_a_start, erase_meanwhile])
def test_an_erased_user_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool, erase: Callable[..., None]
) -> None:
    log = opened(tmp_path, compacted=compacted)
    try:
        end_compaction(log, monkeypatch)
        assert WHO.encode() in read_all(log.archive)
        erase(log, monkeypatch)
        assert WHO.encode() not in read_all(log.archive), "an erased user is in a file of a killed compaction"
        assert not archives.has_leftovers(log.archive)
        assert log.compact(DAY).n_archived > 0
        assert WHO.encode() not in read_all(log.archive)
    finally:
        log.close()


def test_a_compaction_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, compacted=False)

    def fail(path: Path, table: object) -> None:
        if path.parent.name == "rewards":
            raise OutputError(f"{path} could not be written (No space left on device)")
        write(path, table)

    try:
        write = archives._write_table
        monkeypatch.setattr(archives, "_write_table", fail)
        with pytest.raises(OutputError, match="No space left"):
            log.compact(DAY)
        assert list(log.archive.rglob("*.parquet*")) == []
    finally:
        log.close()


def test_files_of_a_compaction_that_came_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the log when no compaction can begin any more, not when it was first looked at."""
    log = opened(tmp_path, compacted=False)
    try:
        with monkeypatch.context() as inside:
            inside.setattr(Archive, "settle", lambda self, store: (_ for _ in ()).throw(Killed()))
            with pytest.raises(Killed):  # the event is stored, the files have no names yet
                log.compact(DAY)
        before = read_all(log.archive)
        with (late := Archive(log.archive, 0)).erasing():
            late.settle(log.store)
        assert read_all(log.archive) == before
        assert log.compact(DAY).n_removed > 0
    finally:
        log.close()
