"""Copies of a store: an SQLite database while another connection writes to it, or a new one from sealed events.

The source connection holds one read transaction from the first page to the last, so every page is of the same moment.
Without it SQLite starts the copy anew after each commit of another connection.  While the transaction is held, the
write-ahead log of the source cannot be emptied: it grows by what is written during the copy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lcb.errors import StoreError
from lcb.progress import Progress
from lcb.storage.files import create_private
from lcb.storage.store.base import SEALED, Key

_PAGES = 4000  # copied between two reports of progress


class RepeatedEvent(StoreError):
    """Events of which two have the same number or id are no log."""


def copy_database(source: sqlite3.Connection, path: str, progress: Progress) -> None:
    """Copy the whole database into a new file that only its owner may read."""
    if os.path.exists(path):
        raise StoreError(f"{path} already exists; give another path")
    if not (folder := Path(path).parent).is_dir():
        words = "is not a folder" if folder.exists() else "does not exist"
        raise StoreError(f"{folder} {words}, so {path} cannot be written; make the folder, or give another path")
    part = Path(f"{path}.part")
    try:
        part.unlink(missing_ok=True)
        create_private(part)
        target = sqlite3.connect(part)
        try:
            _hold_snapshot(source)
            source.backup(
                target, pages=_PAGES, progress=lambda _, left, total: progress("pages copied", total - left, total)
            )
        finally:
            target.close()
        os.replace(part, path)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} could not be written ({error}); free disk space, or give another path") from None
    finally:
        part.unlink(missing_ok=True)


def _hold_snapshot(source: sqlite3.Connection) -> None:
    source.execute("begin")
    source.execute("select max(seq) from event").fetchone()


def write_store(path: str | os.PathLike[str], events: Iterable[Sequence[Any]], keys: Iterable[Key]) -> None:
    """Write a new store that has these events with their seals, and these keys."""
    from lcb.storage.store.sqlite.store import SQLite  # it imports this module

    if os.path.exists(path):
        raise StoreError(f"{path} already exists; give another path")
    SQLite(path).close()
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("pragma synchronous = off")
            connection.executemany(f"insert into event({SEALED}) values(?, ?, ?, ?, ?, ?, ?, ?, ?)", events)
            connection.executemany("insert into key values(?, ?, ?, ?, ?)", keys)
    except BaseException as error:
        for place in (path, f"{path}-wal", f"{path}-shm", f"{path}-lock"):
            Path(place).unlink(missing_ok=True)
        if isinstance(error, sqlite3.IntegrityError):
            raise RepeatedEvent(f"two events have the same number or id ({error}); run: lcb log verify") from None
        if isinstance(error, (sqlite3.Error, OSError)):
            words = f"{path} could not be written ({error})"
            raise StoreError(f"{words}; free disk space, or give another path") from None
        raise
