"""The watch over the folder of a store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lcb.errors import StoreError
from lcb.storage.store.sqlite.file import FolderWatch
from lcb.storage.store.sqlite.store import SQLite

LONG_AGO = 1_000_000_000_000_000_000  # nanoseconds since 1970


def check(watch: FolderWatch) -> bool:
    """Look as the store does; True if the files had to be checked."""
    if watch.is_unchanged():
        return False
    watch.note_checked()
    return True


def replace(folder: Path) -> None:
    (folder / "other").write_text("")
    os.replace(folder / "other", folder / "a")


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "a").unlink(),
    lambda folder: (folder / "a").rename(folder / "b"),
    replace,
    lambda folder: folder.rename(folder.with_name("elsewhere")),
    lambda folder: (folder.rename(folder.with_name("elsewhere")), folder.mkdir()),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "a").write_text("")
    watch = FolderWatch(folder)
    os.utime(folder, ns=(LONG_AGO, LONG_AGO))
    assert check(watch)
    (folder / "a").write_text("what is written into a file is no change of the folder")
    assert not check(watch)
    change(folder)
    assert check(watch)


def test_a_change_of_just_now_is_not_taken_for_the_last(tmp_path: Path) -> None:
    """The next change may have the same time."""
    watch = FolderWatch(tmp_path)
    (tmp_path / "a").write_text("")
    assert check(watch)
    assert check(watch)


def test_an_empty_file_is_no_log_but_may_become_one(tmp_path: Path) -> None:
    path = tmp_path / "lcb.db"
    path.touch()
    with pytest.raises(StoreError, match="is empty; give the store of a service"):
        SQLite(path, create=False)
    assert path.stat().st_size == 0
    SQLite(path, serve=True).close()
    SQLite(path, create=False).close()


def test_an_empty_file_beside_a_write_ahead_log_is_not_served(tmp_path: Path) -> None:
    """SQLite would take the log for that of another file, and delete it."""
    path, wal = tmp_path / "lcb.db", tmp_path / "lcb.db-wal"
    path.touch()
    wal.write_bytes(b"events")
    with pytest.raises(StoreError, match=r"is empty, but its write-ahead log lcb\.db-wal is not"):
        SQLite(path, serve=True)
    assert wal.read_bytes() == b"events"


HOLD = """
import sys
from lcb.storage.store.sqlite.store import SQLite
store = SQLite(sys.argv[1], serve=True)
store.head()
print("up", flush=True)
input()
"""


def test_a_store_in_use_is_refused_under_another_name(tmp_path: Path) -> None:
    path, other = tmp_path / "lcb.db", tmp_path / "copies" / "lcb.db"
    SQLite(path).close()
    other.parent.mkdir()
    os.link(path, other)
    SQLite(other, create=False).close()  # nobody uses it
    other.unlink()
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.link(path, other)
        with pytest.raises(StoreError, match="in use under another one, beside which its write-ahead log is"):
            SQLite(other, create=False)
        SQLite(path, create=False).close()
        process.communicate("end")
    SQLite(other, create=False).close()
