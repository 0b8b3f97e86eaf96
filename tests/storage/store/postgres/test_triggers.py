"""A trigger or a rule that is added to a PostgreSQL store while it is served costs refusals, and no event."""

from __future__ import annotations

import psycopg
import pytest

from lcb.errors import StoreUnavailable
from lcb.storage.store.base import NewRow, Rewrite
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres.store import Postgres
from support.tampering import run_sql

DROPS = "create function spoil() returns trigger language plpgsql as 'begin return null; end'"
CHANGES = "create function spoil() returns trigger language plpgsql as 'begin new.kind := ''x''; return new; end'"
TRIGGER = "create trigger t before insert on event for each row execute function spoil()"
SECURITY = "alter table event {} row level security"
CASES = {
    "events are dropped": ((DROPS, TRIGGER), "drop trigger t on event"),
    "events are changed": ((CHANGES, TRIGGER), "drop trigger t on event"),
    "rows are hidden": (
        ("alter table event enable row level security",),
        "alter table event disable row level security",
    ),
    "rows are lost in a crash": (("alter table event set unlogged",), "alter table event set logged"),
    "a rule": (("create rule t as on insert to event do also delete from snapshot",), "drop rule t on event"),
}


def build(n: int) -> list[NewRow]:
    return [NewRow(f"d{n}", "decision", "ann", 0, b"body")]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_written_through_a_trigger(new_postgres_database: str, name: str) -> None:
    statements, undo = CASES[name]
    store = open_store(new_postgres_database)
    try:
        store.append(build(1), 0)
        store.append(build(2), 1)
        for one in statements:
            run_sql(new_postgres_database, one)
        words = r"is not as lcb made it.* (t was added on event|security was enabled on event|event was set unlogged)"
        with pytest.raises(StoreUnavailable, match=words):
            store.append(build(3), 2)
        with pytest.raises(StoreUnavailable, match=words):
            store.erase("ann", lambda rows: ([], build(9)[0]), 2)
        assert store.head() == 2
        run_sql(new_postgres_database, undo)
        assert [row.id for row in store.append(build(3), 2).rows] == ["d3"]
        assert [row.kind for row in store.events(0)] == ["decision"] * 3
    finally:
        store.close()


def test_no_trigger_is_added_after_a_write_has_looked_for_one(
    new_postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither beside the rows of others, which takes a transaction, nor in an erasure."""
    store, refused = open_store(new_postgres_database), list[str]()
    look = Postgres._refuse_changes

    def add_after_the_look(self: Postgres, has_triggers: bool) -> None:
        look(self, has_triggers)
        try:
            run_sql(new_postgres_database, f"set lock_timeout = '200ms'; {TRIGGER}")
        except psycopg.errors.LockNotAvailable as error:
            refused.append(str(error))

    try:
        store.append(build(1), 0)
        run_sql(new_postgres_database, DROPS)
        monkeypatch.setattr(Postgres, "_refuse_changes", add_after_the_look)
        assert [row.seq for row in store.append(build(2), 0).rows] == [1, 2]
        store.erase("ann", lambda rows: ([Rewrite(2, "erased/2", "erased decision", b"left")], build(3)[0]), 2)
        assert len(refused) == 2
        assert [row.id for row in store.events(0)] == ["d1", "erased/2", "d3"]
    finally:
        store.close()
