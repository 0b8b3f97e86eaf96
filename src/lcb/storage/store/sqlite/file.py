"""The files of an SQLite store: who may read them, who serves them, and whether they are still in their place."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
import stat
import struct
import time
from pathlib import Path

from lcb.errors import StoreError, StoreUnavailable
from lcb.storage.files import create_private

_WAL_HEADER, _FRAME_HEADER = 32, 24  # bytes
_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510  # bytes that SQLite locks for readers
_TICK = 1_000_000_000  # nanoseconds, more than any file system's clock takes
_BESIDE = ("", "-wal", "-shm", ".lock")
_MOUNTS = Path("/proc/self/mountinfo")  # what this process sees mounted, on Linux


def check_place(path: Path, *, create: bool, serve: bool) -> None:
    """Refuse a path where no store can be opened.

    Lock and write-ahead log go by name, so two servers could damage a file that has two: one with hard links is not
    served, and one that is mounted by itself is not opened at all.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a folder; give the path of a file")
    if not path.exists() and not create:
        raise StoreError(f"{path} does not exist; give the store of a service, or start one there: lcb serve")
    if path.exists() and not path.stat().st_size:
        _refuse_empty(path, create=create)
    if not path.parent.is_dir():
        raise StoreError(f"{path.parent} is not a folder; create it first, or give another path")
    if _MOUNTS.exists() and os.fsencode(path) in list_mount_points(_MOUNTS.read_bytes()):
        raise StoreError(
            f"{path} is mounted by itself, and SQLite keeps the write-ahead log beside the file: who opens the file "
            "under its other name would not see it, and both would damage the store; mount the folder of the store "
            "instead (docker run -v FOLDER:FOLDER)"
        )
    if path.exists() and (n := path.stat().st_nlink) > 1:
        if serve:
            raise StoreError(
                f"{path} has {n} names (hard links); it can be served under one only: remove the others, "
                "or copy the file with lcb log backup"
            )
        if _is_open_elsewhere(path) and not Path(f"{path}-wal").exists():
            raise StoreError(
                f"{path} has {n} names (hard links), and is in use under another one, beside which its write-ahead log "
                "is: give that name"
            )


def _refuse_empty(path: Path, *, create: bool) -> None:
    """Refuse an empty file where a log is wanted; opening it would also make SQLite delete the log beside it."""
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        raise StoreError(
            f"{path} is empty, but its write-ahead log {wal.name} is not: the file was overwritten or cut; move both "
            "away and restore a backup"
        )
    if not create:
        raise StoreError(f"{path} is empty; give the store of a service, or start one there: lcb serve")


def _is_open_elsewhere(path: Path) -> bool:
    """Whether another process has the database open: SQLite then holds a lock of the file itself, whatever its name."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
    descriptor = os.open(path, os.O_RDWR)
    try:
        found = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    finally:
        os.close(descriptor)
    return bool(found[0] != fcntl.F_UNLCK)


def list_mount_points(mounts: bytes) -> set[bytes]:
    r"""Return the places where something is mounted, of the text of /proc/self/mountinfo.

    >>> list_mount_points(rb"23 1 8:1 /a/lcb.db /b/my\040lcb.db rw - ext4 /dev/sda rw")
    {b'/b/my lcb.db'}
    """
    places = (line.split(b" ")[4] for line in mounts.split(b"\n") if line.count(b" ") > 4)
    return {re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), place) for place in places}


def create_file(path: Path) -> None:
    """Create the file if it is missing, for its owner alone.

    SQLite gives the write-ahead log and its index the mode of the database.
    """
    try:
        create_private(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{path} could not be created ({error.strerror}); check the folder's permissions") from None


def make_private(path: Path) -> None:
    """Let only the owner read a store and the files beside it."""
    log = logging.getLogger("lcb.storage")
    for place in (f"{path}{ending}" for ending in _BESIDE):
        try:
            mode = stat.S_IMODE(os.stat(place).st_mode)
            if mode & 0o077:
                os.chmod(place, mode & 0o700)
                log.warning("%s was readable by others (mode %o); now only its owner may read it", place, mode)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s is readable by others (%s); as its owner run: chmod 600 %s", place, error.strerror, place)


def count_unfinished(connection: sqlite3.Connection, path: Path) -> int:
    """Count the bytes at the end of the write-ahead log that belong to no commit, left by a crash or a power loss."""
    wal = Path(f"{path}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    _, frames, _ = connection.execute("pragma wal_checkpoint(passive)").fetchone()
    page = connection.execute("pragma page_size").fetchone()[0]
    end = _WAL_HEADER + max(frames, 0) * (page + _FRAME_HEADER)
    if size <= end:
        return 0
    with wal.open("rb") as file:
        salt = file.read(_WAL_HEADER)[16:24]
        file.seek(end)
        frame = file.read(_FRAME_HEADER)
    return size - end if len(frame) < _FRAME_HEADER or frame[8:16] == salt else 0  # else of an older log


class OpenFiles:
    """The database file and its write-ahead log as they were opened.

    SQLite goes on writing into a file that has been removed or replaced, and what it writes there is lost.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (str(path), f"{path}-wal")
        self._opened = self._find()

    def are_in_place(self) -> bool:
        return self._find() == self._opened

    def _find(self) -> list[tuple[int, int]]:
        try:
            return [(found.st_dev, found.st_ino) for found in map(os.stat, self._paths)]
        except OSError:
            return []


class FolderWatch:
    """Tells by one system call that no file of a folder was removed or replaced since the files were last checked.

    Each call releases the interpreter lock and then waits for it, so one after every commit is better than four.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._found: tuple[int, int, int] | None = None  # at the last look
        self._checked: tuple[int, int, int] | None = None  # before the last check that found all files

    def is_unchanged(self) -> bool:
        try:
            found = os.stat(self._folder)
        except OSError:
            self._found = None
            return False
        self._found = (found.st_dev, found.st_ino, found.st_mtime_ns)
        return self._found == self._checked

    def note_checked(self) -> None:
        """After a check that found all files, which began with `is_unchanged`.

        The clock of the file system ticks every few milliseconds: after a change, the next one may have the same time.
        """
        settled = self._found is not None and time.time_ns() - self._found[2] > _TICK
        self._checked = self._found if settled else None


class ServerLock:
    """The lock of the serving process; the operating system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, f"{path}.lock"
        self._descriptor = self._take()

    def keep(self) -> None:
        """Take the lock anew if its file was removed or replaced, because another process could take that one."""
        try:
            if os.path.samestat(os.stat(self._file), os.fstat(self._descriptor)):
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreUnavailable(f"{self._file} cannot be read ({error.strerror}); check the folder") from None
        taken = self._take()
        os.close(self._descriptor)
        self._descriptor = taken
        logging.getLogger("lcb.storage").warning("%s was removed while in use; it is locked anew", self._file)

    def release(self) -> None:
        os.close(self._descriptor)

    def _take(self) -> int:
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            words = f"{self._file} cannot be created or opened ({error.strerror}); check the folder"
            raise StoreUnavailable(words) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreUnavailable(
                f"{self._path} is being served by another process; stop that one, give this one another store, "
                "or use PostgreSQL for several servers"
            ) from None
        return descriptor
