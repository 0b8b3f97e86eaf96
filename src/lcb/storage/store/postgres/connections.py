"""Connections to PostgreSQL with a time limit on every wait, whose errors never show the password.

`connect_timeout` limits the first answer, the server's own settings limit statements and locks, and `Connection.limit`
limits every answer after that, also where the server or the network has gone away.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from lcb.errors import MissingExtra, StoreError, StoreUnavailable

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise MissingExtra("psycopg", "postgres") from None

N_READING = 8
CONNECT_SECONDS = 3
LOCK_SECONDS = 3
STATEMENT_SECONDS = 4
IDLE_SECONDS = 5
ANSWER_SECONDS = 6.0  # longer than the server's own limits, so that those end first
_COMMIT = (  # a commit is answered when it is on disk, whatever the database says
    "set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on' "
    "else current_setting('synchronous_commit') end, false)"
)
_NULLS = "set_config('array_nulls', 'on', false)"  # else a null that is sent in an array is the text NULL
_LIMITS = {
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",  # so that a replica that hangs releases the lock
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_TABLES = ("head", "event", "snapshot", "key")
_NO_TABLE = "no table"
_SESSIONS = 5  # opened to find out whether a pooler shares them
Error = psycopg.Error
_FAILURES = (psycopg.OperationalError, psycopg.InterfaceError)
_BUSY = ("55P03", "57014", "40001", "40P01")  # a lock, a timeout, a conflict: nothing was changed
_UNAVAILABLE = ("08", "53", "57P", "58030", "25P03", "25006")
_DAMAGED = ("XX001", "XX002")  # the server itself found a damaged table or index
_REFUSED = (
    "password authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted",
)


class Slow(psycopg.OperationalError):
    """No answer within the limit; the connection is closed."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed if an answer takes longer than `limit` seconds."""

    limit = ANSWER_SECONDS

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **more: Any) -> Any:
        return super().wait(self._limited(gen), *arguments, **more)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        until = time.monotonic() + self.limit
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until:
                    self.pgconn.finish()
                    raise Slow(f"no answer for {self.limit:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            return ended.value


class Address:
    """The address of a database; `shown` is the address without the password."""

    def __init__(self, url: str) -> None:
        try:
            self._parameters = conninfo_to_dict(url)
        except psycopg.Error:
            raise StoreError(
                "the store's address is not understood; give postgresql://user:password@host/name"
            ) from None
        given = {name: str(value) for name, value in self._parameters.items()}
        self._password = given.get("password")
        who = given.get("user", "") + (":***" if self._password else "")
        where = given.get("host", "") + (f":{given['port']}" if "port" in given else "")
        self.shown = f"postgresql://{who}{'@' if who else ''}{where}/{given.get('dbname', '')}"

    def connect(self) -> Connection:
        """Open a connection, or raise a StoreError that says what is wrong."""
        given: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "lcb", **self._parameters}
        given["client_encoding"] = "UTF8"  # whatever the role says
        try:
            connection = Connection.connect(**given, autocommit=True)
            limits = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _LIMITS.items())
            try:
                connection.execute(f"select {limits}, {_COMMIT}, {_NULLS}")
            except psycopg.Error:
                connection.close()
                raise
        except psycopg.Error as error:
            raise self.store_error(error, connected=False) from None
        return connection

    def closed_error(self) -> StoreError:
        return StoreError(f"{self.shown} was closed; open it again")

    def store_error(self, error: psycopg.Error, *, connected: bool = True) -> StoreError:
        """The error to raise for an error of the driver, which came while connecting if not `connected`."""
        state, words = error.sqlstate, self._words(error)
        if isinstance(error, Slow):
            return StoreUnavailable(f"{self.shown} gives no answer ({words}); check the server")
        if state in _BUSY:
            return StoreUnavailable(f"{self.shown} is busy ({words}); it is tried again", busy=True)
        if state is None and any(one in words for one in _REFUSED):
            return StoreError(
                f"{self.shown} refuses the connection ({words}); check the address, or create the database: createdb"
            )
        if state == "53100":
            return StoreUnavailable(f"{self.shown} could not be written ({words}); free space on its disk")
        if (state is None and isinstance(error, _FAILURES)) or (state is not None and state.startswith(_UNAVAILABLE)):
            return StoreUnavailable(f"{self.shown} cannot be reached or written ({words}); check the server")
        if state == "42501":
            return StoreError(f"{self.shown}: {words}; let its user create and write tables")
        damage = words if state in _DAMAGED else self._find_damage() if connected else None
        if damage is not None:
            return self.damaged_error(damage)
        if not connected:
            return StoreUnavailable(f"{self.shown} refused to set the limits of a connection ({words}); try again")
        return StoreUnavailable(
            f"{self.shown} refused a statement ({words}); a check of its tables found no damage; try again"
        )

    def damaged_error(self, damage: str) -> StoreError:
        if damage.startswith(_NO_TABLE):
            return StoreError(f"{self.shown} has {damage}; rename it back if it was renamed, else restore a backup")
        return StoreError(f"{self.shown} is damaged ({damage}); restore it from a backup")

    def _find_damage(self) -> str | None:
        """Return what a check of the tables over a new connection finds wrong; None if nothing, or no answer."""
        try:
            with self.connect() as connection:
                return find_damage(connection)
        except (psycopg.Error, StoreError):
            return None

    def check_sessions(self) -> None:
        """Refuse a pooler that gives a connection another server process for each transaction.

        Such a pooler reports a process id of its own.  If it keeps one process per session, the process of `first` is
        not given to others.
        """
        with self.connect() as first:
            process = _process(first)
            if process == first.info.backend_pid:
                return
            for _ in range(_SESSIONS):
                with self.connect() as second:
                    second.execute("begin")
                    shared = _process(second) == process
                    second.execute("rollback")
                if shared or _process(first) != process:
                    raise StoreError(
                        f"{self.shown} is a connection pooler that shares one session among clients (PgBouncer with "
                        "pool_mode = transaction); lcb needs sessions of its own for locks, time limits and prepared "
                        "statements: give the address of the server itself, or set pool_mode = session"
                    )

    def _words(self, error: psycopg.Error) -> str:
        words = " ".join((error.diag.message_primary or str(error)).split())
        for secret in filter(None, (self._password, quote(self._password or "", safe=""))):
            words = words.replace(secret, "***")
        return words[:300] or type(error).__name__


def find_damage(connection: Connection) -> str | None:
    """Return what is wrong with the tables of a store; None if nothing is, or there are no tables yet."""
    tables = ", ".join(f"to_regclass('{name}') is null" for name in ("lcb_schema", *_TABLES))
    no_schema, *missing = connection.execute(f"select {tables}").fetchall()[0]
    if no_schema:
        return None
    if any(missing):
        return f"{_NO_TABLE} {_TABLES[missing.index(True)]}"
    ends = "select (select seq from head), (select coalesce(max(seq), 0) from event)"
    head, last = connection.execute(ends).fetchall()[0]
    return None if head == last else f"head at {head}, log at {last}"


def _process(connection: Connection) -> int:
    """Return the id of the server process that runs this statement."""
    return int(connection.execute("select pg_backend_pid()").fetchall()[0][0])


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, so that a new one may succeed."""
    state = error.sqlstate
    gone = state is None or state.startswith(("08", "57P01", "57P02", "25P03"))
    return (
        gone and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and not isinstance(error, Slow)
    )


class ConnectionPool:
    """Up to N_READING connections that read, one caller each; a lost connection is opened again.

    `prove` raises StoreError of a new connection if it leads to another log.
    """

    def __init__(self, address: Address, prove: Callable[[Connection], None]) -> None:
        self._address, self._prove = address, prove
        self._idle: list[Connection] = []
        self._room = threading.BoundedSemaphore(N_READING)
        self._closed = False

    def read(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            try:
                return self._read_once(statement, values)
            except Error as error:
                if not is_lost(error):
                    raise
            self.drop_idle()
            return self._read_once(statement, values)
        except Error as error:
            raise self._address.store_error(error) from None

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        self._closed = True
        self.drop_idle()

    def _read_once(self, statement: str, values: Sequence[object]) -> list[Any]:
        with self._reader() as connection:
            return connection.execute(statement, values, binary=True).fetchall()

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        if not self._room.acquire(timeout=ANSWER_SECONDS):
            words = f"{self._address.shown} has all {N_READING} reading connections in use; it is tried again"
            raise StoreUnavailable(words, busy=True)
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                if self._closed:
                    raise self._address.closed_error() from None
                connection, is_new = self._address.connect(), True
            else:
                is_new = False
            try:
                if is_new:
                    self._prove(connection)
                yield connection
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            if self._closed:
                self.drop_idle()
        finally:
            self._room.release()


def list_columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def lock_number(name: str) -> int:
    """The number of an advisory lock."""
    return int.from_bytes(hashlib.blake2b(f"lcb/{name}".encode(), digest_size=8).digest(), "big", signed=True)


def read_one(connection: Connection, statement: str, values: Sequence[object] = ()) -> Any:
    return connection.execute(statement, values).fetchone()
