"""Drill 26: stores of earlier releases are migrated or stay unchanged; backups equal the log; nothing of an erased user
stays in the file."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import LCBError, StoreError
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.store import migrate
from lcb.storage.store.sqlite.store import SQLite
from support.crashing_stores import Died, Life, MortalStore, Opened, WithoutTransactions
from support.harness import LONG
from support.inside import Inside, fold_log, sqlite
from support.sessions import run_session

KNOWN = migrate.migrations("sqlite")
LATER = (
    "alter table event add column note text;\n"
    "update event set note = kind;\n"
    "create index event_of_note on event(note);\n"
    "create table more(name text primary key) strict;"
)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that adds a migration, so that the code knows one schema more."""
    number = KNOWN[-1][0] + 1

    def known(store: str) -> list[tuple[int, str]]:
        return [*KNOWN, (number, LATER)]

    def use(there: bool = True) -> int:
        monkeypatch.setattr(migrate, "migrations", known if there else lambda store: KNOWN)
        return number

    return use


def schema(path: Path) -> tuple[int, list[str]]:
    connection = sqlite3.connect(path)
    try:
        (version,) = connection.execute("pragma user_version").fetchone()
        return version, [
            sql for (sql,) in connection.execute("select sql from sqlite_master where sql is not null order by name")
        ]
    finally:
        connection.close()


def drill_migration(folder: Path, later: Any, opened: Opened = MortalStore) -> None:
    path = folder / "lcb.db"
    with run_session(path, n=30):
        pass
    old, rows = schema(path), contents(path)
    number = later()
    n = 0
    while True:
        n += 1
        life = Life(n)
        try:
            opened(path, life).close()
        except Died:
            life.bury()
            assert schema(path) == old, f"killed at statement {n}, neither old nor new"
            assert contents(path) == rows
        else:
            break
    assert n > 5
    assert schema(path)[0] == number
    assert contents(path) == rows
    store = SQLite(path)
    assert verify_all(store)
    store.close()
    later(False)
    with pytest.raises(StoreError, match=f"has schema {number}, this lcb knows up to {number - 1}; install the lcb"):
        SQLite(path)


def contents(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("select seq, id, kind, user, model, body from event order by seq").fetchall()
    finally:
        connection.close()


def verify_all(store: SQLite) -> bool:
    """Whether the log verifies."""
    return verify(store).differences == []


def test_a_migration_is_made_whole_or_not_at_all(tmp_path: Path, later: Any) -> None:
    drill_migration(tmp_path, later)


def test_a_migration_without_a_transaction_leaves_neither(tmp_path: Path, later: Any) -> None:
    with pytest.raises((AssertionError, LCBError, sqlite3.Error)):
        drill_migration(tmp_path, later, WithoutTransactions)


def test_a_store_of_the_first_release_opens_and_the_log_says_what_the_upgrade_drops(tmp_path, caplog) -> None:
    """The store is created by the statements of schema 1 alone."""
    connection = sqlite3.connect(tmp_path / "old.db")
    connection.executescript(KNOWN[0][1])
    connection.execute("pragma user_version = 1")
    connection.execute(f"pragma application_id = {0x6C636231}")
    connection.commit()
    connection.close()
    with caplog.at_level(logging.INFO, "lcb.storage"):
        store = SQLite(tmp_path / "old.db")
    (line,) = [one.getMessage() for one in caplog.records if "upgraded" in one.getMessage()]
    assert line.startswith(f"{tmp_path / 'old.db'} was upgraded from schema 1 to ")
    assert "the snapshots of earlier versions are dropped, so the next start reads the whole log" in line
    store.close()
    with Inside(sqlite(tmp_path / "old.db"), Settings(pages=False)) as inside:
        inside.reward(inside.decide("ann", arms=[{"id": "a", "x": [1.0]}])["decision_id"], 1.0)
        assert verify(inside.store).differences == []
    assert schema(tmp_path / "old.db")[0] == KNOWN[-1][0]
    caplog.clear()
    with caplog.at_level(logging.INFO, "lcb.storage"):
        SQLite(tmp_path / "old.db").close()
        SQLite(tmp_path / "new.db").close()
    assert caplog.records == [], "neither a second start nor a new store is an upgrade"


# Copies


def drill_backup(folder: Path, copy: Any) -> None:
    """Back up while a service writes; the copy must be the log up to some event, with the state as of that event."""
    with run_session(folder / "lcb.db", n=60, erase=False) as inside:
        stop, written = threading.Event(), 0
        copying = threading.Thread(target=lambda: (copy(inside, folder / "copy.db"), stop.set()))
        copying.start()
        while not stop.is_set() or written < 20:
            inside.reward(inside.decide(f"u{written % 9}")["decision_id"], 1.0)
            written += 1
        copying.join()
        rows = list(inside.store.events(0))
        store = SQLite(folder / "copy.db")
        try:
            found = list(store.events(0))
            assert found == rows[: len(found)], "the copy is not the beginning of the log"
            assert len(found) > 60
            assert store._read("pragma integrity_check") == [("ok",)]
            assert verify(store).differences == []
            one, other = fold_log(store), fold_log(inside.store)
            assert one.seq <= other.seq
        finally:
            store.close()
        with Inside(sqlite(folder / "copy.db"), inside.settings) as restored:
            assert compare_worlds(restored.service.world, fold_log(restored.store)) == []
            restored.reward(restored.decide("u1")["decision_id"], 1.0)
            assert verify(restored.store).differences == []


def test_a_copy_taken_while_it_serves_folds_to_the_same(tmp_path: Path) -> None:
    drill_backup(tmp_path, lambda inside, path: inside.store.backup(str(path)))


def test_a_copy_of_the_file_alone_is_none(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, LCBError)):
        drill_backup(tmp_path, lambda inside, path: path.write_bytes(Path(inside.store.url).read_bytes()))


# Erased users


class Careless(SQLite):
    """A store that does not overwrite deleted rows."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._writer.execute("pragma secure_delete = off")


def drill_erasure(folder: Path, kind: type[SQLite] = SQLite) -> None:
    specs = (
        RecommenderSpec("lcb"),
        RecommenderSpec("population", "linucb", scope="everyone"),
        RecommenderSpec("own", "lints"),
    )
    names = [f"Person-{i}-of-Interest" for i in range(6)]
    path = folder / "lcb.db"
    with Inside(lambda: kind(path), Settings(recommenders=specs, pages=False, reward_range=(0.0, 2.0))) as inside:
        for i in range(400 if LONG else 120):
            who = names[i // 4 % 6] if i % 4 == 0 else f"user{i % 17}"
            film = f"Film-{i}-seen-by-{who}"
            arms = [{"id": film, "x": [1.0, i / 7, 0.5]}, {"id": "other", "x": [0.0, 1.0, i % 3]}]
            id = inside.decide(who, arms=arms, decision_id=f"{who}.{i}")["decision_id"]
            inside.reward(id, float(i % 3))
        inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())
        for name in names:
            assert any(name.encode() in file.read_bytes() for file in files(path)), "the test sees nothing"
        for name in names:
            inside.erase(name)
            left = [file.name for file in files(path) if name.encode() in file.read_bytes()]
            assert not left, f"{name} is still in {', '.join(left)}"
            assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
        assert any(b"user3." in file.read_bytes() for file in files(path))
        report = verify(inside.store)
        assert report.differences == []
        assert report.n_erased > 0
        inside.crash()
        assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
        inside.store.backup(str(folder / "copy.db"))
    for name in names:
        assert name.encode() not in (folder / "copy.db").read_bytes()


def files(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.name.startswith(path.name)]


def test_who_is_erased_is_in_no_byte_of_the_store(tmp_path: Path) -> None:
    drill_erasure(tmp_path)


def test_who_is_erased_during_a_long_read_is_gone_when_the_read_has_ended(tmp_path: Path) -> None:
    path, arms = tmp_path / "lcb.db", [{"id": "a", "x": [1.0]}]
    with Inside(lambda: SQLite(path), Settings(pages=False)) as inside:
        for name in ("Person-of-Interest", "bob"):
            inside.decide(name, arms=arms)
        reading = sqlite3.connect(path, isolation_level=None)
        reading.execute("begin")
        reading.execute("select count(*) from event").fetchone()
        inside.erase("Person-of-Interest")
        reading.execute("rollback")
        reading.close()
        inside.decide("bob", arms=arms)
        assert not [file for file in files(path) if b"Person-of-Interest" in file.read_bytes()]


def test_without_overwriting_a_name_stays_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is still in"):
        drill_erasure(tmp_path, Careless)
