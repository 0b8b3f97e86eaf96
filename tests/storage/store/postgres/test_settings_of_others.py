"""What the administrators of a PostgreSQL server do to a store that is served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lcb.errors import StoreError
from lcb.storage.store.base import NewRow, Rewrite, Store
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


def test_events_are_stored_whatever_a_role_says_about_null(new_postgres_database: str) -> None:
    """With `array_nulls = off`, the word NULL of an array is a text, and no event of the service could be stored."""
    name = new_postgres_database.rsplit("/", 1)[1].split("?")[0]
    run_sql(new_postgres_database, f'alter database "{name}" set array_nulls = off')
    store = open_store(new_postgres_database)
    try:
        for seen in range(2):  # the first append reads the head, the next one does not
            store.append([NewRow(f"e{seen}", "note", None, None, b"")], seen)
        assert [(row.user, row.model) for row in store.events(0)] == [(None, None)] * 2
    finally:
        store.close()


def test_a_role_with_another_encoding_is_served(new_postgres_database: str) -> None:
    name = new_postgres_database.rsplit("/", 1)[1].split("?")[0]
    run_sql(new_postgres_database, f"alter database \"{name}\" set client_encoding = 'SQL_ASCII'")
    store = open_store(new_postgres_database)
    try:
        store.append([NewRow("e", "note", "Zoë", None, b"")], 0)
        assert [row.user for row in store.events(0)] == ["Zoë"]
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
        words = "not the one that this service has applied: event 2 is missing"
        for again in (lambda: store.append(build(3), 2), lambda: store.check(), lambda: erase_ann(store, 2)):
            with pytest.raises(StoreError, match=words):
                again()
        assert run_sql(new_postgres_database, "select seq from head") == [(1,)]
        later = open_store(new_postgres_database)  # another replica, after its restart
        try:
            later.append(build(4), 1)
            later.append(build(5), 2)
        finally:
            later.close()
        for again in (lambda: store.append(build(3), 2), lambda: store.check(), lambda: erase_ann(store, 2)):
            with pytest.raises(StoreError, match=words):
                again()
        ids = run_sql(new_postgres_database, "select id from event order by seq")
        assert ids == [("d1",), ("d4",), ("d5",)]
    finally:
        store.close()


def erase_ann(store: Store, seen: int) -> None:
    store.erase("ann", lambda rows: ([], build(9)[0]), seen)


def test_events_of_others_and_erasures_belong_to_the_same_log(new_postgres_database: str) -> None:
    store, other = open_store(new_postgres_database), open_store(new_postgres_database)
    try:
        store.append(build(1), 0)
        other.append(build(2), 1)
        store.check()
        rewrite = Rewrite(1, "erased/1", "erased decision", b"left")
        other.erase("ann", lambda rows: ([rewrite], NewRow("e", "erase", None, None, b"")), 2)
        store.check()
        assert [row.seq for row in store.append(build(4), 1).rows] == [2, 3]  # ann was erased since
        assert [row.seq for row in store.append(build(4), 3).rows] == [4]
        other.check()
    finally:
        store.close()
        other.close()


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


@pytest.mark.parametrize("given", ["nowhere", 'nowhere, "$user"', "''"])
@pytest.mark.parametrize("create", [True, False])
def test_a_search_path_without_a_schema_is_named_with_what_to_do(
    new_postgres_database: str, given: str, create: bool
) -> None:
    name = new_postgres_database.rsplit("/", 1)[1].split("?")[0]
    run_sql(new_postgres_database, f'alter database "{name}" set search_path = {given}')
    with pytest.raises(StoreError) as told:
        open_store(new_postgres_database, create=create)
    assert "its search_path " in str(told.value)
    assert "names no schema that exists and that its user may use" in str(told.value)
    assert "set search_path of the role or the database" in str(told.value)
    assert "try again" not in str(told.value)


def test_the_tables_are_made_in_the_schema_of_the_search_path(new_postgres_database: str) -> None:
    name = new_postgres_database.rsplit("/", 1)[1].split("?")[0]
    run_sql(new_postgres_database, "create schema shop")
    run_sql(new_postgres_database, f'alter database "{name}" set search_path = nowhere, shop')
    open_store(new_postgres_database).close()
    assert run_sql(new_postgres_database, "select to_regclass('shop.event') is not null") == [(True,)]
