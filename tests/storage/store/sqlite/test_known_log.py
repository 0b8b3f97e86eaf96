"""A served file that was overwritten is noticed, and what others may do with it is no such thing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcb.errors import StoreUnavailable
from lcb.storage.store.base import NewRow
from lcb.storage.store.sqlite import known_log
from lcb.storage.store.sqlite.store import SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lcb.db"


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after every commit."""
    monkeypatch.setattr(known_log, "_EVERY", 0.0)


@pytest.fixture
def store(path: Path) -> Iterator[SQLite]:
    made = SQLite(path, serve=True)
    yield made
    made.close()


def write(store: SQLite, n: int, kind: str = "a") -> None:
    for _ in range(n):
        head = store.head()
        store.append([NewRow(f"{kind}/{head}", kind, None, None, b"x")], head)


def empty_wal(store: SQLite) -> None:
    assert store._writer.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0


def test_what_comes_from_before_is_known_by_old_events_also_where_the_newest_are_in_the_write_ahead_log(
    store: SQLite, path: Path, tmp_path: Path
) -> None:
    write(store, 500)
    empty_wal(store)
    shutil.copyfile(path, tmp_path / "old.db")
    write(store, 500)
    empty_wal(store)
    write(store, 1)
    path.write_bytes((tmp_path / "old.db").read_bytes())
    with pytest.raises(StoreUnavailable, match="overwritten") as told:
        store.check()
    assert told.value.replaced
    with pytest.raises(StoreUnavailable, match="overwritten"):
        store.append([NewRow("a/1", "a", None, None, b"x")], 1001)
    assert store._known is not None
    assert store._known.wrong


def test_another_log_of_the_same_length_is_another_log(store: SQLite, path: Path, tmp_path: Path) -> None:
    write(store, 20)
    empty_wal(store)
    with (other := SQLite(tmp_path / "other.db"))._transaction():
        pass
    write(other, 20)
    other.close()
    path.write_bytes((tmp_path / "other.db").read_bytes())
    with pytest.raises(StoreUnavailable, match="overwritten"):
        store.check()


def test_what_a_compaction_removes_is_not_missing(store: SQLite, path: Path) -> None:
    write(store, 20)
    other = SQLite(path)
    with pytest.raises(StoreUnavailable, match="event 5 is missing"):
        _remove(other, store, [5, 6])
    other.close()


def test_what_comes_before_an_event_of_a_compaction_may_be_missing(store: SQLite, path: Path) -> None:
    write(store, 20)
    write(store, 1, "compact")
    other = SQLite(path)
    _remove(other, store, [5, 6])
    write(store, 5)
    other.close()


def _remove(other: SQLite, store: SQLite, seqs: list[int]) -> None:
    with other._transaction() as connection:
        connection.executemany("delete from event where seq = ?", [(seq,) for seq in seqs])
    store.check()


def test_few_events_are_known_and_the_oldest_among_them(store: SQLite) -> None:
    write(store, 500)
    assert store._known is not None
    seqs = [one.seq for one in store._known._known]
    assert len(seqs) <= known_log._MOST
    assert seqs == sorted(set(seqs))
    assert seqs[0] < 20
    assert seqs[-1] == 500


def test_a_file_is_as_it_was_again(store: SQLite, path: Path) -> None:
    write(store, 500)
    empty_wal(store)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192])
    with pytest.raises(StoreUnavailable, match="overwritten"):
        store.check()
    path.write_bytes(whole)
    store.check()
    write(store, 1)
