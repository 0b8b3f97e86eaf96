"""Whole files or none: written beside, then renamed into place."""

from __future__ import annotations

import os
from pathlib import Path

from lcb.errors import OutputError


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `path`; a crash or Ctrl-C leaves the old file, or none, and nothing half-written."""
    place = Path(path)
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(beside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path} could not be written ({error.strerror or error}); check the folder and its permissions"
        ) from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a place that cannot be written before work is spent on what should go there."""
    place = Path(path)
    if place.is_dir():
        raise OutputError(f"{path} is a folder; give the path of a file")
    if not place.parent.is_dir():
        raise OutputError(f"{place.parent} is no folder; make it first, or give another place")
    if not os.access(place.parent, os.W_OK) or (place.exists() and not os.access(place, os.W_OK)):
        raise OutputError(f"{path} cannot be written; check the permissions, or give another place")
