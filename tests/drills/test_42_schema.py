"""Drill 42: another program changes the schema of the file while it is served; no decision is acknowledged and lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lcb.storage.store.schema import SchemaWatch
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
