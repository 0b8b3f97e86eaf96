"""Holds the schema of an SQLite store against the migrations, and its indexes against its table.

An event that an index lacks is hidden from reads by it; the chain is computed from the table and would not notice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from lcb.storage.store.schema import find_changes
from lcb.storage.store.sqlite.bodies import WITHOUT_EVENTS
from lcb.storage.store.sqlite.errors import ErrorTranslator
from lcb.words import format_count

_MOST = 10  # problems that are named
_ENTRIES = (
    "select (select count(*) from event), (select count(*) from event indexed by event_of_user where user is not null) "
    "+ (select count(*) from event indexed by event_of_service where user is null)"
)  # the first is counted by the index of ids
_WALKED = "select seq, kind from event not indexed where user is null"
_INDEXED = "select seq, kind from event indexed by event_of_service where user is null"
_RESTORE = "restore the file from a backup"
_WRONG_COMMON = (
    "select event.seq, event.common, common.seq is null from event left join common on common.seq = event.common "
    "where event.common is not null and (common.seq is null or event.seq not between common.seq and common.last) "
    f"limit {_MOST}"
)
_UNUSED_COMMON = f"select seq from common where {WITHOUT_EVENTS} limit {_MOST}"


class FileChecks:
    """Part of the store."""

    url: str
    _writer: sqlite3.Connection
    _connect: Callable[[], sqlite3.Connection]
    _read: Callable[..., list[Any]]
    _errors: ErrorTranslator

    def find_changes_of_schema(self) -> list[str]:
        return find_changes(self._writer)

    def find_damage(self) -> list[tuple[int | None, str]]:
        """Return what is wrong with the pages of the file, every index, and the bytes that events have in common.

        Reads all of the file.  If the range of common bytes lacks an event, a later erasure would remove them.
        An event without the common bytes that it names is read as if it named none.
        """
        found: list[tuple[int | None, str]] = []
        connection, remedy = self._connect(), f"sqlite3 {self.url} reindex"
        try:
            for (words,) in connection.execute(f"pragma integrity_check({_MOST})"):
                if words != "ok":
                    found.append((None, f"{words}; stop the service, and run: {remedy}"))
            for seq, row, is_missing in connection.execute(_WRONG_COMMON):
                what = "does not exist" if is_missing else "lacks this event"
                found.append((seq, f"it names row {row} of the table common, which {what}; {_RESTORE}"))
            for (row,) in connection.execute(_UNUSED_COMMON):
                found.append((None, f"row {row} of the table common is of no event; {_RESTORE}"))
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        finally:
            connection.close()
        return found

    def find_unindexed(self) -> str:
        """Return in words that an index lacks events; nothing if not.

        The indexes must have equal numbers of events; that of the service, by which keys are read, exactly the events
        that a walk of the table finds.
        """
        ((n, n_others),) = self._read(_ENTRIES)
        if n != n_others:
            return f"{format_count(abs(n - n_others), 'event', 'are')} missing in an index"
        walked, indexed = {*self._read(_WALKED)}, {*self._read(_INDEXED)}
        if walked == indexed:
            return ""
        seq, kind = min(walked - indexed or indexed - walked)
        verb = "lacks" if walked - indexed else "alone has"
        return f"the index of events of the service {verb} event {seq} ({kind})"
