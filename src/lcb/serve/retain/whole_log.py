"""A log with its archived events: read one after another (`WholeLog`), or as a store of its own (`restore`)."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from lcb.errors import StoreUnavailable
from lcb.progress import Progress, silent
from lcb.serve.retain.archive import Archive, build_missing, read_archived_base
from lcb.serve.retain.folder import find_folder, lock
from lcb.storage.store.base import Row, Seal, Store
from lcb.storage.store.open_store import open_store
from lcb.storage.store.sqlite.backup import write_store

_REPORT_EVERY = 1000
_PREFIX, _LOCK = "lcb-whole-", "whole"  # of temporary stores, each with a lock while it is used
_YOUNG = 60.0  # seconds in which the lock of a new one may not be held yet


class WholeLog:
    """A store whose `events` and `sealed_events` begin with the archived ones; all else is the store's."""

    def __init__(self, store: Store, archive: Archive) -> None:
        self._store, self.archive = store, archive
        archive.list_parts()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def events(self, after: int, upto: int | None = None) -> Iterator[Row]:
        return (row for row, _ in self.sealed_events(after, self._store.head() if upto is None else upto))

    def sealed_events(self, after: int, upto: int) -> Iterator[tuple[Row, Seal]]:
        """Yield the events; raise StoreUnavailable if a compaction removes some of them meanwhile."""
        begin, last = self.archive.upto, max(after, 0)
        archived = self.archive.sealed_events(after, min(upto, begin)) if after < begin else iter(())
        for row, seal in chain(archived, self._store.sealed_events(max(after, begin), upto)):
            if row.seq != last + 1:
                raise StoreUnavailable(
                    f"event {last + 1} of {self._store.url} is neither in the log nor in {self.archive.folder}; if the "
                    "log is being compacted, try again when that has ended"
                )
            last = row.seq
            yield row, seal


def open_whole(store: Store, folder: str | os.PathLike[str] | None) -> Store:
    """Return the log with its archive, or the store itself if it was never compacted."""
    place = find_folder(store.url, folder)
    base = read_archived_base(store, place)
    if base is None:
        return store
    if place is None:
        raise build_missing(store.url, base.upto)
    return WholeLog(store, Archive(place, base.upto))


def restore(store: Store, path: str | os.PathLike[str], progress: Progress = silent) -> None:
    """Write the log with its archived events into a new SQLite store, as if it had never been compacted.

    `store` is what `open_whole` has returned.  Snapshots are left out.
    """
    upto = store.head()

    def read() -> Iterator[tuple[Any, ...]]:
        for row, seal in store.sealed_events(0, upto):
            if row.seq % _REPORT_EVERY == 0:
                progress("restoring events", row.seq, upto)
            yield (*row, *seal)

    write_store(path, read(), store.list_keys())


@contextmanager
def open_restored(store: Store, folder: str | os.PathLike[str], progress: Progress = silent) -> Iterator[Store]:
    """Open the log with its archived events as a temporary store, and remove it after."""
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as place, lock(Path(place), _LOCK):
        path = Path(place) / "whole.db"
        restore(open_whole(store, folder), path, progress)
        whole = open_store(str(path), create=False)
        try:
            whole.url = store.url
            yield whole
        finally:
            whole.close()


def _remove_leftovers() -> None:
    """Remove the stores that killed processes of this user have left: they have users who may be erased since."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            found = place.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or time.time() - found.st_mtime < _YOUNG:
                continue
            with lock(place, _LOCK) as ours:
                if ours:
                    shutil.rmtree(place)
        except OSError as error:
            logging.getLogger("lcb.storage").warning("%s, left by a killed process, stays (%s)", place, error)
