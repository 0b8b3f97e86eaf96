"""Drill 42: another program changes the schema of the file while it is served; no decision is acknowledged and lost.

An index that lacks an entry hides an event from every read by it, though the table and its chain are whole.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lcb.errors import StoreError
from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.storage.store.base import NewRow, Row
from lcb.storage.store.open_store import open_store
from lcb.storage.store.schema import SchemaWatch
from lcb.storage.store.sqlite import checks as sqlite_checks
from lcb.storage.store.sqlite.checks import FileChecks
from support.harness import LONG, wait_until
from support.raw_requests import Local

N = 200 if LONG else 10
ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]
CHANGES = {
    "each event is deleted": "create trigger t after insert on event begin delete from event where seq = new.seq; end",
    "each event is ignored": "create trigger t before insert on event begin select raise(ignore); end",
    "each event is refused": "create trigger t before insert on event begin select raise(abort, 'no'); end",
    "each event is changed": "create trigger t after insert on event begin update event set user = 'x' "
    "where seq = new.seq; end",
    "other events are deleted": "create trigger t after insert on event begin delete from event where seq = 3; end",
    "a view in place of the table": "alter table event rename to kept; create view event as select * from kept; "
    "create table elsewhere(x); create trigger t instead of insert on event begin insert into elsewhere values(1); end",
}
UNDO = {"a view in place of the table": "drop view event; drop table elsewhere; alter table kept rename to event"}


def run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def decide(local: Local, i: int) -> int:
    body = {"user": f"u{i % 3}", "arms": ARMS, "decision_id": f"d{i}"}
    answered = local.send("POST", "/v1/decisions", body)
    if answered.status != 200:
        assert "is not as lcb made it" in answered.json["detail"], answered.body
    return answered.status


def drill(folder: Path, name: str) -> None:
    path = folder / "lcb.db"
    with Local(str(path)) as local:
        assert {decide(local, i) for i in range(5)} == {200}
        run(path, CHANGES[name])
        said = [decide(local, 5 + i) for i in range(N)]
        lost = sum(status == 200 for status in said)
        assert not lost, f"{lost} of {N} decisions are acknowledged while the schema is another"
        assert set(said) == {503}
        assert local.ask("GET", "/readyz").status == 503
        run(path, UNDO.get(name, "drop trigger t"))
        wait_until(lambda: local.ask("GET", "/readyz").status == 200, "the store is used again")
        assert {decide(local, 5 + i) for i in range(N)} == {200}
        if name not in ("each event is changed", "other events are deleted"):  # these have harmed the log
            local.verify()
        with closing(sqlite3.connect(path)) as connection:
            kept = {id for (id,) in connection.execute("select id from event where kind = 'decision'")}
        assert kept >= {f"d{i}" for i in range(5, 5 + N)}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_schema_costs_refusals_and_no_decision(tmp_path: Path, name: str) -> None:
    drill(tmp_path, name)


@pytest.mark.parametrize("name", ["each event is deleted", "each event is ignored", "a view in place of the table"])
def test_a_service_that_does_not_look_loses_decisions(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(SchemaWatch, "check", lambda self: None)
    monkeypatch.setattr(SchemaWatch, "check_insert", lambda *_: None)
    with pytest.raises(AssertionError, match="are acknowledged while the schema is another"):
        drill(tmp_path, name)


def test_tables_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "lcb.db"
    with Local(str(path)) as local:
        run(path, "create table mine(x)")
        assert {decide(local, i) for i in range(N)} == {200}


# An index without one of its entries


def hide(path: Path, index: str, condition: str) -> None:
    """Make an index anew without the entries of some events, and let the schema say what it said."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (text,) = connection.execute("select sql from sqlite_master where name = ?", (index,)).fetchone()
        connection.execute(f"drop index {index}")
        connection.execute(f"{text} and not ({condition})")
        connection.execute("pragma writable_schema = on")
        connection.execute("update sqlite_master set sql = ? where name = ?", (text, index))


def drill_index(path: Path, rows: list[Row], index: str) -> None:
    store = open_store(str(path))
    store.append([NewRow(*row[1:]) for row in rows], 0)
    store.close()
    seq = next(row.seq for row in rows if (row.kind == "items" if index == "event_of_service" else row.user))
    hide(path, index, f"seq = {seq}")
    store = open_store(str(path))
    try:
        assert store.find_changes_of_schema() == []
        for report in (verify(store), verify_whole(store, path.with_name("none"))):
            found = [str(one) for one in report.differences]
            assert [one for one in found if f"{seq} missing from index {index}" in one], "nobody has noticed"
    finally:
        store.close()
    with pytest.raises(StoreError, match=r"1 event is missing in an index.*reindex"):
        open_store(str(path), serve=True)
    run(path, "reindex")
    store = open_store(str(path), serve=True)
    assert verify(store).differences == []
    store.close()


@pytest.mark.parametrize("index", ["event_of_service", "event_of_user"])
def test_an_event_that_an_index_lacks_is_found_and_the_store_is_not_served(
    tmp_path: Path, rows: list[Row], index: str
) -> None:
    drill_index(tmp_path / "lcb.db", rows, index)


def replace_entry(path: Path, seq: int) -> None:
    """Let the index of the service have an event under another kind: it has as many entries as before."""
    name = "event_of_service"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (kind,) = connection.execute("select kind from event where seq = ?", (seq,)).fetchone()
        connection.execute("update event set kind = 'audit' where seq = ?", (seq,))
        connection.execute("pragma writable_schema = on")
        found = connection.execute("select * from sqlite_master where name = ?", (name,)).fetchone()
        connection.execute("delete from sqlite_master where name = ?", (name,))
        connection.execute("pragma writable_schema = reset")
        connection.execute("update event set kind = ? where seq = ?", (kind, seq))  # without the index
        connection.execute("pragma writable_schema = on")
        connection.execute("insert into sqlite_master values(?, ?, ?, ?, ?)", found)
        connection.execute("pragma writable_schema = reset")


def drill_ghost(path: Path, rows: list[Row]) -> None:
    store = open_store(str(path))
    store.append([NewRow(*row[1:]) for row in rows], 0)
    seq = next(row.seq for row in rows if row.kind == "items")
    store.close()
    replace_entry(path, seq)
    store = open_store(str(path))
    assert seq not in [row.seq for row in store.newest_of_service(("items",))]  # it is hidden
    assert store.find_changes_of_schema() == []
    store.close()
    try:
        open_store(str(path), serve=True).close()
    except StoreError as error:
        assert f"lacks event {seq} (items)" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a store whose index hides an event is served")


def test_an_entry_in_place_of_another_is_found_at_the_start(tmp_path: Path, rows: list[Row]) -> None:
    drill_ghost(tmp_path / "lcb.db", rows)


def test_control_only_the_numbers_of_entries_are_compared(tmp_path: Path, rows: list[Row], monkeypatch) -> None:
    monkeypatch.setattr(sqlite_checks, "_WALKED", sqlite_checks._INDEXED)
    with pytest.raises(AssertionError, match="is served"):
        drill_ghost(tmp_path / "lcb.db", rows)


def test_without_a_look_at_the_indexes_nobody_notices(tmp_path: Path, rows: list[Row], monkeypatch) -> None:
    monkeypatch.setattr(FileChecks, "find_damage", lambda self: [])
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill_index(tmp_path / "lcb.db", rows, "event_of_user")
