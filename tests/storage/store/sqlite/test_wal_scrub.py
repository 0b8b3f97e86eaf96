"""After an erasure whose bytes cannot be removed from the write-ahead log, the operational log says so."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lcb.storage.store.base import NewRow, Rewrite
from lcb.storage.store.sqlite.store import SQLite

SECRET = b"Ann-Secret-Item"


class FaultyDisk:
    """A connection that cannot empty the write-ahead log while there is a `fault`."""

    fault: str | None = None
    n_tried = 0

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, statement: str, *values: Any) -> Any:
        if "checkpoint" in statement:
            self.n_tried += 1
            if self.fault is not None:
                raise sqlite3.OperationalError(self.fault)
        return self.connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = SQLite(tmp_path / "lcb.db", serve=True)
    made.check()  # what an earlier process has left is removed
    made._writer = FaultyDisk(made._writer)  # type: ignore[assignment]
    yield made
    made.close()


def erase(store: SQLite) -> None:
    store.append([NewRow("d1", "decision", "ann", 1, SECRET)], 0)
    store.erase(
        "ann", lambda found: ([Rewrite(1, "x/1", "erased decision", b"")], NewRow("e", "erase", None, None, b"")), 1
    )


def wal_has_it(store: SQLite) -> bool:
    return SECRET in Path(f"{store.path}-wal").read_bytes()


def test_the_log_says_when_erased_rows_stay_and_when_they_are_gone(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store._writer.fault = "disk I/O error"
    erase(store)
    for _ in range(3):
        store.check()
    assert wal_has_it(store)
    assert store._writer.n_tried == 4
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "what was erased may still be in" in line.message
    assert "disk I/O error" in line.message
    store._writer.fault = None
    store.check()
    assert not wal_has_it(store)
    assert len(caplog.records) == 2
    assert "no longer in" in caplog.records[1].message
    n_tried = store._writer.n_tried
    store.check()
    assert store._writer.n_tried == n_tried
    assert len(caplog.records) == 2


def test_an_erasure_without_trouble_writes_no_line(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    erase(store)
    assert not wal_has_it(store)
    assert not caplog.records


def test_a_read_that_holds_the_log_open_is_no_trouble(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A backup or an export; the next check after it empties the log."""
    store.append([NewRow("d0", "decision", "bob", 1, b"other")], 0)
    reading = store._connect()
    reading.execute("begin")
    reading.execute("select count(*) from event").fetchone()
    store.append([NewRow("d1", "decision", "ann", 1, SECRET)], 1)
    store.erase(
        "ann", lambda found: ([Rewrite(2, "x/2", "erased decision", b"")], NewRow("e", "erase", None, None, b"")), 2
    )
    assert wal_has_it(store)
    reading.close()
    store.check()
    assert not wal_has_it(store)
    assert not caplog.records
