"""A log is counted before it is served, and a number that is wrong is told in words."""

from __future__ import annotations

import pytest

from lcb.errors import StoreError
from lcb.serve.log.check_whole import check_whole
from lcb.storage.store.base import NewRow
from lcb.storage.store.open_store import open_store
from support.tampering import run_sql


def test_a_table_that_inherits_from_that_of_the_events_adds_events_and_takes_none(new_postgres_database: str) -> None:
    store = open_store(new_postgres_database)
    try:
        store.append([NewRow(f"d{i}", "decision", "ann", None, b"body") for i in range(3)], 0)
        run_sql(new_postgres_database, "create table more() inherits (event)")
        run_sql(new_postgres_database, "insert into more select * from only event where seq = 2")
        with pytest.raises(StoreError, match="ends with event 3, but has 4 events: 1 more than it can have; restore"):
            check_whole(store)
        run_sql(new_postgres_database, "drop table more")
        run_sql(new_postgres_database, "delete from event where seq = 2")
        with pytest.raises(StoreError, match="ends with event 3, but has 2 events: 1 are missing; restore"):
            check_whole(store)
    finally:
        store.close()
