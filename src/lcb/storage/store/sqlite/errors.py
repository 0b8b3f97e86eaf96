"""Errors of SQLite in words; a store is called damaged only after a check of the file has failed."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from lcb.errors import StoreError, StoreUnavailable, UnreadableEvent
from lcb.storage.store.base import LAST

_CHECK_SECONDS = 2.0
_CHECK_EVERY = 60.0  # seconds
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TABLES = {"event", "snapshot", "key"}
_NO_UTF8 = "a text of it is not UTF-8"
_TEXTS = (
    """select seq, id, kind, "user", case typeof(body) when 'text' then body end """
    "from event where seq > ? and seq <= ? order by seq"
)


class ErrorTranslator:
    """Turns errors of the driver into StoreErrors; the file is checked at most once a minute."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked = -_CHECK_EVERY
        self._damage: str | None = None
        self._searched = -_CHECK_EVERY
        self._unreadable: int | None = None

    def translate(self, error: sqlite3.Error) -> StoreError:
        path, words = self._path, str(error)
        if is_no_text(error):
            if time.monotonic() - self._searched >= _CHECK_EVERY:
                self._unreadable = _find_unreadable(path)
                self._searched = time.monotonic()
            return UnreadableEvent(self._unreadable, _NO_UTF8)
        if "closed database" in words:
            return StoreError(f"{path} was closed; open it again")
        if "locked" in words or "busy" in words:
            return StoreUnavailable(f"{path} is locked by another process; it is tried again", busy=True)
        if "full" in words or "disk I/O" in words:
            return StoreUnavailable(
                f"{path} could not be read or written ({words}); check its disk, and free space on it"
            )
        if "unable to open" in words or "readonly" in words:
            return StoreUnavailable(
                f"{path} cannot be opened or written ({words}); check the folder and its permissions"
            )
        if time.monotonic() - self._checked >= _CHECK_EVERY:
            self._damage = find_damage(path)
            self._checked = time.monotonic()
        if self._damage is not None:
            return StoreError(f"{path} is damaged or not a store of lcb ({self._damage}); restore it from a backup")
        return StoreUnavailable(
            f"{path} could not be used ({words}), but a quick check found no damage; restart the service, "
            "and run: lcb log verify"
        )


def is_no_text(error: sqlite3.Error) -> bool:
    """Whether a text was read that is not UTF-8: SQLite takes any bytes for one."""
    return "decode to UTF-8" in str(error)


def find_no_text(connection: sqlite3.Connection, after: int, last: int) -> UnreadableEvent | None:
    """Return the error of the first event of a range with a text that is not UTF-8; None if there is none."""
    before, connection.text_factory = connection.text_factory, bytes
    try:
        for seq, *texts in connection.execute(_TEXTS, (after, last)):
            try:
                b"".join(one for one in texts if one is not None).decode()
            except UnicodeDecodeError:
                return UnreadableEvent(seq, _NO_UTF8)
    finally:
        connection.text_factory = before
    return None


def _find_unreadable(path: Path) -> int | None:
    """Return the seq of the first event with a text that is not UTF-8; None if none is found within two seconds."""
    until = time.monotonic() + _CHECK_SECONDS
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_CHECK_SECONDS)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            found = find_no_text(connection, -LAST, LAST)
        except sqlite3.Error:
            return None
    return None if found is None else found.seq


def find_damage(path: Path) -> str | None:
    """Return what a check of the file finds wrong; None if nothing, or not within two seconds."""
    until = time.monotonic() + _CHECK_SECONDS
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_CHECK_SECONDS)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
            if not tables >= _TABLES:
                return f"no table {min(_TABLES - tables)}"
            (found,) = connection.execute("pragma quick_check(1)").fetchone()
            return None if found == "ok" else str(found)
        finally:
            connection.close()
    except sqlite3.Error as error:
        return str(error) if error.sqlite_errorcode & 0xFF in _DAMAGED else None
