"""Holds the schema of an SQLite store against the migrations, and its indexes against its table.

An event that an index lacks is hidden from reads by it; the chain is computed from the table and would not notice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from lcb.storage.store.schema import find_changes
from lcb.storage.store.sqlite.errors import ErrorTranslator
from lcb.words import format_count

_MOST = 10  # problems that are named
_ENTRIES = (
    "select (select count(*) from event), (select count(*) from event indexed by event_of_user where user is not null) "
    "+ (select count(*) from event indexed by event_of_service where user is null)"
)  # the first is counted by the index of ids
_WALKED = "select seq, kind from event not indexed where user is null"
_INDEXED = "select seq, kind from event indexed by event_of_service where user is null"


class FileChecks:
    """Part of the store."""

    _writer: sqlite3.Connection
    _connect: Callable[[], sqlite3.Connection]
    _read: Callable[..., list[Any]]
    _errors: ErrorTranslator

    def find_changes_of_schema(self) -> list[str]:
        return find_changes(self._writer)

    def find_damage(self) -> list[str]:
        """Return what SQLite finds wrong with the pages of the file, and with every index; reads all of the file."""
        connection = self._connect()
        try:
            found = [words for (words,) in connection.execute(f"pragma integrity_check({_MOST})")]
        except sqlite3.Error as error:
            raise self._errors.translate(error) from None
        finally:
            connection.close()
        return [] if found == ["ok"] else found

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
