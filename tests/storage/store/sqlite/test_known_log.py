"""A served file that was overwritten is noticed, and what others may do with it is no such thing."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
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


PAGE = 4096


def fill_wal(store: SQLite, n: int = 30) -> None:
    """Write events into the write-ahead log, and as many into the file before."""
    write(store, 500)
    empty_wal(store)
    write(store, n)
    store.check()


def cut(path: Path, pages: int) -> bytes:
    """Cut pages off the end; returns the whole."""
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(len(whole) - pages * PAGE)
    return whole


def test_a_cut_is_noticed_while_all_known_events_can_still_be_read(store: SQLite, path: Path) -> None:
    fill_wal(store)
    cut(path, 3)
    assert store._known is not None
    with closing(store._connect()) as connection:
        store._known._compare(connection)
    with pytest.raises(StoreUnavailable, match="it was cut") as told:
        store.check()
    assert told.value.replaced
    with pytest.raises(StoreUnavailable, match="it was cut"):
        write(store, 1)


def test_what_was_cut_and_put_back_is_right_again(store: SQLite, path: Path) -> None:
    fill_wal(store)
    whole = cut(path, 3)
    with pytest.raises(StoreUnavailable, match="it was cut"):
        store.check()
    path.write_bytes(whole)
    store.check()
    write(store, 1)


def test_a_cut_file_that_a_checkpoint_has_lengthened_again_is_still_wrong(store: SQLite, path: Path) -> None:
    fill_wal(store)
    length = path.stat().st_size
    write(store, 200)
    cut(path, 4)
    with pytest.raises(StoreUnavailable, match="it was cut"):
        store.check()
    with closing(sqlite3.connect(path)) as other:
        other.execute("pragma wal_checkpoint(truncate)")
    assert path.stat().st_size >= length
    with pytest.raises(StoreUnavailable, match="it was cut, and is damaged"):
        store.check()


def test_a_checkpoint_under_way_is_no_cut(store: SQLite, path: Path) -> None:
    """Also one that ends early, beside a long read: what it left out may be at the end of the file."""
    write(store, 20)
    empty_wal(store)
    store._writer.execute("pragma wal_autocheckpoint = 0")
    n_looks = 0
    for _ in range(4):
        write(store, 10)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            store.append([NewRow(f"large/{store.head()}", "a", None, None, b"x" * 20_000_000)], store.head())
            reader.execute("begin")
            reader.execute("select max(seq) from event").fetchone()
            write(store, 10)
            for _ in range(2):  # beside the reader, and after it
                n_looks += look_during_checkpoint(store, path)
                if reader.in_transaction:
                    reader.execute("rollback")
    assert n_looks > 8


def look_during_checkpoint(store: SQLite, path: Path) -> int:
    def write_back() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("pragma wal_checkpoint(passive)")

    thread = threading.Thread(target=write_back)
    thread.start()
    n = 0
    while thread.is_alive() or not n:
        store.check()
        n += 1
    thread.join()
    store.check()
    return n


@pytest.mark.parametrize("looks_between", [True, False])
def test_a_vacuum_of_another_program_is_no_cut(store: SQLite, path: Path, looks_between: bool) -> None:
    write(store, 2000)
    write(store, 1, "compact")
    empty_wal(store)
    store.check()
    length = path.stat().st_size
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("delete from event where seq < 1500")
        store.check()
        other.execute("vacuum")
        if looks_between:
            store.check()
        other.execute("pragma wal_checkpoint(truncate)")
    store.check()
    write(store, 50)
    assert path.stat().st_size < length
    cut(path, 3)
    with pytest.raises(StoreUnavailable, match="it was cut"):
        store.check()
