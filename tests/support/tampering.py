"""A log in a SQLite file or a PostgreSQL database that somebody changes behind the service's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec
import psycopg

from lcb.progress import silent
from lcb.serve import events
from lcb.serve.audit.checks.order import check_order
from lcb.serve.audit.report import Report
from lcb.serve.log.erasure import build_erasure
from lcb.storage.store.base import SEALED, Head, NewRow, Row, Seal, Store
from lcb.storage.store.chain import Salts, compute_digest, compute_link
from lcb.storage.store.open_store import open_store
from support.inside import fold_log

FAR = 1_000_000  # added to seq while rows are moved: no two rows may have the same


def run_sql(url: str, statement: str, values: Sequence[object] = ()) -> list[Any]:
    """Run a statement on the database of a store; values are marked by question marks."""
    if "://" not in url:
        with closing(sqlite3.connect(url, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()
    with psycopg.connect(url, autocommit=True) as server:
        done = server.execute(statement.replace("?", "%s"), values)
        return done.fetchall() if done.description else []


class Tampered:
    """The log at `url`; every method but `open` writes with SQL."""

    def __init__(self, url: str, rows: Sequence[Row], erased: str) -> None:
        self.url, self.inline = url, "://" not in url
        store = open_store(url)
        for first, last in ((0, 30), (30, 31), (31, 35), (35, len(rows))):
            store.append([NewRow(*row[1:]) for row in rows[first:last]], first)
        world = fold_log(store)
        store.erase(erased, lambda found: build_erasure(world, found, 1.5e9, lambda: "x"), world.seq)
        store.append([], world.seq + 1, [world.snapshot()])
        self.n = store.head()
        self.head = store.chain_head()
        store.close()

    def open(self) -> Store:
        return open_store(self.url)

    def run(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        return run_sql(self.url, statement, values)

    def run_all(self, statement: str, values: Sequence[Sequence[object]]) -> None:
        """In one transaction."""
        if self.inline:
            with closing(sqlite3.connect(self.url)) as connection, connection:
                connection.executemany(statement, values)
            return
        with psycopg.connect(self.url) as server, server.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), values)

    def rows(self) -> list[tuple[Row, Seal]]:
        return [(Row(*one[:6]), Seal(*one[6:])) for one in self.run(f"select {SEALED} from event order by seq")]

    def find(self, kind: str, wanted: Any = lambda body: True) -> tuple[int, Any]:
        for row, _ in self.rows():
            if row.kind == kind and wanted(body := events.decode(kind, row.body)):
                return row.seq, body
        raise AssertionError(f"no such {kind}")

    def set(self, seq: int, **columns: object) -> None:
        for name, value in columns.items():
            self.run(f'update event set "{name}" = ? where seq = ?', (value, seq))

    def set_body(self, seq: int, body: msgspec.Struct) -> None:
        self.set(seq, body=events.encode(body))

    def shift(self, first: int, by: int) -> None:
        """Renumber all events from `first` on."""
        self.run("update event set seq = seq + ? where seq >= ?", (FAR, first))
        self.run("update event set seq = seq - ? where seq >= ?", (FAR - by, FAR))
        self.move_head()

    def move_head(self) -> None:
        if not self.inline:
            last = "(select seq, link from event order by seq desc limit 1) as one"
            self.run(f"update head set seq = one.seq, link = one.link from {last}")

    def insert(self, row: Row, seal: Seal) -> None:
        marks = ", ".join("?" * 9)
        self.run(f"insert into event({SEALED}) values({marks})", (*row, *seal))

    def forge(self, first: int) -> None:
        """Compute all links from `first` on anew, as somebody can who may write to the store."""
        link, salts, changes = None, Salts(), []
        for row, seal in self.rows():
            if row.seq >= first:
                salt = None if seal.salt is None else salts.take()
                digest = seal.digest if salt is None else compute_digest(salt, row)
                assert digest is not None
                seal = Seal(salt, None, compute_link(link, row.seq, digest))
                changes.append((salt, seal.link, row.seq))
            link = seal.link
        self.run_all("update event set salt = ?, link = ? where seq = ?", changes)
        self.move_head()

    def kept_head(self, seq: int) -> Head:
        (row, seal) = self.rows()[seq - 1]
        return Head(row.seq, seal.link)


def check_chain(url: str) -> Report:
    """Assert that the links of a log are unbroken up to its head."""
    store, report = open_store(url), Report()
    try:
        head = store.chain_head()
        check_order(store, head.seq, [head], report, silent)
    finally:
        store.close()
    assert report.differences == [], "the chain is broken"
    assert report.chain_start == 1
    return report
