"""The folder of an archive: where it is, its locks; apart from what reads it, which needs pyarrow."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lcb.errors import OutputError

EVENTS, REWARDS = "events", "rewards"


def find_folder(store_url: str, folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of an archive: the given one, or that beside an SQLite file; None for PostgreSQL.

    >>> str(find_folder("lcb.db", None)), find_folder("postgresql://host/name", None)
    ('lcb.db.archive', None)
    """
    if folder is not None:
        return Path(folder)
    return None if "://" in store_url else Path(f"{store_url}.archive")


def make_folder(folder: Path) -> None:
    """Make a folder of mode 700, or give an existing one that mode."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror}); give another --archive") from None


@contextmanager
def lock(folder: Path, name: str, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock of the folder, which must be there; yields False if another process has it and `wait` is not set."""
    descriptor = os.open(folder / f".{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            ours = True
        except BlockingIOError:
            ours = False
        yield ours
    finally:
        os.close(descriptor)


def sync_folders(folder: Path) -> None:
    """Make renames and new files in the archive durable."""
    for place in (folder / EVENTS, folder / REWARDS, folder):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
