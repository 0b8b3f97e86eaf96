"""A log that lacks what this process knows it to have is noticed by every write, and by reads that find nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lcb.errors import StoreError
from lcb.storage.store.base import NewRow, Row
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres.store import Postgres
from support.tampering import run_sql

NOT_KNOWN = "is not the one that this service has applied: event {} is missing"


@pytest.fixture
def url(new_postgres_database: str) -> str:
    return new_postgres_database


@pytest.fixture
def stores(url: str) -> Iterator[list[Postgres]]:
    made = [open_store(url) for _ in range(2)]
    yield made  # type: ignore[misc]
    for one in made:
        one.close()


def build(n: int, kind: str = "decision") -> list[NewRow]:
    return [NewRow(f"d{n}", kind, None if kind == "compact" else f"u{n}", None, b"body")]


def fill(store: Postgres, *seqs: int) -> None:
    for seq in seqs:
        store.append(build(seq), seq - 1)


def go_back(url: str, store: Postgres, seq: int) -> None:
    """Let the log end with this event, as on a standby that was behind."""
    ((_, seal),) = store.sealed_events(seq - 1, seq)
    run_sql(url, "delete from event where seq > ?", (seq,))
    run_sql(url, "update head set seq = ?, link = ?", (seq, seal.link))


READS: dict[str, Callable[[Postgres], object]] = {
    "an event": lambda store: store.event("d3"),
    "ids": lambda store: store.ids_there(["d1", "d3"]),
    "the newest event of a user": lambda store: store.newest_of("u3"),
    "the head": lambda store: store.head(),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_that_finds_nothing_tells_that_the_log_is_another_one(
    url: str, stores: list[Postgres], name: str
) -> None:
    store = stores[0]
    fill(store, 1, 2, 3)
    assert READS[name](store)  # opens the connection
    go_back(url, store, 2)
    with pytest.raises(StoreError, match=NOT_KNOWN.format(3)) as told:
        READS[name](store)
    assert told.value.replaced


def test_what_others_wrote_and_what_nobody_wrote_is_read_as_it_is(stores: list[Postgres]) -> None:
    store, other = stores
    fill(store, 1)
    fill(other, 2)
    assert store.event("d2") == Row(2, "d2", "decision", "u2", None, b"body")
    assert store.event("d3") is None
    assert store.event("\0") is None
    assert store.ids_there(["d1", "d2", "d3"]) == {"d1", "d2"}
    assert store.ids_there([]) == set()
    assert (store.newest_of("u2"), store.newest_of("u3"), store.head()) == (2, 0, 2)


def test_a_compaction_may_remove_the_known_event(url: str, stores: list[Postgres]) -> None:
    store, other = stores
    fill(store, 1, 2)
    other.append(build(3, "compact"), 2)
    run_sql(url, "delete from event where seq = 2")
    assert store.event("d2") is None
    assert store.newest_of("u2") == 0
    store.check()
    fill(store, 4)


def test_no_read_begins_on_a_new_connection_to_another_log(url: str, stores: list[Postgres]) -> None:
    """A failover ends the old connections; what is read of a user would lack events, and stay in memory."""
    store = stores[0]
    fill(store, 1, 2, 3)
    assert len(store.events_of("u1")) == 1
    go_back(url, store, 2)
    assert len(store.events_of("u1")) == 1
    store._pool.drop_idle()
    with pytest.raises(StoreError, match=NOT_KNOWN.format(3)):
        store.events_of("u1")


REMOVED = {"all events": "truncate event", "the newest": "delete from event where seq > 2"}


@pytest.mark.parametrize("name", REMOVED)
def test_nothing_is_appended_after_the_newest_events_were_removed_though_the_head_is_as_it_was(
    url: str, stores: list[Postgres], name: str
) -> None:
    """Also by a replica alone, which writes without looking for events of others."""
    store, other = stores
    fill(store, 1, 2, 3, 4)
    run_sql(url, "create table kept as select * from event")
    run_sql(url, REMOVED[name])
    for _ in range(2):
        with pytest.raises(StoreError, match=NOT_KNOWN.format(4)) as told:
            store.append(build(5), 4)
        assert told.value.replaced
        with pytest.raises(StoreError, match=NOT_KNOWN.format(4)):
            store.erase("u1", lambda rows: ([], build(9)[0]), 4)
        with pytest.raises(StoreError, match=NOT_KNOWN.format(4)):
            store.check()
    with pytest.raises(StoreError, match=NOT_KNOWN.format(4)):
        other.append(build(5), 0)  # has read nothing yet
    run_sql(url, "insert into event select * from kept where seq not in (select seq from event)")
    store.check()
    fill(store, 5)


def test_nothing_is_appended_after_newer_events_of_another_replica_were_removed(
    url: str, stores: list[Postgres]
) -> None:
    store, other = stores
    fill(store, 1, 2)
    fill(other, 3, 4)
    run_sql(url, "delete from event where seq > 2")
    with pytest.raises(StoreError, match=NOT_KNOWN.format(4)):
        store.check()
    with pytest.raises(StoreError, match=NOT_KNOWN.format(4)):
        store.append(build(5), 2)
