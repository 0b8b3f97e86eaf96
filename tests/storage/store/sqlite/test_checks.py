"""What is wrong with the table of common bytes is found before an erasure makes it worse."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lcb.storage.store.base import NewRow
from lcb.storage.store.sqlite.store import SQLite

COMMON = bytes(range(256)) * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of 80 events that have bytes in common, and two that have none."""
    store = SQLite(tmp_path / "lcb.db")
    rows = [NewRow(f"d{i}", "decision", f"u{i}", 1, f"{i:010d}".encode() + COMMON + b"x") for i in range(80)]
    store.append(rows, 0)
    store.append([NewRow(f"e{i}", "decision", "ann", 1, b"own") for i in range(2)], 80)
    assert store.find_damage() == []
    store.close()
    return tmp_path / "lcb.db"


@pytest.mark.parametrize(
    "statement, seq, words",
    [
        ("update common set last = seq", 2, "row 1 of the table common, which lacks this event"),
        ("update common set last = last - 1", 80, "row 1 of the table common, which lacks this event"),
        ("update event set common = 1 where seq = 81", 81, "row 1 of the table common, which lacks this event"),
        ("update event set common = 9 where seq = 82", 82, "row 9 of the table common, which does not exist"),
        ("insert into common values(90, 95, x'00')", None, "row 90 of the table common is of no event"),
    ],
)
def test_a_wrong_range_of_common_bytes_is_found(path: Path, statement: str, seq: int | None, words: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    store = SQLite(path)
    found, said = store.find_damage()[0]
    store.close()
    assert found == seq
    assert words in said


def test_a_pointer_is_found_where_no_bytes_are_common(tmp_path: Path) -> None:
    """Its body is read as it is, so neither digest nor link tells."""
    store = SQLite(tmp_path / "lcb.db")
    store.append([NewRow(f"e{i}", "decision", "ann", 1, b"own") for i in range(2)], 0)
    store.close()
    with closing(sqlite3.connect(tmp_path / "lcb.db")) as connection, connection:
        connection.execute("update event set common = 1 where seq = 2")
    store = SQLite(tmp_path / "lcb.db")
    ((seq, words),) = store.find_damage()
    store.close()
    assert seq == 2
    assert "does not exist" in words
