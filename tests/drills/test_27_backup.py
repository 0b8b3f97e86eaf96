"""Drill 27: a backup taken while the service writes finishes, contains the log up to one event, and verifies."""

from __future__ import annotations

import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from lcb.serve.audit.verify import verify
from lcb.storage.store.sqlite import backup as sqlite_backup
from lcb.storage.store.sqlite.store import SQLite
from support.harness import LONG, Server, arms, models_folder, serving
from support.inside import Inside, Unsynced
from support.server import settings

N_LARGE = 13_000 if LONG else 260  # decisions of 2,000 arms, about 100 kB each in the store
SIZE = 1_000_000_000 if LONG else 20_000_000
PAUSE = 0.1 if LONG else 0.004  # seconds between two decisions while the copy is made
SECONDS = 90 if LONG else 60
WAL = 200_000_000


def fill(path: Path, given: dict) -> None:
    """Create a log of `N_LARGE` large decisions that can be recomputed."""
    rng = np.random.default_rng(0)
    many = arms(rng, 2000)
    with Inside(lambda: Unsynced(path), settings(given)) as inside:
        for i in range(N_LARGE):
            inside.decide(f"u{i % 50}", arms=many)
        inside.stop()
    assert path.stat().st_size > SIZE


def load(server: Server, acknowledged: list[str], stop: threading.Event) -> None:
    rng = np.random.default_rng(1)
    with server.client() as http:
        while not stop.is_set():
            answer = http.post("/v1/decisions", json={"user": f"v{rng.integers(9)}", "arms": arms(rng, 5)})
            assert answer.status_code == 200, answer.text
            acknowledged.append(answer.json()["decision_id"])
            time.sleep(PAUSE)


def drill(folder: Path) -> None:
    path, copy = folder / "lcb.db", folder / "copy.db"
    given = {"store": str(path), "models": models_folder(folder)}
    fill(path, given)
    acknowledged: list[str] = []
    wal: list[int] = []
    stop = threading.Event()

    def progress(what: str, done: int, total: int | None) -> None:
        n = len(acknowledged)
        while len(acknowledged) == n and not LONG and time.monotonic() < until:  # others write between steps
            time.sleep(0.001)
        assert time.monotonic() < until, f"no copy after {SECONDS} s"
        wal.append(Path(f"{path}-wal").stat().st_size)

    with serving(folder, **given) as server:
        thread = threading.Thread(target=load, args=(server, acknowledged, stop))
        thread.start()
        try:
            while len(acknowledged) < 5:
                time.sleep(0.01)
            before = list(acknowledged)
            until = time.monotonic() + SECONDS
            with closing(SQLite(path, create=False)) as store:
                store.backup(str(copy), progress)
            n_meanwhile = len(acknowledged) - len(before)
        finally:
            stop.set()
            thread.join()
    assert n_meanwhile > 1, "nothing was written while the copy was made"
    assert len(wal) > 1, "no progress was shown"
    assert max(wal) < WAL
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(SQLite(copy, create=False)) as store:
        log = list(store.events(0))
        assert [row.seq for row in log] == list(range(1, len(log) + 1))
        assert set(before) <= {row.id for row in log}, "a decision of before the copy is not in it"
        assert store._read("pragma integrity_check") == [("ok",)]
        assert verify(store).differences == []


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    if not LONG:
        monkeypatch.setattr(sqlite_backup, "_PAGES", 400)


def test_a_backup_under_load_ends_and_verifies(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_backup_that_does_not_hold_one_moment_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECONDS": 1.5, "N_LARGE": 260, "SIZE": 20_000_000, "PAUSE": 0.002, "LONG": False}.items():
        monkeypatch.setitem(globals(), name, value)
    monkeypatch.setattr(sqlite_backup, "_PAGES", 400)
    monkeypatch.setattr(sqlite_backup, "_hold_snapshot", lambda source: None)
    with pytest.raises(AssertionError, match="no copy after"):
        drill(tmp_path)
