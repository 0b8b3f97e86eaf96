"""How a compaction writes to an SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lcb.storage.store.retention import Retention, Write
from lcb.storage.store.sqlite.bodies import DROP_COMMON

WAL_PAGES = 4000  # of the write-ahead log, after which it is written to the file
_PAGES = 1000  # the same while old events are removed


class SQLiteRetention(Retention):
    """Writes by the connection of an SQLite store."""

    whole = ", common = null"
    _writer: sqlite3.Connection
    _transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]

    def _drop_common(self, ranges: Sequence[tuple[int, int]]) -> list[Write]:
        return [(DROP_COMMON, [(first, last, first) for first, last in ranges])]

    def _write(self, *writes: Write) -> None:
        """Commit without waiting for the disk, and empty the write-ahead log early: else a service beside it has to.

        After a loss of power the last of these transactions may be undone, like those of a compaction that was killed;
        a commit of the service waits for the disk, and all that was written before it is there then.
        """
        self._set(synchronous="normal", wal_autocheckpoint=_PAGES)
        try:
            with self._transaction() as connection:
                for statement, values in writes:
                    connection.executemany(statement, values)
        finally:
            self._set(synchronous="full", wal_autocheckpoint=WAL_PAGES)

    def _set(self, **pragmas: str | int) -> None:
        for name, value in pragmas.items():
            self._writer.execute(f"pragma {name} = {value}")
