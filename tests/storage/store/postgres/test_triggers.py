"""A trigger or a rule that is added to a PostgreSQL store while it is served costs refusals, and no event."""

from __future__ import annotations

import pytest

from lcb.errors import StoreUnavailable
from lcb.storage.store.base import NewRow
from lcb.storage.store.open_store import open_store
from support.tampering import run_sql

DROPS = "create function spoil() returns trigger language plpgsql as 'begin return null; end'"
CHANGES = "create function spoil() returns trigger language plpgsql as 'begin new.kind := ''x''; return new; end'"
TRIGGER = "create trigger t before insert on event for each row execute function spoil()"
CASES = {
    "events are dropped": ((DROPS, TRIGGER), "drop trigger t on event"),
    "events are changed": ((CHANGES, TRIGGER), "drop trigger t on event"),
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
        words = r"is not as lcb made it.* t was added on event"
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
