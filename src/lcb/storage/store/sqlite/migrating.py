"""Creates the tables of a store in an SQLite file, or brings those of an earlier version up to date."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from lcb.errors import StoreError
from lcb.storage.store.migrate import log_upgrade, missing_migrations
from lcb.storage.store.sqlite.retention import WAL_PAGES

_APPLICATION = 0x6C636231  # "lcb1", in the header of the file
_WAL_BYTES = 64 << 20  # the write-ahead log is cut to this size after a long read has let it grow


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Set how the connection writes, and run the migrations that the file does not have, in one transaction."""
    application = connection.execute("pragma application_id").fetchone()[0]
    version = connection.execute("pragma user_version").fetchone()[0]
    if application != _APPLICATION and connection.execute("select count(*) from sqlite_master").fetchone()[0]:
        raise StoreError(f"{path} is a database of another program; give another path")
    connection.execute("pragma journal_mode = wal")
    connection.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
    connection.execute(f"pragma journal_size_limit = {_WAL_BYTES}")
    connection.execute("pragma secure_delete = on")  # erased rows are overwritten with zeros
    todo = missing_migrations("sqlite", str(path), version)
    if not todo:
        return
    connection.execute("begin immediate")
    try:
        for number, text in todo:
            for statement in filter(str.strip, text.split(";")):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {_APPLICATION}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    log_upgrade(str(path), version, todo)
