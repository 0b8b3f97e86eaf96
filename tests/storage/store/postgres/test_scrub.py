"""What an erasure leaves in the data files of PostgreSQL is removed also if the process that erased was ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from lcb.storage.store.base import NewRow, Rewrite, Row
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres import scrub
from lcb.storage.store.postgres.connections import lock_number
from lcb.storage.store.postgres.store import Postgres

NAME, OTHER = "Person-of-Interest", "Person-who-stays"
WITHIN = 60.0  # seconds


def count(url: str, text: str) -> int:
    """Count how often the data files contain the text, after a checkpoint."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")
        (data,) = connection.execute("show data_directory").fetchone() or ("",)
        (oid,) = connection.execute("select oid from pg_database where datname = current_database()").fetchone() or (
            "",
        )
    n = 0
    for file in (Path(data) / "base" / str(oid)).iterdir():
        try:
            n += file.read_bytes().count(text.encode())
        except (FileNotFoundError, IsADirectoryError):
            continue  # a rewritten table has a new file
    return n


def wait_until(reached: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WITHIN
    while not reached():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def list_notes(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [seq for (seq,) in connection.execute("select seq from unscrubbed order by seq").fetchall()]


def rewrite(rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
    bare = [Rewrite(row.seq, f"erased/{row.seq}", "erased decision", b"") for row in rows]
    return bare, NewRow(f"erase/{rows[0].seq}", "erase", None, None, b"")


@pytest.fixture
def unfinished(new_postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database from which a user was erased, by a process that was ended before it removed the bytes."""
    store = Postgres(new_postgres_database)
    for i in range(40):
        store.append([NewRow(f"{who}.{i}", "decision", who, 0, who.encode() * 9) for who in (NAME, OTHER)], 2 * i)
    with monkeypatch.context() as patch:
        patch.setattr(scrub.Scrubber, "start", lambda self: None)
        store.erase(NAME, rewrite, 80)
    store.close()
    assert count(new_postgres_database, NAME), "the test sees nothing"
    return new_postgres_database


def test_the_next_start_removes_them(unfinished: str) -> None:
    assert list_notes(unfinished) == [81]
    store = open_store(unfinished, serve=True)
    try:
        wait_until(lambda: not count(unfinished, NAME), "erased rows are left after a start")
        wait_until(lambda: not list_notes(unfinished), "the note is left")
    finally:
        store.close()
    assert count(unfinished, OTHER)


def test_a_replica_that_runs_removes_them(new_postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_LOOK_SECONDS", 0.3)
    replica, other = open_store(new_postgres_database, serve=True), Postgres(new_postgres_database)
    try:
        other.append([NewRow("d", "decision", NAME, 0, NAME.encode() * 99)], 0)
        other._scrubber.start = lambda: None  # type: ignore[method-assign]
        other.erase(NAME, rewrite, 1)
        other.close()
        wait_until(lambda: not count(new_postgres_database, NAME), "erased rows are left beside a replica")
    finally:
        replica.close()


def test_a_command_that_only_reads_removes_nothing(unfinished: str) -> None:
    store = open_store(unfinished)
    time.sleep(2 * scrub._QUIET_SECONDS)
    store.close()
    assert list_notes(unfinished) == [81]
    assert count(unfinished, NAME)


def test_what_another_process_is_removing_is_left_to_it(unfinished: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_PAUSE_SECONDS", 0.1)
    with psycopg.connect(unfinished, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", (lock_number("scrub"),))
        store = open_store(unfinished, serve=True)
        try:
            time.sleep(4 * scrub._QUIET_SECONDS)
            assert list_notes(unfinished) == [81]
            other.close()  # it is ended
            wait_until(lambda: not list_notes(unfinished), "nobody goes on")
            assert not count(unfinished, NAME)
        finally:
            store.close()


def test_a_removal_that_fails_is_tried_again(unfinished: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(scrub, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(scrub, "_PAUSES", (0.1,))
    with psycopg.connect(unfinished) as reader:  # an older transaction may still read the rows
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from event")
        store = open_store(unfinished, serve=True)
        try:
            wait_until(lambda: store._scrubber._n_failed > 0, "a failure is not noted")  # type: ignore[attr-defined]
            assert list_notes(unfinished) == [81]
            reader.rollback()
            wait_until(lambda: not list_notes(unfinished), "it is not tried again")
            assert not count(unfinished, NAME)
        finally:
            store.close()


def test_a_store_too_large_to_rewrite_is_left_to_the_operator(
    unfinished: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scrub, "REWRITE_BYTES", 0)
    store = open_store(unfinished, serve=True)
    try:
        wait_until(lambda: not list_notes(unfinished), "the note is left")
    finally:
        store.close()
    assert "too much to rewrite while serving" in caplog.text


def test_a_role_that_does_not_own_the_tables_says_that_erased_rows_are_left(
    unfinished: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server skips its vacuum with a warning alone."""
    monkeypatch.setattr(scrub, "_LOOK_SECONDS", 0.1)
    with psycopg.connect(unfinished, autocommit=True) as owner:
        owner.execute("drop role if exists lcb_other")
        owner.execute("create role lcb_other")
        owner.execute("grant all on all tables in schema public to lcb_other")
        owner.execute("grant lcb_other to current_user")
        statement = "alter database {} set role lcb_other"
        name = owner.execute("select quote_ident(current_database())").fetchone()
        assert name is not None
        owner.execute(statement.format(name[0]))
    store = open_store(unfinished, serve=True)
    try:
        assert isinstance(store, Postgres)
        wait_until(lambda: store._scrubber._n_failed > 0, "a failure is not noted")
        assert "this role may not vacuum event, snapshot, because it does not own it" in caplog.text
        assert list_notes(unfinished) == [81]
    finally:
        store.close()
        with psycopg.connect(unfinished, autocommit=True) as owner:
            owner.execute("set role none")
            owner.execute(f"alter database {name[0]} reset role")
            owner.execute("drop owned by lcb_other")
            owner.execute("drop role lcb_other")
