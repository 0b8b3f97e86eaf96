"""What every store of the service must obey: the same tests on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tries
from hypothesis import strategies as st

from lcb.errors import MissingExtra, StoreError, StoreUnavailable
from lcb.storage.store import migrate
from lcb.storage.store.base import Appended, Key, NewRow, Rewrite, Row, Snapshot, Store
from lcb.storage.store.open_store import open_store

NEWEST = {store: migrate.migrations(store)[-1][0] for store in ("sqlite", "postgres")}


class Place:
    """Where a store is: opened as often as need be, and looked into by other means."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Store] = []

    @property
    def inline(self) -> bool:
        return "://" not in self.url

    def open(self, **more: bool) -> Store:
        store = open_store(self.url, **more)
        self.opened.append(store)
        return store

    def run(self, *statements: str) -> list[tuple]:
        """Behind the store's back; what the last statement found."""
        if self.inline:
            connection = sqlite3.connect(self.url, isolation_level=None)
            try:
                return [connection.execute(one).fetchall() for one in statements][-1]
            finally:
                connection.close()
        with psycopg.connect(self.url, autocommit=True) as server:
            done = [server.execute(one) for one in statements][-1]
            return done.fetchall() if done.description else []

    def text(self) -> str:
        """All that is in the tables."""
        columns = 'id, kind, "user", body' if not self.inline else "id, kind, user, body"
        return repr(self.run(f"select {columns} from event")) + repr(self.run("select name, body from snapshot"))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    sqlite = request.param == "sqlite"
    found = Place(str(tmp_path / "lcb.db") if sqlite else request.getfixturevalue("postgres_database"))
    yield found
    for store in found.opened:
        store.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def row(id: str, user: str | None = "u", kind: str = "decision", body: bytes = b"body") -> NewRow:
    return NewRow(id, kind, user, None if user is None else 1, body)


def rewrite(rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
    rewrites = [Rewrite(one.seq, f"erased/{one.seq}", f"erased {one.kind}", b"") for one in rows]
    return rewrites, NewRow(f"erase/{rows[-1].seq}", "erase", None, None, b"nobody")


# Appending


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.head() == 0
    assert list(store.events(0)) == []
    assert store.event("a") is None
    assert store.users() == []
    assert store.events_of("u") == []
    assert store.append([], 0) == ([], frozenset())


def test_rows_come_back_as_they_were(store: Store) -> None:
    given = [
        row("a", "ünï-😀", body=bytes(range(256))),
        row("b", None, "items", b""),
        NewRow("c", "model", None, 2**40, b"1"),
    ]
    appended = store.append(given, 0)
    assert appended.rows == [Row(i, *one) for i, one in enumerate(given, start=1)]
    assert list(store.events(0)) == appended.rows
    assert store.event("b") == appended.rows[1]
    assert all(type(one.body) is bytes for one in store.events(0))
    assert store.head() == 3


def test_rows_whose_id_is_there_are_left_out_and_named(store: Store) -> None:
    store.append([row("a"), row("b")], 0)
    appended = store.append([row("c"), row("b", body=b"other"), row("d")], 2)
    assert [(one.seq, one.id) for one in appended.rows] == [(3, "c"), (4, "d")]
    assert appended.refused == {"b"}
    assert store.event("b").body == b"body"


def test_the_first_of_two_rows_of_an_id_is_written_and_the_id_is_named(store: Store) -> None:
    appended = store.append([row("a", body=b"1"), row("b"), row("a", body=b"2")], 0)
    assert [(one.seq, one.id) for one in appended.rows] == [(1, "a"), (2, "b")]
    assert appended.refused == {"a"}
    assert store.event("a").body == b"1"


def test_rows_that_others_wrote_come_back_first(place: Place) -> None:
    one, other = place.open(), place.open()
    one.append([row("a")], 0)
    other.append([row("b"), row("c")], 1)
    appended = one.append([row("d"), row("b")], 1)
    assert [(one.seq, one.id) for one in appended.rows] == [(2, "b"), (3, "c"), (4, "d")]
    assert appended.refused == {"b"}
    assert one.append([], 1).rows == appended.rows


def test_rows_that_are_to_be_first_are_left_out_where_others_wrote(place: Place) -> None:
    one, other = place.open(), place.open()
    assert one.append([row("a")], 0, (), {"a"}).refused == frozenset()
    appended = other.append([row("b"), row("c")], 0, (), {"b"})
    assert [one.id for one in appended.rows] == ["a", "c"]
    assert appended.refused == {"b"}
    assert other.append([row("b")], 2, (), {"b"}).refused == frozenset()


def test_the_same_append_made_again_changes_nothing(store: Store) -> None:
    given = [row("a"), row("b")]
    first = store.append(given, 0)
    assert store.append(given, 0) == (first.rows, {"a", "b"})
    assert store.head() == 2


@tries(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=10))
def test_any_batches_give_a_log_without_a_gap_and_each_id_once(place: Place, batches: list[list[int]]) -> None:
    store = place.open()
    seen = start = store.head()
    met: list[Row] = []
    for batch in batches:
        appended = store.append([row(f"{start}/{n}") for n in batch], seen)
        met += appended.rows
        seen = met[-1].seq if met else seen
        assert all(store.event(f"{start}/{n}") is not None for n in batch)
    assert [one.seq for one in met] == list(range(start + 1, start + 1 + len({n for batch in batches for n in batch})))
    assert list(store.events(start)) == met
    assert len({one.id for one in met}) == len(met)


def write(store: Store, name: str, n: int, met: list[Row]) -> None:
    seen = 0
    for i in range(n):
        while True:
            try:
                appended = store.append([row(f"{name}/{i}/{j}") for j in range(3)], seen)
            except StoreUnavailable as error:
                if not error.busy:
                    raise
                continue
            break
        met += appended.rows
        seen = met[-1].seq


def test_writers_at_once_see_one_log_in_one_order_without_a_gap(place: Place) -> None:
    met: list[list[Row]] = [[] for _ in range(3)]
    stores = [place.open() for _ in met]
    threads = [
        threading.Thread(target=write, args=(store, f"w{i}", 30, rows))
        for i, (store, rows) in enumerate(zip(stores, met, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = list(stores[0].events(0))
    assert [one.seq for one in log] == list(range(1, 271))
    for rows in met:
        assert rows == log[: len(rows)]


def test_a_log_is_read_without_a_gap_while_it_is_written(place: Place) -> None:
    store, reader = place.open(), place.open()
    thread = threading.Thread(target=write, args=(store, "w", 60, []))
    thread.start()
    seen = 0
    while thread.is_alive() or seen < store.head():
        for one in reader.events(seen):
            assert one.seq == seen + 1
            seen = one.seq
    thread.join()
    assert seen == 180


def test_a_long_log_is_read_in_order_and_up_to_a_place(store: Store) -> None:
    store.append([row(f"{i}") for i in range(4500)], 0)
    assert [one.seq for one in store.events(0)] == list(range(1, 4501))
    assert [one.seq for one in store.events(7, 2500)] == list(range(8, 2501))
    reading = store.events(4400)
    next(reading)
    store.append([row("later")], 4500)
    assert [one.seq for one in reading][-1] == 4500  # as the log was when reading began


# Reading


def test_events_of_a_user_are_those_alone_between_two_places(store: Store) -> None:
    store.append([row("a", "u"), row("b", "v"), row("c", "u"), row("d", None, "items"), row("e", "u")], 0)
    assert [one.id for one in store.events_of("u")] == ["a", "c", "e"]
    assert [one.id for one in store.events_of("u", 1, 3)] == ["c"]
    each = store.events_of_each({"u": 1, "v": 0, "nobody": 0}, 4)
    assert {user: [one.id for one in rows] for user, rows in each.items()} == {"u": ["c"], "v": ["b"], "nobody": []}
    assert store.events_of_each({}, 4) == {}
    assert [store.newest_of(user) for user in ("u", "v", "nobody")] == [5, 2, 0]


def test_events_between_ids_are_those_of_the_ranges_in_the_order_of_the_log(store: Store) -> None:
    ids = ["r/d#2", "r/d", "r/d/0", "r/d/12#3", "r/d#10", "r/d0", "r/d$", "r/dé", "r/D", "r/c", "r/d/"]
    store.append([row(id, "u") for id in ids], 0)
    ranges = [("r/d", "r/d"), ("r/d#", "r/d#:"), ("r/d/", "r/d/:")]
    found = store.events_between(ranges, 11)
    assert [one.id for one in found] == ["r/d#2", "r/d", "r/d/0", "r/d/12#3", "r/d#10", "r/d/"]
    assert [one.seq for one in store.events_between(ranges, 3)] == [1, 2, 3]
    assert store.events_between([("\ud800", "\ud801"), ("a\0", "a\0")], 11) == []


def test_events_of_the_service_are_its_own_kinds_in_order(store: Store) -> None:
    kinds = ["service", "recommender", "erase", "items", "model", "activate", "erased decision"]
    store.append([row(kind, None, kind) for kind in kinds] + [row("d")], 0)
    assert [one.kind for one in store.events_of_service()] == ["service", "recommender", "items", "model", "activate"]
    assert [one.kind for one in store.events_of_service(4)] == ["service", "recommender", "items"]


def test_users_come_page_by_page_in_the_order_of_their_code_points(store: Store) -> None:
    names = ["b", "B", "a", "é", "z", "_", "😀"]
    store.append([row(f"{i}", name) for i, name in enumerate(names * 2)], 0)
    pages, after = [], ""
    while page := store.users(after, 3):
        pages.append(page)
        after = page[-1]
    assert [name for page in pages for name in page] == sorted(names)
    assert [len(page) for page in pages] == [3, 3, 1]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_text_that_no_store_can_hold_is_nobody(store: Store, name: str) -> None:
    store.append([row("a", "u")], 0)
    assert store.event(name) is None
    assert store.events_of(name) == []
    assert store.snapshot(f"user/{name}") is None


# Snapshots


def test_a_snapshot_is_replaced_by_a_later_one(store: Store) -> None:
    store.append([row("a")], 0, [Snapshot("world", 1, b"1"), Snapshot("user/u", 1, b"u")])
    store.append([], 1, [Snapshot("world", 2, b"\0")])
    assert store.snapshot("world") == Snapshot("world", 2, b"\0")
    assert store.snapshots(["world", "user/u", "user/v"]) == {
        "world": Snapshot("world", 2, b"\0"), "user/u": Snapshot("user/u", 1, b"u")
    }  # fmt: skip
    store.forget_snapshots()
    assert store.snapshot("world") is None


def test_an_older_snapshot_does_not_replace_a_later_one(store: Store) -> None:
    store.append([], 0, [Snapshot("world", 2, b"2")])
    store.append([], 0, [Snapshot("world", 1, b"1")])
    assert store.snapshot("world") == Snapshot("world", 2, b"2")


# Erasing


def test_an_erased_person_is_nowhere_in_the_store(place: Place) -> None:
    store = place.open()
    store.append(
        [row("a", "Ann"), row("b", "Ben"), row("r/a", "Ann", "reward")], 0, [Snapshot("user/Ann", 3, b"Ann's")]
    )
    appended = store.erase("Ann", rewrite, 1)
    assert [(one.seq, one.kind) for one in appended.rows[-1:]] == [(4, "erase")]
    assert [one.seq for one in appended.rows] == [2, 3, 4]
    kinds = [(one.id, one.kind, one.user) for one in store.events(0)]
    assert kinds == [
        ("erased/1", "erased decision", None), ("b", "decision", "Ben"), ("erased/3", "erased reward", None),
        ("erase/3", "erase", None),
    ]  # fmt: skip
    assert store.events_of("Ann") == []
    assert store.users() == ["Ben"]
    assert store.event("a") is None
    assert store.snapshot("user/Ann") is None
    assert "Ann" not in place.text()
    if place.inline:
        assert all(b"Ann" not in file.read_bytes() for file in Path(place.url).parent.glob("lcb.db*"))


def test_archived_ids_are_forgotten_with_the_erasure_or_not_at_all(place: Place) -> None:
    def fail(rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
        raise StoreUnavailable("the erasure is abandoned")

    store = place.open()
    store.append([row("a", "Ann"), row("b", "Ann"), row("c", "Ben")], 0)
    store.remove_events(0, 1, ())
    assert store.was_archived("a")
    with pytest.raises(StoreUnavailable):
        store.erase("Ann", fail, 3, ["a"])
    assert store.was_archived("a")
    store.erase("Ann", rewrite, 3, ["a"])
    assert not store.was_archived("a")


def test_an_erased_person_leaves_the_write_ahead_log_when_a_long_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lcb.storage.store.sqlite.store._BUSY_SECONDS", 1.0
    )  # that a write waits for a reader, if it does
    path = tmp_path / "lcb.db"
    store = open_store(str(path))
    store.append([row("a", "Ann")], 0)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select * from event").fetchall()
    store.erase("Ann", rewrite, 1)
    assert b"Ann" in Path(f"{path}-wal").read_bytes()
    began = time.monotonic()
    for i in range(20):  # they do not wait for the reader
        store.append([row(f"b{i}")], 2 + i)
    assert time.monotonic() - began < 10
    reader.close()
    until = time.monotonic() + 30
    while any(b"Ann" in file.read_bytes() for file in tmp_path.glob("lcb.db*")):
        assert time.monotonic() < until
        store.check()
        time.sleep(0.1)
    store.close()


def test_an_erasure_that_fails_changes_nothing(store: Store) -> None:
    store.append([row("a", "Ann")], 0)

    def fail(rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        store.erase("Ann", fail, 1)
    assert [one.id for one in store.events_of("Ann")] == ["a"]
    assert store.append([row("b")], 1).rows[-1].seq == 2


def test_rows_and_snapshots_of_users_made_before_an_erasure_are_left_out(place: Place) -> None:
    one, other = place.open(), place.open()
    one.append([row("a", "Ann"), row("b", "Ben")], 0)
    other.erase("Ann", rewrite, 2)
    late = [row("r/a", "Ann", "reward"), row("c", "Ben"), row("items/1", None, "items")]
    appended = one.append(late, 2, [Snapshot("user/Ann", 2, b"Ann's"), Snapshot("world", 2, b"w")])
    assert [(one.seq, one.kind) for one in appended.rows] == [(3, "erase"), (4, "items")]
    assert appended.refused == {"r/a", "c"}
    assert one.snapshot("user/Ann") is None
    assert one.snapshot("world") is not None
    assert "Ann" not in place.text()
    assert one.append([row("c", "Ben")], 4).refused == frozenset()


# Keys


def test_keys_are_kept_listed_and_changed(store: Store) -> None:
    keys = [Key("b", "writer", bytes(range(32)), 1.5, None), Key("a", "reader", b"\0" * 32, 2.25, None)]
    for key in keys:
        store.save_key(key)
    assert store.list_keys() == sorted(keys)
    store.save_key(keys[0]._replace(revoked=3.0))
    assert store.list_keys()[1].revoked == 3.0


# The whole


def test_a_store_grows(store: Store) -> None:
    before = store.size()
    store.append([row(f"{i}", body=os.urandom(1000)) for i in range(2000)], 0)
    assert store.size() > before + 1_000_000


def test_a_store_opens_again_as_it_was(place: Place) -> None:
    store = place.open()
    store.append([row("a")], 0)
    store.close()
    with pytest.raises(StoreError):
        store.head()
    assert [one.id for one in place.open(create=False).events(0)] == ["a"]


def test_a_store_that_is_not_there_is_refused_where_none_is_to_be_made(place: Place) -> None:
    with pytest.raises(StoreError, match="lcb serve"):
        place.open(create=False)


def test_the_database_of_something_else_is_refused_and_left_alone(place: Place) -> None:
    place.run("create table film(title text)", "insert into film values('Alien')")
    with pytest.raises(StoreError, match=r"another program|other tables"):
        place.open()
    assert place.run("select * from film") == [("Alien",)]


def test_a_damaged_store_is_refused(place: Place) -> None:
    place.open().append([row("a")], 0)
    if place.inline:
        place.opened.pop().close()
        Path(place.url).write_bytes(b"SQLite format 3\0" + os.urandom(8000))
    else:
        place.run("delete from event")
    with pytest.raises(StoreError, match="restore it from a backup"):
        place.open()


def version(place: Place) -> int:
    return place.run("pragma user_version" if place.inline else "select max(version) from lcb_schema")[0][0]


def newest(place: Place) -> int:
    return NEWEST["sqlite" if place.inline else "postgres"]


def test_a_newer_schema_is_refused(place: Place) -> None:
    place.open()
    place.run("pragma user_version = 9" if place.inline else "insert into lcb_schema values(9)")
    with pytest.raises(StoreError, match=r"schema 9.*install"):
        place.open()


def later(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    known = migrate.migrations

    def add(store: str) -> list[tuple[int, str]]:
        there = known(store)
        return [*there, *enumerate(texts, start=there[-1][0] + 1)]

    monkeypatch.setattr(migrate, "migrations", add)


def test_a_migration_adds_to_an_older_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open().append([row("a")], 0)
    later(monkeypatch, "create table more(x integer); insert into more values(1)", "insert into more values(2)")
    assert [one.id for one in place.open().events(0)] == ["a"]
    assert place.run("select x from more order by x") == [(1,), (2,)]
    assert version(place) == newest(place) + 2


def test_a_migration_that_fails_leaves_the_old_schema(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open().append([row("a")], 0)
    with monkeypatch.context() as patch:
        later(patch, "create table more(x integer)", "insert into nowhere values(1)")
        with pytest.raises(StoreError):
            place.open()
    assert version(place) == newest(place)
    assert [one.id for one in place.open().events(0)] == ["a"]


def make_first_schema(place: Place) -> None:
    """A store as the first release left it, with two events and a snapshot."""
    text = migrate.migrations("sqlite" if place.inline else "postgres")[0][1]
    zero = "x'00'" if place.inline else r"'\x00'::bytea"
    if place.inline:
        place.run(*filter(str.strip, text.split(";")), "pragma user_version = 1", "pragma application_id = 1818452529")
    else:
        place.run(text, "insert into lcb_schema values(1)", "update head set seq = 2")
    place.run(f"insert into event values (1, 'a', 'decision', 'u', 1, {zero}), (2, 'b', 'decision', 'v', 1, {zero})")
    place.run(f"insert into snapshot values ('world', 2, {zero})")


def test_a_log_of_the_first_schema_is_read_as_it_is_and_goes_on_with_a_chain(place: Place) -> None:
    make_first_schema(place)
    store = place.open()
    assert [(one.seq, one.id, one.body) for one in store.events(0)] == [(1, "a", b"\0"), (2, "b", b"\0")]
    assert store.chain_head() == (2, None)
    assert store.snapshot("world") is None
    store.append([row("c", "u")], 2)
    store.append([row("d", "w")], 3)
    store.erase("u", rewrite, 4)
    seals = [seal for _, seal in store.sealed_events(0, 5)]
    assert [seal.link is None for seal in seals] == [True, True, False, False, False]
    assert [(seal.salt is None, seal.digest is None) for seal in seals] == [
        (True, True), (True, True), (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert store.chain_head() == (5, seals[-1].link)


def test_a_replica_of_the_first_release_cannot_write_events_without_a_link(postgres_database: str) -> None:
    place = Place(postgres_database)
    make_first_schema(place)
    place.open().close()
    with pytest.raises(psycopg.errors.CheckViolation):
        place.run(r"insert into event values(3, 'c', 'decision', 'u', 1, '\x00')")


KILLED = """
import os, sys
from lcb.storage.store.open_store import open_store
class Killer(list):
    def __iter__(self):
        yield self[-2]
        os._exit(9)
for module in ("lcb.storage.store.sqlite.migrating", "lcb.storage.store.postgres.migrating"):
    __import__(module)
    sys.modules[module].missing_migrations = lambda *a: Killer([(97, "create table more(x integer)"), (98, "select 1")])
open_store(sys.argv[1])
"""


def test_a_migration_killed_midway_leaves_the_old_schema(place: Place) -> None:
    place.open().append([row("a")], 0)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, place.url], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 9, done.stderr
    assert version(place) == newest(place)
    assert [one.id for one in place.open().events(0)] == ["a"]
    place.run("create table more(x integer)")  # it is not there


def test_stores_opened_at_once_on_nothing_make_one(place: Place) -> None:
    if place.inline:
        place.open()  # a file has one server; its tables are made by the first
    errors: list[Exception] = []

    def work() -> None:
        try:
            place.open().head()
        except Exception as error:  # noqa: BLE001 (told below)
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert version(place) == newest(place)


def test_no_address_or_error_tells_the_password(postgres_url: str, postgres_database: str) -> None:
    store = open_store(postgres_database)
    secret = psycopg.conninfo.conninfo_to_dict(postgres_database)["password"]
    assert secret not in store.url
    assert "***" in store.url
    store.close()
    for wrong in (
        postgres_database + "nowhere", postgres_database.replace(":", ":x", 2).replace(":x//", "://"),
        postgres_database + "?colour=" + secret, postgres_database.replace(secret, secret + "%zz"),
    ):  # fmt: skip
        with pytest.raises(StoreError) as caught:
            open_store(wrong)
        assert secret not in str(caught.value)
    with pytest.raises(StoreError, match="ftp"):
        open_store(f"ftp://lcb:{secret}@host/x")


def test_without_psycopg_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in ("lcb.storage.store.postgres.store", "lcb.storage.store.postgres.connections"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[postgres\]'"):
        open_store("postgresql://nobody@nowhere/x")


# PostgreSQL alone: connections come and go


def backends(url: str, act: Callable[[int], None]) -> int:
    """Do something to the server's process of every other connection to this database."""
    with psycopg.connect(url, autocommit=True) as server:
        found = server.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid != pg_backend_pid() "
            "and application_name = 'lcb'"
        ).fetchall()
        for (pid,) in found:
            act(pid)
    return len(found)


def cut(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as server:
        return backends(url, lambda pid: server.execute("select pg_terminate_backend(%s)", (pid,)))


def test_connections_that_were_cut_are_made_again(postgres_database: str) -> None:
    store = open_store(postgres_database)
    store.append([row("a")], 0)
    assert store.head() == 1
    assert cut(postgres_database) >= 2
    assert store.append([row("b")], 1).rows[-1].seq == 2
    assert store.head() == 2
    store.close()


def test_a_server_that_is_not_there_is_told_as_unavailable(postgres_url: str) -> None:
    nowhere = psycopg.conninfo.make_conninfo(postgres_url, port=1)
    url = f"postgresql://lcb:secret@127.0.0.1:{psycopg.conninfo.conninfo_to_dict(nowhere)['port']}/x"
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="check the server"):
        open_store(url)
    assert time.monotonic() - began < 20


def test_a_server_that_does_not_answer_is_given_up(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lcb.storage.store.postgres import connections as _postgres

    store = open_store(postgres_database)
    store.append([row("a")], 0)
    store.head()
    monkeypatch.setattr(_postgres.Connection, "limit", 0.5)
    stopped: list[int] = []

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)

    try:
        backends(postgres_database, stop)
        for work in (lambda: store.append([row("b")], 1), store.head):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="no answer"):
                work()
            assert time.monotonic() - began < 5  # by default the limit is 6 s
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
    assert store.append([row("c")], 1).rows[-1].id == "c"
    store.close()


def test_a_lock_on_the_log_is_waited_for_and_then_told_as_busy(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lcb.storage.store.postgres import connections as _postgres

    monkeypatch.setitem(_postgres._LIMITS, "lock_timeout", "300ms")
    store = open_store(postgres_database)
    with psycopg.connect(postgres_database) as other:
        other.execute("select seq from head for update")
        with pytest.raises(StoreUnavailable) as caught:
            store.append([row("a")], 0)
        assert caught.value.busy
    assert store.append([row("a")], 0).refused == frozenset()
    store.close()


@pytest.mark.parametrize("snapshots", [[], [Snapshot("world", 1, b"")]])
def test_a_commit_whose_answer_was_lost_is_not_doubled(postgres_database: str, snapshots: list[Snapshot]) -> None:
    """The connection is cut while PostgreSQL works on the commit: a deferred trigger sleeps there.

    What one statement does is looked up at once; of several, nobody knows, and that is told.
    """
    store = open_store(postgres_database)
    store.append([row("a")], 0)
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute(
            "create function nap() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(1); return null; end $$"
        )
        server.execute("create constraint trigger nap after update on head deferrable initially deferred "
                       "for each row execute function nap()")  # fmt: skip
    outcome: list[Appended | Exception] = []

    def write() -> None:
        try:
            outcome.append(store.append([row("b")], 1, snapshots))
        except StoreUnavailable as error:
            outcome.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    with psycopg.connect(postgres_database, autocommit=True) as server:
        sleeping = "select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        deadline = time.monotonic() + 30
        while server.execute(sleeping).fetchone() is None:
            assert time.monotonic() < deadline
    _shut(store._writer.fileno())  # type: ignore[attr-defined]
    thread.join()
    if snapshots:
        assert isinstance(outcome[0], StoreUnavailable), "an append was told as done whose answer never came"
    else:
        assert isinstance(outcome[0], Appended)
        assert [(one.seq, one.id) for one in outcome[0].rows] == [(2, "b")]
    deadline = time.monotonic() + 30
    while store.head() < 2:  # the server finishes what it had begun
        assert time.monotonic() < deadline
        time.sleep(0.05)
    again = store.append([row("b"), row("c")], 1)
    assert [(one.seq, one.id) for one in again.rows] == [(2, "b"), (3, "c")]
    assert again.refused == {"b"}
    store.close()


def _shut(descriptor: int) -> None:
    import socket

    connection = socket.socket(fileno=os.dup(descriptor))
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def test_one_leads_until_it_lets_go_or_is_gone(postgres_database: str) -> None:
    one, other = open_store(postgres_database), open_store(postgres_database)
    release = one.lead("training")
    assert release is not None
    assert other.lead("training") is None
    assert other.lead("something else") is not None
    release()
    assert other.lead("training") is not None
    other.close()
    deadline = time.monotonic() + 30
    while (again := one.lead("training")) is None:
        assert time.monotonic() < deadline
    cut(postgres_database)
    third = open_store(postgres_database)
    while third.lead("training") is None:
        assert time.monotonic() < deadline
    again()
    for store in (one, third):
        store.close()


def test_a_copy_of_the_database_is_left_to_its_own_tool(postgres_database: str, tmp_path: Path) -> None:
    store = open_store(postgres_database)
    with pytest.raises(StoreError, match="pg_dump"):
        store.backup(str(tmp_path / "copy"))
    store.close()
