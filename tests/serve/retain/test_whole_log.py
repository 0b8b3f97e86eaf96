"""The temporary store of a log with its archive: removed after, and by the next command if its process was killed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcb.serve.retain.folder import lock
from lcb.serve.retain.whole_log import open_restored
from support.old_log import DAY, OldLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OldLog]:
    made = OldLog(tmp_path / "log", 5, n_users=4)
    made.live(2)
    made.compact(DAY)
    yield made
    made.close()


def leave(folder: Path, age: float) -> Path:
    """What a killed process has left `age` seconds ago."""
    folder.mkdir()
    (folder / "whole.db").write_bytes(b"names of users")
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_what_killed_processes_have_left_is_removed(
    log: OldLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    old, new, used = (leave(place / f"lcb-whole-{name}", age) for name, age in (("a", 90), ("b", 5), ("c", 90)))
    other = leave(place / "lcb-other", 90)
    with lock(used, "whole"):
        os.utime(used, (time.time() - 90,) * 2)
        with open_restored(log.store, log.archive) as whole:
            assert whole.head() == log.store.head()
            assert not old.exists(), "a store with users who may be erased is left"
            assert len(list(place.glob("lcb-whole-*"))) == 3
            assert (used / "whole.db").exists(), "the store of a running process is removed"
            assert (new / "whole.db").exists()
    assert sorted(place.iterdir()) == [other, new, used]
