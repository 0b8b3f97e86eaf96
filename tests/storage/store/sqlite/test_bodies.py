"""Bytes that events of one commit have in common are stored once, and nobody who reads the log sees it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcb.storage.store.base import NewRow, Rewrite, Row
from lcb.storage.store.chain import compute_digest, compute_link
from lcb.storage.store.migrate import migrations
from lcb.storage.store.retention import BaseRow
from lcb.storage.store.sqlite.bodies import FEWEST, START, find_common
from lcb.storage.store.sqlite.store import SQLite

ARMS = bytes(range(256)) * 5  # every byte, also those that are no text
N = 4 * FEWEST


def build_rows(n: int = N, arms: bytes = ARMS) -> list[NewRow]:
    """Return events that differ in their first and last bytes."""
    return [
        NewRow(f"d{i:04d}", "decision", f"user-{i % 5}", 1, f"{i:010d}".encode() + arms + f"taken {i % 7}".encode())
        for i in range(n)
    ]


@pytest.fixture
def store(tmp_path: Path) -> SQLite:
    return SQLite(tmp_path / "log.db")


def count(path: Path, what: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"select {what}").fetchone()[0])


def erase(store: SQLite, user: str) -> None:
    def rewrite(rows: list[Row]) -> tuple[list[Rewrite], NewRow]:
        left = [Rewrite(row.seq, f"erased/{row.seq}", "erased decision", b"") for row in rows]
        return left, NewRow(f"erase/{user}", "erase", None, None, b"")

    store.erase(user, rewrite, store.head())


def test_every_read_returns_whole_bodies(store: SQLite) -> None:
    rows = build_rows()
    appended = store.append(rows, 0).rows
    wanted = [Row(i, *row) for i, row in enumerate(rows, start=1)]
    assert appended == wanted == list(store.events(0))
    assert [row for row, _ in store.sealed_events(0, N)] == wanted
    assert store.event("d0007") == wanted[7]
    assert store.events_of("user-2") == list(store.stream_of("user-2")) == wanted[2::5]
    assert store.events_of_each({"user-2": 10}, 20)["user-2"] == [row for row in wanted[2::5] if 10 < row.seq <= 20]
    assert store.bytes_of("user-2", N) == sum(len(row.body) for row in wanted[2::5])
    assert store.bytes_of_event("d0007") == len(wanted[7].body)


def test_common_bytes_are_stored_once(store: SQLite) -> None:
    store.append(build_rows(), 0)
    assert count(store.path, "count(*) from common") == 1
    assert count(store.path, "max(length(body)) from event") < START + 10
    store.append(build_rows(FEWEST - 1), N)  # ids are there already
    assert count(store.path, "count(*) from event") == N


def test_few_events_and_other_bytes_are_stored_whole(store: SQLite) -> None:
    few = build_rows(FEWEST - 1)
    others = [row._replace(id=f"o{i}", body=bytes([i]) * 2000) for i, row in enumerate(build_rows(2 * FEWEST))]
    store.append(few, 0)
    store.append(others, len(few))
    assert count(store.path, "count(*) from common") == 0
    assert [row.body for row in store.events(0)] == [row.body for row in few + others]


def test_the_chain_covers_whole_bodies(store: SQLite) -> None:
    store.append(build_rows(), 0)
    link = None
    for row, seal in store.sealed_events(0, N):
        assert seal.salt is not None
        link = compute_link(link, row.seq, compute_digest(seal.salt, row))
        assert link == seal.link


@pytest.mark.parametrize("change", ["update common set body = zeroblob(length(body))", "delete from common"])
def test_a_change_of_common_bytes_changes_every_event(store: SQLite, change: str) -> None:
    store.append(build_rows(), 0)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(change)
    for row, seal in store.sealed_events(0, N):
        assert seal.salt is not None
        before = next(store.sealed_events(row.seq - 2, row.seq - 1))[1].link if row.seq > 1 else None
        assert compute_link(before, row.seq, compute_digest(seal.salt, row)) != seal.link


def test_common_bytes_go_with_the_last_who_has_them(store: SQLite) -> None:
    rows = build_rows()
    store.append(rows, 0)
    for i in range(5):
        assert count(store.path, "count(*) from common") == 1
        left = [row for row in store.events(0) if row.user is not None]
        assert [row.body for row in left] == [
            row.body for row in rows if row.user not in [f"user-{j}" for j in range(i)]
        ]
        erase(store, f"user-{i}")
    assert count(store.path, "count(*) from common") == 0
    store.close()
    assert ARMS[:64] not in store.path.read_bytes()


def test_a_compaction_takes_common_bytes_along(store: SQLite) -> None:
    store.append(build_rows(), 0)
    store.append([row._replace(id=f"later-{row.id}") for row in build_rows()], N)
    last = [store.events_of(f"user-{i}", 0, N)[-1] for i in range(5)]
    store.write_base([BaseRow(row, b"state") for row in last])
    assert [store.events_of(f"user-{i}", 0, N)[-1].body for i in range(5)] == [b"state"] * 5
    while (first := store.next_going(0, N)) is not None:
        assert count(store.path, "count(*) from common") == 2
        store.remove_events(first - 1, min(first + 24, N), ())
    assert count(store.path, "count(*) from common") == 1
    assert [row.body for row in store.events(N)] == [row.body for row in build_rows()]


def test_users_with_one_event_each_leave_no_common_bytes(store: SQLite) -> None:
    rows = [row._replace(user=f"once-{i}") for i, row in enumerate(build_rows())]
    store.append(rows, 0)
    store.write_base([BaseRow(row, b"state") for row in store.events(0)])
    assert count(store.path, "count(*) from common") == 0


def test_an_older_store_is_read_and_continued(tmp_path: Path) -> None:
    path, rows = tmp_path / "log.db", build_rows()
    with closing(sqlite3.connect(path)) as connection, connection:
        for _, text in migrations("sqlite")[:3]:
            connection.executescript(text)
        connection.executescript("pragma user_version = 3; pragma application_id = 1818452529")
        old = [(i, *row, b"salt", b"link") for i, row in enumerate(rows, start=1)]
        columns = "seq, id, kind, user, model, body, salt, link"
        connection.executemany(f"insert into event({columns}) values(?, ?, ?, ?, ?, ?, ?, ?)", old)
    store = SQLite(path)
    store.append([row._replace(id=f"later-{row.id}") for row in rows], N)
    assert [row.body for row in store.events(0)] == [row.body for row in rows] * 2
    assert count(path, "count(*) from event where common is null") == N


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=20)), min_size=1, max_size=120))
def test_what_is_found_is_in_every_body(parts: list[tuple[int, bytes]]) -> None:
    bodies = [f"{i:010d}".encode() + bytes([kind]) * 400 + more for i, (kind, more) in enumerate(parts)]
    found = find_common(bodies)
    for one in found:
        assert len(one.places) >= FEWEST
        assert all(bodies[i].startswith(one.body, START) for i in one.places)
    assert sorted(set(used := [i for one in found for i in one.places])) == sorted(used)
    kinds = [kind for kind, _ in parts]
    assert len(used) == sum(n for n in map(kinds.count, range(3)) if n >= FEWEST)


def test_one_who_has_little_in_common_does_not_spoil_it_for_many() -> None:
    rows = [row.body for row in build_rows()]
    rows[N // 2] = rows[N // 2][: START + 300] + b"other" * 300
    (one,) = find_common(rows)
    assert len(one.places) == N - 1
    assert len(one.body) >= len(ARMS)
