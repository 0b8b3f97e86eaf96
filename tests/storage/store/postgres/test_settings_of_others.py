"""What the administrators of a PostgreSQL server do to a store that is served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lcb.errors import StoreError
from lcb.storage.store.base import NewRow, Store
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres.store import Postgres
from support.tampering import run_sql


def build(n: int) -> list[NewRow]:
    return [NewRow(f"d{n}", "decision", "ann", 0, b"body")]


@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_a_commit_waits_for_the_disk_whatever_the_database_says(
    new_postgres_database: str, given: str, used: str
) -> None:
    """With `off` a crash of the server loses commits that were answered."""
    name = new_postgres_database.rsplit("/", 1)[1].split("?")[0]
    run_sql(new_postgres_database, f'alter database "{name}" set synchronous_commit = {given}')
    store = open_store(new_postgres_database)
    try:
        assert isinstance(store, Postgres)
        assert store._get_writer().execute("show synchronous_commit").fetchone() == (used,)
    finally:
        store.close()


def test_nothing_is_added_to_a_log_that_has_lost_events(new_postgres_database: str) -> None:
    """A server that lost commits, or was restored from a backup, while the service ran."""
    store = open_store(new_postgres_database)
    try:
        store.append(build(1), 0)
        links = run_sql(new_postgres_database, "select link from head")
        store.append(build(2), 1)
        run_sql(new_postgres_database, "delete from event where seq = 2")
        run_sql(new_postgres_database, "update head set seq = 1, link = ?", links[0])
        with pytest.raises(StoreError, match="ends at event 1, but this service has applied 2: the server has lost"):
            store.append(build(3), 2)
        assert store.head() == 1
        assert [row.id for row in store.append(build(3), 1).rows] == ["d3"]
    finally:
        store.close()


USES: dict[str, Callable[[Store], object]] = {
    "event": lambda store: store.append(build(2), 1),
    "head": lambda store: store.append(build(2), 1),
    "key": lambda store: store.list_keys(),
    "snapshot": lambda store: store.forget_snapshots(),
}


@pytest.mark.parametrize("table", USES)
def test_a_table_that_was_renamed_is_not_called_damage(new_postgres_database: str, table: str) -> None:
    store = open_store(new_postgres_database)
    try:
        store.append(build(1), 0)
        run_sql(new_postgres_database, f"alter table {table} rename to moved")
        with pytest.raises(StoreError, match=f"no table {table}; rename it back if it was renamed") as refused:
            USES[table](store)
        assert "damaged" not in str(refused.value)
        run_sql(new_postgres_database, f"alter table moved rename to {table}")
        assert [row.id for row in store.append(build(2), 1).rows] == ["d2"]
    finally:
        store.close()
