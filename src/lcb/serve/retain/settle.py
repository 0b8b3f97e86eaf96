"""The archive of a service: finishes what a killed process has left, and at the start warns of one of another time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from lcb.errors import LCBError, StoreError
from lcb.serve.base_bodies import CompactBody
from lcb.serve.read_event import read_event
from lcb.serve.retain.archive import Archive, has_leftovers, read_archived_base
from lcb.serve.retain.folder import EVENTS
from lcb.serve.retain.ids import warn_of_ids
from lcb.storage.store.base import Store
from lcb.words import format_count

_ERASURES = 1_000_000  # that are read
_EVERY = 10.0  # seconds between two looks at the archive of a running service


def settle_archive(store: Store, folder: Path | None, upto: int) -> None:
    """Finish what a killed process has left; say so if archive or remembered ids are not those of the log."""
    warn_of_ids(store)
    warn = structlog.get_logger("lcb.serve").warning
    if folder is None or not (folder / EVENTS).is_dir():
        if upto:
            words = "users with archived events cannot be erased, and nothing is learned, until archive names it"
            warn("no archive", folder=str(folder), upto=upto, what=words)
        return
    try:
        base = read_archived_base(store, folder)
    except StoreError as error:
        words = "no user can be erased, nothing is learned, and the log is not compacted until that is put right"
        warn("wrong archive", folder=str(folder), upto=upto, why=str(error), what=words)
        return
    settle_leftovers(store, folder, base)
    if base is not None:
        archive = Archive(folder, base.upto)
        with archive.erasing():
            why = _compare_erasures(store, archive)
        if why:
            words = "restore store and archive of the same time, and erase again who was erased since"
            warn("wrong archive", folder=str(folder), upto=upto, why=why, what=words)


def settle_leftovers(store: Store, folder: Path, base: CompactBody | None) -> None:
    """Finish or remove the files that an ended compaction or erasure has left, which may have users erased since."""
    if has_leftovers(folder):
        archive = Archive(folder, 0 if base is None else base.upto)
        with archive.erasing():
            archive.settle(store)


class LeftoversWatch:
    """Settles leftovers while a service runs: of a compaction that is killed after somebody was erased."""

    def __init__(self, store: Store, folder: Path | None) -> None:
        self.store, self.folder = store, folder
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.folder is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self.folder))

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, folder: Path) -> None:
        told = ""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await asyncio.to_thread(self._settle, folder)
                told = ""
            except (LCBError, OSError) as error:
                if str(error) != told:  # once: it is tried again and again
                    told = str(error)
                    structlog.get_logger("lcb.serve").warning("archive not settled", folder=str(folder), why=told)

    def _settle(self, folder: Path) -> None:
        if has_leftovers(folder):
            settle_leftovers(self.store, folder, read_archived_base(self.store, folder))


def _compare_erasures(store: Store, archive: Archive) -> str:
    """Return in words how the erased events of the archive differ from those that the log says; nothing if not."""
    try:
        there = archive.list_erased()
    except StoreError:  # told when somebody is erased, or something learned
        return ""
    rows = store.newest_of_service(("erase",), limit=_ERASURES)
    here = {seq for row in rows for seq, *_ in read_event(row).history if seq <= archive.upto}
    if n := len(there - here):
        return f"{format_count(n, 'event', 'are')} erased in the archive, and not in the log"
    if n := len(here - there):
        return f"{format_count(n, 'event', 'are')} erased in the log, and not in the archive"
    return ""
