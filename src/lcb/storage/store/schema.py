"""Holds the schema of a store against what the migrations make: a trigger could change or drop events unnoticed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from lcb.errors import StoreUnavailable
from lcb.storage.store import migrate

_OF_POSTGRES = "('event', 'snapshot', 'key', 'head', 'archived', 'unscrubbed')"
ADDED_ON_POSTGRES = f"""
    select 'trigger ' || tgname || ' was added on ' || relname from pg_trigger join pg_class on pg_class.oid = tgrelid
    where not tgisinternal and pg_table_is_visible(tgrelid) and relname in {_OF_POSTGRES}
    union all
    select 'rule ' || rulename || ' was added on ' || relname from pg_rewrite join pg_class on pg_class.oid = ev_class
    where pg_table_is_visible(ev_class) and relname in {_OF_POSTGRES}
    union all
    select 'row security was enabled on ' || relname from pg_class
    where relrowsecurity and pg_table_is_visible(oid) and relname in {_OF_POSTGRES}
    union all
    select relname || ' was set unlogged' from pg_class
    where relkind = 'r' and relpersistence <> 'p' and pg_table_is_visible(oid) and relname in {_OF_POSTGRES} order by 1
"""  # the migrations make none of these
HAS_TRIGGERS = (  # or had some; or rows that are hidden, or lost in a crash
    "(select relhastriggers or relhasrules or relrowsecurity or relpersistence <> 'p' from pg_class "
    "where oid = 'event'::regclass)"
)
WATCH: tuple[str, tuple[object, ...]] = (f"select {HAS_TRIGGERS}", ())
_READ = "select type, name, tbl_name, sql from sqlite_master"


class SchemaWatch:
    """Notices what another program adds to the schema of an SQLite store while it is open."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        self._version: int | None = None  # of the schema that was last found to be right
        self.wrong = False

    def check(self) -> None:
        """Raise StoreUnavailable if the schema is not as lcb made it; it is read only if its version has changed."""
        version = self._connection.execute("pragma schema_version").fetchone()[0]
        if version == self._version:
            return
        changes = find_changes(self._connection)
        self.wrong = bool(changes)
        if changes:
            self._version = None
            self._fail("; ".join(changes[:5]))
        self._version = version

    def check_insert(self, n: int, n_inserted: int, n_changed: int) -> None:
        """Raise StoreUnavailable if an insert of `n` events did something else: a trigger or a view had a hand in it.

        Counts cost nothing, so every insert is checked; asking for the version of the schema would take as long as an
        insert of its own.
        """
        if n_inserted != n or n_changed != n:
            self.wrong, self._version = True, None
            self.check()
            self._fail(f"{n} events were written, and {n_inserted} were inserted with {n_changed} changes in all")

    def _fail(self, words: str) -> None:
        raise build_changed(str(self._path), words)


def build_changed(place: str, words: str) -> StoreUnavailable:
    """Return the error of a store to which nothing is written, because of what was added to it."""
    return StoreUnavailable(
        f"the schema of {place} is not as lcb made it, and events could be changed or lost: {words}; "
        "undo that, and run: lcb log verify"
    )


def find_changes(connection: sqlite3.Connection) -> list[str]:
    """Return in words what was added to an SQLite store, removed or changed; other programs may add tables.

    >>> with closing(sqlite3.connect(":memory:")) as connection:
    ...     make_schema(connection)
    ...     _ = connection.execute("create trigger t after insert on event begin delete from event; end")
    ...     find_changes(connection)
    ['trigger t was added on event (drop trigger "t")']
    """
    with closing(sqlite3.connect(":memory:")) as fresh:
        make_schema(fresh)
        wanted = _read(fresh)
    found, tables = _read(connection), {table for table, _ in wanted.values()}
    changes = [f"{kind} {name} is missing" for kind, name in wanted.keys() - found.keys()]
    for (kind, name), (table, sql) in found.items():
        if (kind, name) in wanted:
            if sql != wanted[kind, name][1]:
                changes.append(f"{kind} {name} was changed")
        elif kind in ("trigger", "view") or table in tables:
            changes.append(f'{kind} {name} was added on {table} (drop {kind} "{name}")')
    return sorted(changes)


def make_schema(connection: sqlite3.Connection) -> None:
    """Create the tables and indexes of a new store."""
    for _, text in migrate.migrations("sqlite"):
        connection.executescript(text)


def _read(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """Return table and text of everything in a schema by type and name, without SQLite's own tables and indexes.

    Quotes are left out: renaming a table and back adds some.
    """
    return {
        (kind, name): (table, " ".join((sql or "").replace('"', "").split()))
        for kind, name, table, sql in connection.execute(_READ)
        if kind in ("trigger", "view") or not name.startswith("sqlite_")
    }
