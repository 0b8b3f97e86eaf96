"""The watch over the folder of a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lcb.storage.store.sqlite.file import FolderWatch

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
