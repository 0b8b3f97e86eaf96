"""Notices that a file was overwritten or cut while it is served: `cp` into it, or a restore, leaves its name and inode.

SQLite goes on with the pages that it has in memory, and what it writes then is lost.  So a connection that has nothing
in memory looks, twice a second, for events that this process knows the log to have.  The newest are not enough: they
may be in the write-ahead log alone, which nobody has overwritten.  So events of earlier looks are looked for as well.

A cut may leave all of these where they are.  But a file never becomes shorter than it was, unless somebody vacuums it,
which changes the version of the schema.  Its header cannot tell: a checkpoint writes it before it lengthens the file,
or, beside a long read, long before; and whoever opens the file to read it ends the locks that SQLite has on it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from lcb.errors import StoreUnavailable
from lcb.storage.store.base import Head

_EVERY = 0.5  # seconds
_MOST = 32  # known events; fewer of those that are long known
_FIRST = 8  # of those that the log has at the start
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LAST = "select seq, link from event order by seq desc limit 1"
_COMPACTED_AFTER = "select 1 from event where user is null and kind = 'compact' and seq > ? limit 1"


class KnownLog:
    """Events that the log has, with their links; `connect` opens the file anew."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path, self._connect = path, connect
        self.wrong = False  # the last look found the file overwritten
        self._looked = time.monotonic()
        self._shortest = 0  # bytes: the longest that the file was seen, so it has at least as many
        self._schema = -1  # version of the schema when that was seen
        self._was_cut = False
        with closing(connect()) as connection:
            self._measure(connection, os.stat(path).st_size)
            (last,) = connection.execute("select ifnull(max(seq), 0) from event").fetchone()
            wanted = sorted({last * i // _FIRST for i in range(1, _FIRST + 1)})
            self._known = _read(connection, wanted)

    def look(self) -> None:
        """Raise StoreUnavailable if known events are gone, else know the last one too; twice a second."""
        if not self.wrong and time.monotonic() - self._looked < _EVERY:
            return
        self._looked = time.monotonic()
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:  # found by the check of the files
            return
        self.wrong = True
        if not size:  # else opening it would make SQLite delete the write-ahead log
            raise self._build_error("it is empty")
        try:
            self._was_cut = self._was_cut or size < self._shortest
            with closing(self._connect()) as connection:
                self._measure(connection, size)
                self._compare(connection)
                self._check_lengthened(connection)
        except FileNotFoundError:
            return
        except sqlite3.Error as error:
            code = error.sqlite_errorcode
            if code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
                raise self._build_error(error.sqlite_errorname) from None
            if code & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        self.wrong = False

    def _measure(self, connection: sqlite3.Connection, size: int) -> None:
        """Raise StoreUnavailable if the file, which had this size just before, has become shorter; else note its size.

        After a vacuum the next checkpoint cuts the file, to the pages that the database has by then.
        """
        asked = "select schema_version, page_count * page_size from pragma_schema_version, pragma_page_count, "
        schema, whole = connection.execute(f"{asked} pragma_page_size").fetchone()
        if schema != self._schema:
            self._schema, self._was_cut = schema, False
            self._shortest = size = os.stat(self._path).st_size
        if size < self._shortest:
            raise self._build_error(f"it has {size} bytes and had {self._shortest}: it was cut")
        self._shortest = min(size, whole)

    def _check_lengthened(self, connection: sqlite3.Connection) -> None:
        """After a cut, raise StoreUnavailable if the file is as long as before, but with holes in it.

        So it is if another process has written the write-ahead log into it.  This reads the whole file, once.
        """
        if self._was_cut and (found := connection.execute("pragma quick_check(1)").fetchone()[0]) != "ok":
            raise self._build_error(f"it was cut, and is damaged: {found}")
        self._was_cut = False

    def _compare(self, connection: sqlite3.Connection) -> None:
        there = {one.seq: one for one in _read(connection, [one.seq for one in self._known])}
        wrong = [one for one in self._known if there.get(one.seq) != one]
        for one in wrong:  # a compaction removes or replaces events
            if connection.execute(_COMPACTED_AFTER, (one.seq,)).fetchone() is None:
                raise self._build_error(f"event {one.seq} is missing, or is another one")
            self._known.remove(one)
        last = connection.execute(_LAST).fetchone()
        if last is not None and (not self._known or last[0] > self._known[-1].seq):
            self._known.append(Head(*last))
            if len(self._known) > _MOST:
                half = _MOST // 2
                self._known[:half] = self._known[:half:2]

    def _build_error(self, what: str) -> StoreUnavailable:
        name = self._path.name
        return StoreUnavailable(
            f"{self._path} or its write-ahead log was overwritten while it was in use, or is damaged ({what}), and "
            f"nothing can be stored: stop the service, delete {name}-wal and -shm, restore a backup and start again",
            replaced=True,
        )


def _read(connection: sqlite3.Connection, seqs: list[int]) -> list[Head]:
    places = ", ".join("?" * len(seqs))
    rows = connection.execute(f"select seq, link from event where seq in ({places}) order by seq", seqs)
    return [Head(*row) for row in rows]
