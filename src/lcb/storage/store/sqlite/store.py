"""The store in one SQLite file, for one server at a time.

WAL mode with synchronous=FULL: a commit that has returned is on disk.  One connection writes and one reads; long reads
(export, verification, learning) open a connection of their own and see the log as of when they began.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lcb.errors import StoreError, StoreUnavailable
from lcb.progress import Progress, silent
from lcb.storage.store import base
from lcb.storage.store.base import Appended, Head, Key, NewRow, Row, Seal, Snapshot, as_row
from lcb.storage.store.chain import Salts, digest_erased, seal_rows
from lcb.storage.store.schema import SchemaWatch
from lcb.storage.store.snapshots import CheckedSnapshots, add_checksums
from lcb.storage.store.sqlite import bodies as sqlite_bodies
from lcb.storage.store.sqlite.backup import copy_database
from lcb.storage.store.sqlite.checks import FileChecks
from lcb.storage.store.sqlite.errors import ErrorTranslator, find_no_text, is_no_text
from lcb.storage.store.sqlite.file import (
    FolderWatch,
    OpenFiles,
    ServerLock,
    check_place,
    count_unfinished,
    create_file,
    make_private,
)
from lcb.storage.store.sqlite.known_log import KnownLog
from lcb.storage.store.sqlite.migrating import migrate
from lcb.storage.store.sqlite.retention import SQLiteRetention
from lcb.storage.store.sqlite.scrub import WalScrubber

_KEEP = (
    "insert into snapshot(name, seq, body, checksum) values(?, ?, ?, ?) on conflict (name) do update "
    "set seq = excluded.seq, body = excluded.body, checksum = excluded.checksum where snapshot.seq < excluded.seq"
)
_HEAD = "select seq, link from event order by seq desc limit 1"
_REWRITE = (
    "update event set id = ?, kind = ?, user = null, model = null, body = ?, common = null, salt = null, digest = ? "
    "where seq = ?"
)
_AFTER = f"select {sqlite_bodies.COLUMNS} from event where seq > ?"
_OF_USER = f"select {sqlite_bodies.COLUMNS} from event where user = ? and seq > ? and seq <= ? order by seq"
_BUSY_SECONDS = 0.2
_BLOCK = 2000


class SQLite(FileChecks, base.SharedReads, CheckedSnapshots, SQLiteRetention):
    """A store in a file; with `serve` it holds the lock of the serving process until `close`."""

    inline = True
    placeholder = "?"
    columns, sealed, body = sqlite_bodies.COLUMNS, sqlite_bodies.SEALED, sqlite_bodies.BODY

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, serve: bool = False) -> None:
        self.path = Path(path).resolve()  # so that a link to the file is the same store
        self.url = str(path)
        check_place(self.path, create=create, serve=serve)
        self._errors = ErrorTranslator(self.path)
        self._lock = ServerLock(self.path) if serve else None
        self._reading = threading.Lock()
        self._files: OpenFiles | None = None
        self._folder = FolderWatch(self.path.parent)
        self._known: KnownLog | None = None
        self._gone = False  # the last check found a file removed or replaced, or another server
        self._scrubber = WalScrubber(self.path, due=serve)
        self._salts = Salts()
        self._head = Head(-1, None)  # after the last append
        self.damaged = set()
        try:
            create_file(self.path)
            self._writer = self._connect()
            self._schema = SchemaWatch(self._writer, self.path)
            migrate(self._writer, self.path)
            make_private(self.path)  # not before it is known to be a store
            self.discarded = count_unfinished(self._writer, self.path) if serve else 0
            self._reader = self._connect()
            self.head()  # opens the write-ahead log
            self._files = OpenFiles(self.path)
            self._known = KnownLog(self.path, self._connect) if serve else None
        except sqlite3.Error as error:
            self._release()
            raise self._errors.translate(error) from None
        except StoreError:
            self._release()
            raise

    def _connect(self) -> sqlite3.Connection:
        """Open the file.

        Later connections open only the file of the first: a new file would make SQLite delete the write-ahead log.
        """
        self._check_files()
        place = f"{self.path.absolute().as_uri()}?mode={'rwc' if self._files is None else 'rw'}"
        connection = sqlite3.connect(
            place, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
        )
        connection.execute("pragma synchronous = full")
        connection.execute("pragma cache_size = -128000")
        connection.execute("pragma temp_store = memory")  # also for what a statement of many rows changes
        return connection

    @contextmanager
    def _transaction(self, *, check_schema: bool = True, begin: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction; one statement alone needs no `begin`, and is committed by itself."""
        self._check_gone()
        try:
            if begin:
                self._writer.execute("begin immediate")
            try:
                yield self._writer
                if check_schema:
                    self._schema.check()
                if begin:
                    self._writer.execute("commit")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("rollback")
                raise
        except sqlite3.IntegrityError:
            self._schema.check()
            raise
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        self._check_after_write()

    def check(self, *, writing: bool = False) -> None:
        """Check the files and the schema; empty the write-ahead log of erased rows if a long read has prevented that.

        With `writing`, also commit a row of 64 KiB that is deleted again, and so overwritten: this changes nothing and
        needs as much room as a large decision.
        """
        self._check_files()
        self._check_known()
        try:
            self._schema.check()
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        if writing:
            with self._transaction() as connection:
                connection.execute("insert into snapshot values('room', 0, zeroblob(65536), x'')")
                connection.execute("delete from snapshot where name = 'room'")
        self._check_after_write()

    def _check_after_write(self) -> None:
        if self._gone or not self._folder.is_unchanged():
            self._check_files()
            self._folder.note_checked()
        self._check_known()
        if self._scrubber.due:
            self._scrubber.scrub(self._writer, wait=False)

    def _check_known(self) -> None:
        """Raise StoreUnavailable if the file was overwritten."""
        if self._known is not None:
            try:
                self._known.look()
            except sqlite3.Error as error:
                raise self._errors.translate(error) from None

    def _check_files(self) -> None:
        """Raise StoreUnavailable if the file or its write-ahead log was removed or replaced since it was opened.

        Also if the file of the lock was, and another process has the lock now.
        """
        self._gone = True
        if self._lock is not None:
            self._lock.keep()
        if self._files is not None and not self._files.are_in_place():
            raise StoreUnavailable(
                f"{self.path} or its write-ahead log was removed or replaced while it was in use, and nothing can be "
                f"stored; put the same files back, or stop the service, delete {self.path.name}-wal and -shm, "
                "restore a backup and start again",
                replaced=True,
            )
        self._gone = False

    def _check_gone(self) -> None:
        """Before a write: write nothing into a file that was found to be gone, overwritten or of another schema."""
        if self._gone or self._schema.wrong or (self._known is not None and self._known.wrong):
            self.check()

    def _read(self, statement: str, values: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        try:
            with self._reading:
                return self._reader.execute(statement, values).fetchall()
        except UnicodeEncodeError:  # a lone surrogate: no stored name has one
            return []
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None

    # The log

    def chain_head(self) -> Head:
        found = self._read(_HEAD)
        return Head(*found[0]) if found else Head(0, None)

    def count_events(self, upto: int, after: int = 0) -> int:
        """Count all, because that reads the index of ids alone, and subtract those outside the range."""
        outside = "select count(*) from event where seq"
        statement = f"select (select count(*) from event) - ({outside} <= ?) - ({outside} > ?)"
        return int(self._read(statement, (after, upto))[0][0])

    def append(
        self, rows: Sequence[NewRow], seen: int, snapshots: Sequence[Snapshot] = (), first: Set[str] = frozenset()
    ) -> Appended:
        try:
            if rows and seen == self._head.seq and not snapshots and not self.damaged:
                return self._append_at(rows)
            return self._append(rows, seen, snapshots, first, frozenset())
        except sqlite3.IntegrityError:
            single, doubled = base.first_of_each_id(rows)
            taken = frozenset(row.id for row in single if self.event(row.id) is not None)
            fresh = [row for row in single if row.id not in taken]
            try:
                return self._append(fresh, seen, snapshots, first, taken | doubled)
            except sqlite3.IntegrityError as error:
                raise self._errors.translate(error) from None

    def _append_at(self, rows: Sequence[NewRow]) -> Appended:
        """Append by few statements, at best one, which is one commit; raises IntegrityError if seq or id exists.

        Few, because every call releases the GIL and then waits for it behind the thread of the requests.
        """
        common = sqlite_bodies.find_common([row.body for row in rows])
        before, self._head = self._head, Head(-1, None)  # if the insert fails, the next append reads the head
        several = bool(common) or len(rows) > sqlite_bodies.MOST_AT_ONCE
        with self._transaction(check_schema=False, begin=several) as connection:
            placed, head = self._insert(connection, rows, before, common)
        self._head = head
        return Appended(placed, frozenset())

    def _append(
        self, rows: Sequence[NewRow], seen: int, snapshots: Sequence[Snapshot], first: Set[str], refused: frozenset[str]
    ) -> Appended:
        with self._transaction() as connection:
            head, others = self._read_others(connection, seen)
            rows, snapshots, late = base.drop_outdated(others, rows, snapshots, first)
            placed, head = self._insert(connection, rows, head, sqlite_bodies.find_common([row.body for row in rows]))
            damaged = [(name,) for name in self.damaged]
            connection.executemany("delete from snapshot where name = ?", damaged)
            connection.executemany(_KEEP, add_checksums(snapshots))
        self._head = head
        self.damaged.difference_update(name for (name,) in damaged)
        return Appended(others + placed, refused | late)

    def _insert(
        self, connection: sqlite3.Connection, rows: Sequence[NewRow], head: Head, common: Sequence[sqlite_bodies.Common]
    ) -> tuple[list[Row], Head]:
        """Insert rows after `head`; returns them, and the new head."""
        placed = [as_row((seq, *row)) for seq, row in enumerate(rows, start=head.seq + 1)]
        seals = seal_rows(rows, head, self._salts)
        before = connection.total_changes
        n_inserted, n_common = sqlite_bodies.insert_rows(connection, placed, seals, common)
        self._schema.check_insert(len(rows), n_inserted, connection.total_changes - before - n_common)
        return placed, Head(placed[-1].seq, seals[-1].link) if placed else head

    @staticmethod
    def _read_others(connection: sqlite3.Connection, seen: int) -> tuple[Head, list[Row]]:
        """Return the last event, and the rows that others have written since `seen`."""
        head = Head(*(connection.execute(_HEAD).fetchone() or (0, None)))
        if head.seq == seen:
            return head, []
        return head, [Row(*row) for row in connection.execute(_AFTER, (seen,))]

    def erase(self, user: str, rewrite: base.Rewriting, seen: int, archived: Sequence[str] = ()) -> Appended:
        with self._transaction() as connection:
            head, others = self._read_others(connection, seen)
            found = connection.execute(
                f"select {self.sealed} from event where user = ? order by seq", (user,)
            ).fetchall()
            theirs = [Row(*one[:6]) for one in found]
            digests = {row.seq: digest_erased(row, Seal(*one[6:])) for row, one in zip(theirs, found, strict=True)}
            rewrites, event = rewrite(theirs)
            connection.executemany(
                _REWRITE, [(one.id, one.kind, one.body, one.digest or digests[one.seq], one.seq) for one in rewrites]
            )
            connection.execute("delete from snapshot where name = ?", (base.USER_SNAPSHOTS + user,))
            connection.executemany(*self._forget(archived))
            placed, head = self._insert(connection, [event], head, ())
            connection.executemany(sqlite_bodies.DROP_COMMON, [(one.seq,) * 3 for one in rewrites])
        self._head = head
        self._scrubber.scrub(self._writer)
        return Appended(others + placed, frozenset())

    def event(self, id: str) -> Row | None:
        found = self._read(f"select {self.columns} from event where id = ? and seq > 0", (id,))
        return Row(*found[0]) if found else None

    def _blocks(self, columns: str, after: int, last: int) -> Iterator[list[Any]]:
        connection = self._connect()
        statement = f"select {columns} from event where seq > ? and seq <= ? order by seq limit {_BLOCK}"
        try:
            connection.execute("pragma cache_size = -8000")  # each page is read once
            while after < last:
                try:
                    block = connection.execute(statement, (after, last)).fetchall()
                except sqlite3.OperationalError as error:
                    wrong = find_no_text(connection, after, last) if is_no_text(error) else None
                    if wrong is None or wrong.seq is None:
                        raise
                    yield connection.execute(statement, (after, wrong.seq - 1)).fetchall()
                    raise wrong from None
                if not block:
                    return
                yield block
                after = block[-1][0]
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        finally:
            connection.close()

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]:
        found = self._read(_OF_USER, (user, after, base.LAST if upto is None else upto))
        return list(map(as_row, found))

    def stream_of(self, user: str, after: int = 0, upto: int | None = None) -> Iterator[Row]:
        """Read by a connection of its own: reads of others do not wait for this one."""
        connection = self._connect()
        try:
            connection.execute("pragma cache_size = -8000")
            yield from map(as_row, connection.execute(_OF_USER, (user, after, base.LAST if upto is None else upto)))
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        finally:
            connection.close()

    def events_of_each(self, after: Mapping[str, int], upto: int) -> dict[str, list[Row]]:
        return {user: self.events_of(user, seq, upto) for user, seq in after.items()}

    def newest_of(self, user: str) -> int:
        found = self._read("select seq from event where user = ? order by seq desc limit 1", (user,))
        return int(found[0][0]) if found else 0

    # Caches

    def _read_snapshots(self, statement: str, names: list[str]) -> list[Any]:
        return [row for name in names for row in self._read(f"{statement} = ?", (name,))]

    def forget_snapshots(self) -> int:
        with self._transaction() as connection:
            return connection.execute("delete from snapshot").rowcount

    # Keys

    def save_key(self, key: Key) -> None:
        with self._transaction() as connection:
            connection.execute("insert or replace into key values(?, ?, ?, ?, ?)", key)

    # The file

    def size(self) -> int:
        return sum(place.stat().st_size for place in (self.path, Path(f"{self.path}-wal")) if place.exists())

    def backup(self, path: str, progress: Progress = silent) -> None:
        """Copy the whole store as of one moment, also while it serves."""
        source = self._connect()
        try:
            copy_database(source, path, progress)
        finally:
            source.close()

    def lead(self, name: str) -> Callable[[], None] | None:
        """Always succeed: only one process serves the file."""
        return lambda: None

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
