"""The store in a PostgreSQL database, for several replicas of a service.

`append` locks the one row of table `head` and holds the lock until it commits, so the log is one sequence without gaps
in the order of the commits.  Rows of other replicas are read under the same lock.  If no other replica has written
since the last append, a single statement locks, writes and commits.  One connection writes; a pool of connections
reads.  A lost connection is opened again.

If the connection is lost during a commit, the rows may or may not be written.  After the single statement, `append`
looks them up under the lock; otherwise it raises StoreUnavailable.  The caller can append the same rows again: ids are
unique, so rows that were written are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

from lcb.errors import StoreError
from lcb.progress import Progress, silent
from lcb.storage.store.base import (
    COLUMNS,
    LAST,
    SEALED,
    USER_SNAPSHOTS,
    Appended,
    Head,
    Key,
    NewRow,
    Rewriting,
    Row,
    Seal,
    SharedReads,
    Snapshot,
    drop_outdated,
    first_of_each_id,
    storable,
)
from lcb.storage.store.chain import Salts, digest_erased, seal_rows
from lcb.storage.store.postgres.connections import (
    Address,
    Connection,
    ConnectionPool,
    Error,
    is_lost,
    list_columns,
    lock_number,
    read_one,
)
from lcb.storage.store.postgres.known_log import HAS_HEAD, HEAD, KnownLog, list_values
from lcb.storage.store.postgres.migrating import migrate
from lcb.storage.store.postgres.proven_reads import ProvenReads
from lcb.storage.store.postgres.retention import PostgresRetention
from lcb.storage.store.postgres.scrub import NOTE, Scrubber, Scrubbing
from lcb.storage.store.schema import ADDED_ON_POSTGRES, HAS_TRIGGERS, WATCH, build_changed
from lcb.storage.store.snapshots import CheckedSnapshots, add_checksums

_STILL = "lock table event in row exclusive mode"  # no trigger or rule is added between the look for one and the insert
_LOCK = "select seq, link from head for update"
_OTHERS = f"select {COLUMNS} from event where seq > %s order by seq"
_NEW = 'event(seq, id, kind, "user", model, body, salt, link)'
_GIVEN = (
    "unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[]) "
    'with ordinality as given(id, kind, "user", model, body, salt, link, n)'
)
_INSERT = f'insert into {_NEW} select %s::bigint + n, id, kind, "user", model, body, salt, link from {_GIVEN}'
_INSERT_AT = (
    "with before as (update head set seq = seq + %s, link = %b "
    f"where seq = %s and link is not distinct from %b and {HAS_HEAD} and not {HAS_TRIGGERS} "
    "returning seq - %s as seq) "
    f'insert into {_NEW} select before.seq + n, id, kind, "user", model, body, salt, link from before, {_GIVEN}'
)
_OTHERWISE = ("23505", "25006", "0A000")  # an id is there already; a transaction has to say that it writes; a rule
_KEEP = (
    "insert into snapshot(name, seq, body, checksum) "
    "select * from unnest(%b::text[], %b::bigint[], %b::bytea[], %b::bytea[]) on conflict (name) do update "
    "set seq = excluded.seq, body = excluded.body, checksum = excluded.checksum where snapshot.seq < excluded.seq"
)
_REWRITE = (
    'update event set id = given.id, kind = given.kind, "user" = null, model = null, body = given.body, salt = null, '
    "digest = given.digest "
    "from unnest(%b::bigint[], %b::text[], %b::text[], %b::bytea[], %b::bytea[]) as given(seq, id, kind, body, digest) "
    "where event.seq = given.seq"
)
_MOVE = "update head set seq = %s, link = %b"
_BLOCK = 2000
Statement = tuple[str, Sequence[object]]


class Postgres(ProvenReads, SharedReads, CheckedSnapshots, PostgresRetention, Scrubbing):
    """A store in the database at a postgresql:// address; its tables are created if missing."""

    inline = False
    placeholder = "%s"
    discarded = 0  # PostgreSQL recovers its own write-ahead log

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._address = Address(url)
        self.url = self._address.shown
        self._writing = threading.RLock()
        self._writer: Connection | None = None
        self._others_write = False
        self._salts = Salts()
        self._head = Head(-1, None)  # after the last append
        self._known = KnownLog(self.url)
        self.damaged = set()
        self._pool = ConnectionPool(self._address, self._prove)
        self._scrubber = Scrubber(self._address)
        self._closed, self._leading = False, set[Connection]()
        try:
            self._address.check_sessions()
        except Error as error:
            raise self._address.store_error(error) from None
        migrate(self._address, create=create)

    def _connect(self) -> Connection:
        if self._closed:
            raise self._address.closed_error()
        return self._address.connect()

    # Writing

    @contextmanager
    def _transaction(self, *first: Statement) -> Iterator[tuple[Connection, list[list[Any]]]]:
        """Begin a transaction with these statements in one round trip; yields their results.  `_end` commits it."""
        with self._writing:
            try:
                connection, found = self._begin(first)
                try:
                    yield connection, found
                except Error:
                    self._drop_writer(connection)
                    raise
                except BaseException:
                    self._roll_back(connection)
                    raise
            except Error as error:
                raise self._address.store_error(error) from None

    def _begin(self, first: Sequence[Statement]) -> tuple[Connection, list[list[Any]]]:
        for again in (False, True):
            connection = self._get_writer()
            try:
                with connection.pipeline():
                    connection.execute("begin isolation level read committed read write")
                    connection.execute(_STILL)
                    asked = [connection.execute(text, values) for text, values in first]
                return connection, [one.fetchall() for one in asked]
            except Error as error:
                self._drop_writer(connection)
                if again or not is_lost(error):
                    raise
        raise AssertionError

    def _get_writer(self) -> Connection:
        if self._writer is None or self._writer.closed:
            self._writer = self._connect()
        return self._writer

    @staticmethod
    def _end(connection: Connection, *last: Statement) -> None:
        with connection.pipeline():
            for text, values in last:
                connection.execute(text, values)
            connection.execute("commit")

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("rollback")
        except Error:
            self._drop_writer(connection)

    def _drop_writer(self, connection: Connection) -> None:
        """Close a connection, and the server rolls back.

        After an error in a pipeline psycopg takes statements for prepared that the server has skipped.
        """
        connection.close()
        self._writer = None

    def append(
        self, rows: Sequence[NewRow], seen: int, snapshots: Sequence[Snapshot] = (), first: Set[str] = frozenset()
    ) -> Appended:
        alone = rows and seen == self._head.seq and not self._others_write and not snapshots and not self.damaged
        if alone and self._append_at(rows):
            self._known.head = self._head
            return Appended([Row(seen + i, *row) for i, row in enumerate(rows, start=1)], frozenset())
        single, doubled = first_of_each_id(rows)
        ids = [row.id for row in single]
        known = HEAD, list_values(self._known.head)
        of_ids = "select id from event where id = any(%b::text[])", (ids,)
        with self._transaction((_LOCK, ()), (_OTHERS, (seen,)), of_ids, WATCH, known) as (connection, begun):
            _, met, there, ((has_triggers,),), ((*found, has_head, is_known),) = begun
            self._refuse_changes(has_triggers)
            others, head = [Row(*row) for row in met], Head(*found)
            self._refuse_another_log(head, has_head, is_known, seen)
            self._head, self._others_write = head, bool(others)
            left, snapshots, late = drop_outdated(others, single, snapshots, first)
            refused = late.union(id for (id,) in there)
            fresh = [row for row in left if row.id not in refused]
            last, damaged = self._insert(fresh) if fresh else [], list(self.damaged)
            if damaged:
                last.append(("delete from snapshot where name = any(%b::text[])", (damaged,)))
            if snapshots:
                last.append((_KEEP, list_columns(add_checksums({one.name: one for one in snapshots}.values()))))
            self._end(connection, *last)
        self._known.head = self._head
        self.damaged.difference_update(damaged)
        placed = [Row(head.seq + i, *row) for i, row in enumerate(fresh, start=1)]
        return Appended(others + placed, refused | doubled)

    def _append_at(self, rows: Sequence[NewRow]) -> bool:
        """Append in one round trip; False if others wrote, an id exists, or the outcome is unknown."""
        with self._writing:
            n, before = len(rows), self._head
            columns = self._seal(rows)
            try:
                values = (n, self._head.link, before.seq, before.link, n, *columns)
                done = self._get_writer().execute(_INSERT_AT, values)
            except Error as error:
                if error.sqlstate in _OTHERWISE or is_lost(error):
                    return False
                raise self._address.store_error(error) from None
        return done.rowcount == n

    def _insert(self, rows: Sequence[NewRow]) -> list[Statement]:
        """Return the statements that insert rows after the head, which is locked, and move it."""
        seq, columns = self._head.seq, self._seal(rows)
        return [(_INSERT, (seq, *columns)), (_MOVE, self._head)]

    def _seal(self, rows: Sequence[NewRow]) -> list[list[Any]]:
        """Return the columns to insert, and move `_head`; if they are not stored, the next append reads it anew."""
        seals = seal_rows(rows, self._head, self._salts)
        self._head = Head(self._head.seq + len(rows), seals[-1].link)
        return [*list_columns(rows), [one.salt for one in seals], [one.link for one in seals]]

    def erase(self, user: str, rewrite: Rewriting, seen: int, archived: Sequence[str] = ()) -> Appended:
        theirs = f'select {SEALED} from event where "user" = %s order by seq'
        known = HEAD, list_values(self._known.head)
        of_user = theirs, (storable(user),)
        with self._transaction((_LOCK, ()), (_OTHERS, (seen,)), of_user, WATCH, known) as (connection, begun):
            _, met, found, ((has_triggers,),), ((*start, has_head, is_known),) = begun
            self._refuse_changes(has_triggers)
            self._refuse_another_log(head := Head(*start), has_head, is_known, seen)
            self._head, rows = head, [Row(*one[:6]) for one in found]
            digests = {row.seq: digest_erased(row, Seal(*one[6:])) for row, one in zip(rows, found, strict=True)}
            rewrites, event = rewrite(rows)
            forget, ids = self._forget(archived)
            self._end(
                connection,
                (_REWRITE, list_columns([(*one[:4], one.digest or digests[one.seq]) for one in rewrites])),
                ("delete from snapshot where name = %s", (USER_SNAPSHOTS + user,)),
                (NOTE, (head.seq + 1,)),
                *((forget, one) for one in ids),
                *self._insert([event]),
            )
        self._known.head = self._head
        self._scrubber.start()
        return Appended([*(Row(*row) for row in met), Row(head.seq + 1, *event)], frozenset())

    # Reading

    def _read(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        return self._pool.read(statement, values)

    def chain_head(self) -> Head:
        return Head(*self._read("select seq, link from head")[0])

    def _blocks(self, columns: str, after: int, last: int) -> Iterator[list[Any]]:
        statement = f"select {columns} from event where seq > %s and seq <= %s order by seq limit {_BLOCK}"
        while after < last and (block := self._read(statement, (after, last))):
            yield block
            after = block[-1][0]

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]:
        return self.events_of_each({user: after}, LAST if upto is None else upto)[user]

    def events_of_each(self, after: Mapping[str, int], upto: int) -> dict[str, list[Row]]:
        names = {storable(user): user for user in after}
        found = self._read(
            f"select {', '.join(f'event.{name.strip()}' for name in COLUMNS.split(','))} "
            "from unnest(%b::text[], %b::bigint[]) as given(name, after) "
            'join event on "user" = name and seq > after and seq <= %s order by seq',
            (list(names), list(after.values()), upto),
        )
        events: dict[str, list[Row]] = {user: [] for user in after}
        for row in found:
            events[names[row[3]]].append(Row(*row))
        return events

    # Caches

    def _read_snapshots(self, statement: str, names: list[str]) -> list[Any]:
        return self._read(f"{statement} = any(%b::text[])", (names,))

    def forget_snapshots(self) -> int:
        with self._transaction((_LOCK, ()), ("select count(*) from snapshot", ())) as (connection, (_, ((n,),))):
            self._end(connection, ("delete from snapshot", ()))
        return int(n)

    # Keys

    def save_key(self, key: Key) -> None:
        statement = (
            "insert into key values(%s, %s, %s, %s, %s) on conflict (name) do update set scope = excluded.scope, "
            "sha256 = excluded.sha256, created = excluded.created, revoked = excluded.revoked"
        )
        with self._transaction() as (connection, _):
            self._end(connection, (statement, key))

    # The database

    def size(self) -> int:
        tables = "unnest('{event, snapshot, key, head, archived}'::regclass[]) as one"
        return int(self._read(f"select sum(pg_total_relation_size(one))::bigint from {tables}")[0][0])

    def backup(self, path: str, progress: Progress = silent) -> None:
        raise StoreError(
            f"{self.url} is a PostgreSQL database; back it up with its own tool, also while it serves: "
            f"pg_dump --format=custom --file={path} ADDRESS; restore it with pg_restore"
        )

    def lead(self, name: str) -> Callable[[], None] | None:
        """Take the lock `name` if no replica has it; it is held until released, or until the connection is lost."""
        connection = self._connect()
        try:
            (ours,) = read_one(connection, "select pg_try_advisory_lock(%s)", (lock_number(f"lead/{name}"),))
        except Error as error:
            connection.close()
            raise self._address.store_error(error) from None
        if not ours:
            connection.close()
            return None
        self._leading.add(connection)

        def release() -> None:
            self._leading.discard(connection)
            connection.close()

        return release

    def _refuse_another_log(self, head: Head, has_head: bool, is_known: bool, seen: int) -> None:
        """Raise StoreError if the log has not what was applied, or not the event that `head` names."""
        if head.seq < seen:
            raise self._known.build_error(seen)
        self._refuse_unknown(self._known.head, is_known)
        self._refuse_unknown(head, has_head)

    def _refuse_changes(self, has_triggers: bool) -> None:
        if has_triggers and (changes := self.find_changes_of_schema()):
            raise build_changed(self.url, "; ".join(changes[:5]))

    def find_changes_of_schema(self) -> list[str]:
        return [words for (words,) in self._read(ADDED_ON_POSTGRES)]

    def check(self, *, writing: bool = False) -> None:
        """Raise StoreError if the log is no longer the one that was read and written."""
        known = self._known.head
        ((*found, has_head, is_known),) = self._read(HEAD, list_values(known))
        head = Head(*found)
        self._refuse_another_log(head, has_head, is_known, known.seq)
        self._known.head = head

    def close(self) -> None:
        self._closed = True
        self._scrubber.close()
        self._pool.close()
        for connection in (*self._leading, self._writer):
            if connection is not None:
                connection.close()
        self._leading.clear()
