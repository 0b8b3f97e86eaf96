"""Removes what an erasure leaves in the data files of PostgreSQL, in a thread of its own.

An update leaves the old row behind as a dead one.  VACUUM removes dead rows, but does not overwrite the space they
took; VACUUM FULL writes the table and its indexes anew, and locks the table meanwhile.  So, after an erasure:

    VACUUM event, snapshot          until no dead row is left; a transaction that began earlier delays that
    ANALYZE event, snapshot         the server keeps samples of the columns in pg_statistic
    VACUUM FULL                     of the tables if they are small (REWRITE_BYTES), and of pg_statistic

Larger tables are left to the operator, with a line in the operational log.

The transaction of an erasure writes a row into `unscrubbed`; it is deleted once this is done, or left to the operator.
If the process is ended before, or fails, the next start of a service or a replica that runs finds the row and goes on.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from lcb.errors import StoreError
from lcb.storage.store.postgres.connections import Address, Connection, Error, lock_number, read_one

REWRITE_BYTES = 64 << 20  # tables and indexes; rewriting as much locks them for about a second
NOTE = "insert into unscrubbed values(%s)"
_TABLES = ("event", "snapshot")
_QUIET_SECONDS = 0.5  # erasures that come together are removed together
_PAUSE_SECONDS = 60.0  # between two rewrites
_LOOK_SECONDS = 60.0  # between two looks for erasures that another process has not finished
_MOST_LOOK_SECONDS = 3600.0  # the pause doubles with each failure
_PAUSES = (1, 1, 2, 4, 8, 16, 32, 64)  # seconds before VACUUM is tried again
_VACUUM_SECONDS = 600
_REWRITE_LIMITS = {"statement_timeout": "2s", "lock_timeout": "200ms"}  # requests wait that long at most
_REWRITE_TRIES = 10
_CANCEL_SECONDS = 2.0
_ADVICE = "run in a quiet hour: VACUUM FULL event, snapshot, pg_statistic"
_NOT_OURS = (  # the server skips a vacuum by another role with a warning alone
    "select name from unnest(%s::text[]) as name join pg_class on oid = name::regclass "
    "where not pg_has_role(relowner, 'usage')"
)


class Scrubbing:
    """The part of a store that finishes erasures."""

    _scrubber: Scrubber

    def finish_erasures(self) -> None:
        """Finish what ended processes have not, in the background until the store is closed."""
        self._scrubber.watch()


class Scrubber:
    """Vacuums after erasures; `start` and `watch` return at once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._asked = self._running = self._watching = False
        self._n_failed = 0  # in a row
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._log = logging.getLogger("lcb.storage")

    def start(self) -> None:
        with self._lock:
            self._asked = True
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="lcb-scrub", daemon=True).start()

    def watch(self) -> None:
        """Finish the erasures that other processes began and did not finish, from now on until `close`."""
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="lcb-scrub-watch", daemon=True).start()

    def _watch(self) -> None:
        self.start()
        while not self._closed.wait(min(_LOOK_SECONDS * 2 ** min(self._n_failed, 10), _MOST_LOOK_SECONDS)):
            self.start()

    def close(self) -> None:
        self._closed.set()
        if (connection := self._connection) is not None:
            with suppress(Error):
                connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def _run(self) -> None:
        pause = _QUIET_SECONDS
        while not self._closed.wait(pause):
            with self._lock:
                if not self._asked:
                    self._running = False
                    return
                self._asked = False
            try:
                with self._address.connect() as self._connection:
                    if not self._closed.is_set():
                        self._finish(self._connection)
            except (Error, StoreError) as error:
                if not self._closed.is_set():
                    self._n_failed += 1
                    words = error.diag.message_primary if isinstance(error, Error) else error
                    self._log.warning("erased rows are left in the data files (%s); %s", words, _ADVICE)
            finally:
                self._connection = None
            pause = _PAUSE_SECONDS if self._asked else 0.0

    def _finish(self, connection: Connection) -> None:
        """Remove what the erasures of which there is a row have left, unless another process does."""
        found = [seq for (seq,) in connection.execute("select seq from unscrubbed").fetchall()]
        if not found:
            self._n_failed = 0
            return
        if not read_one(connection, "select pg_try_advisory_lock(%s)", (lock_number("scrub"),))[0]:
            with self._lock:
                self._asked = True  # the other one may have begun before the last erasure, or may be ended
            return
        done = self._scrub(connection)
        self._n_failed = 0 if done else self._n_failed + 1
        if done:
            connection.execute("delete from unscrubbed where seq = any(%s)", (found,))

    def _scrub(self, connection: Connection) -> bool:
        """Vacuum and rewrite; False if rows are left that a later try may remove."""
        if not_ours := [name for (name,) in connection.execute(_NOT_OURS, (list(_TABLES),)).fetchall()]:
            words = "erased rows are left: this role may not vacuum %s, because it does not own it; %s, as the owner"
            self._log.error(words, ", ".join(not_ours), _ADVICE)
            return False
        connection.limit = _VACUUM_SECONDS
        _set_limits(connection, {"statement_timeout": f"{_VACUUM_SECONDS}s", "lock_timeout": f"{_VACUUM_SECONDS}s"})
        if not self._vacuum(connection):
            if not self._closed.is_set():
                self._log.warning("erased rows are left: an older transaction may still read them; %s", _ADVICE)
            return False
        size = f"select {' + '.join(f'''pg_total_relation_size('{table}')''' for table in _TABLES)}"
        n_bytes = int(read_one(connection, size)[0])
        if n_bytes > REWRITE_BYTES:
            self._log.warning(
                "erased rows are left in free space of the data files: %d MB are too much to rewrite while serving; %s",
                n_bytes >> 20,
                _ADVICE,
            )
            return True
        _set_limits(connection, _REWRITE_LIMITS)
        for table in (*_TABLES, "pg_statistic"):
            self._rewrite(connection, table)
        return True

    def _vacuum(self, connection: Connection) -> bool:
        """Vacuum until no dead event is left; False if some stay, or the store is closed."""
        dead = "select coalesce(sum(n_dead_tup), 0) from pg_stat_all_tables where relid = 'event'::regclass"
        for pause in _PAUSES:
            for table in _TABLES:
                connection.execute(f"vacuum (analyze) {table}")
            if int(connection.execute(dead).fetchall()[0][0]) == 0:
                return True
            if self._closed.wait(pause):
                return False
        return False

    def _rewrite(self, connection: Connection, table: str) -> None:
        for left in reversed(range(_REWRITE_TRIES)):
            try:
                connection.execute(f"vacuum full {table}")
                return
            except Error as error:
                if not left or error.sqlstate != "55P03" or self._closed.wait(1.0):  # a lock held by others
                    raise


def _set_limits(connection: Connection, limits: dict[str, str]) -> None:
    for name, value in limits.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
