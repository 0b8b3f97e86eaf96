"""Files of an archive that are damaged, or that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.retain import archive as archives
from lcb.serve.retain.archive import Archive, Writer
from lcb.storage.store.base import Rewrite, Row, Seal
from support.old_log import DAY, OldLog

N = 40


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive of one file of events and one of rewards."""
    writer = Writer(tmp_path, None, b"")
    for seq in range(1, N + 1):
        row = Row(seq, f"d{seq}", "decision", f"user-{seq % 3}", 1, os.urandom(50))
        reward = (row.user, "i1", 1.0, 0.5, [1.0, 2.0], seq, seq, 0, "lcb", 1)
        writer.add(row, Seal(os.urandom(16), None, os.urandom(32)), reward)
    writer.flush()
    found = Archive(tmp_path, N)
    found.finish(writer.paths)
    return found


def test_a_flipped_bit_of_the_data_is_refused_or_changes_nothing(archive: Archive) -> None:
    (path,) = (archive.folder / "events").iterdir()
    (rewards,) = (archive.folder / "rewards").iterdir()
    readers = {
        path: [
            lambda: list(archive.sealed_events(0, N)),
            lambda: archive.sealed_events_of("user-1"),
            archive.list_erased,
        ],
        rewards: [lambda: archive.read_rewards(rewards).to_pylist()],
    }
    for file, reads in readers.items():
        whole, n_refused = file.read_bytes(), 0
        wanted = [read() for read in reads]
        footer = 8 + int.from_bytes(whole[-8:-4], "little")  # it has no checksum
        for place in range(4, len(whole) - footer, 61):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            for read, right in zip(reads, wanted, strict=True):
                try:
                    assert read() == right, f"the bit at {place} of {len(whole)}"
                except StoreError:
                    n_refused += 1
        assert n_refused > 10
        file.write_bytes(whole)


def test_a_damaged_file_is_not_rewritten_by_an_erasure(archive: Archive) -> None:
    (path,) = (archive.folder / "events").iterdir()
    whole = path.read_bytes()
    place = whole.index(b"\x00", len(whole) // 3)
    path.write_bytes(whole[:place] + b"\x01" + whole[place + 1 :])
    with pytest.raises(StoreError, match="restore the archive from a backup"):
        archive.prepare_erasure("x", {1: (Rewrite(1, "erased/1", "erased decision", b""), b"")})
    assert len(list((archive.folder / "events").iterdir())) == 1


@pytest.mark.parametrize("n", [1, 2])  # the file that finds no room
def test_nobody_is_erased_while_the_disk_of_the_archive_is_full(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = list[object](), archives.pq.write_table

    def fill(*given: object, **more: object) -> None:
        written.append(given)
        if len(written) == n:
            raise OSError(28, "No space left on device")
        write(*given, **more)

    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        log.decide("ann", decision_id="d")
        log.reward("d", 1.0)
        log.live(2)
        log.compact(DAY)
        before = sorted(log.archive.rglob("*.parquet*"))
        monkeypatch.setattr(archives.pq, "write_table", fill)
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            log.erase_now("ann")
        assert sorted(log.archive.rglob("*.parquet*")) == before
        assert log.erase_now("ann") == 2
