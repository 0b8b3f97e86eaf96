"""Whole files or none: written beside, then renamed into place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from lcb.errors import InputError, OutputError


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `path`; a crash or Ctrl-C leaves the old file, or none, and nothing half-written.

    A link is followed and stays; a pipe or a device is written into.
    """
    try:
        if _is_stream(path):
            Path(path).write_bytes(data)
        else:
            _replace(_end_of_links(path), data)
    except OSError as error:
        raise OutputError(
            f"{path} could not be written ({error.strerror or error}); check the folder and its permissions"
        ) from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(
            f"{path} could not be read ({error.strerror or error}); give the path of a JSON file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); give a file as lcb writes it") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a place that cannot be written before work is spent on what should go there."""
    if os.path.isdir(path):
        raise OutputError(f"{path} is a folder; give the path of a file")
    needed = [Path(path)] if os.path.exists(path) else []
    if not _is_stream(path):
        folder = _end_of_links(path).parent
        if not folder.is_dir():
            raise OutputError(f"{folder} is no folder; make it first, or give another place")
        needed.append(folder)
    if not all(os.access(place, os.W_OK) for place in needed):
        raise OutputError(f"{path} cannot be written; check the permissions, or give another place")


@contextmanager
def made(place: Path) -> Iterator[None]:
    """The folder and those above it; those that were missing go again if an error leaves them empty."""
    missing = [path for path in (place, *place.parents) if not path.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


@contextmanager
def made_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    """The same, refused at once if no file can be written there."""
    with ExitStack() as stack:
        try:
            stack.enter_context(made(Path(folder)))
            TemporaryFile(dir=folder).close()
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"{folder} cannot be written ({reason}); give another folder") from None
        yield


def _is_stream(path: str | os.PathLike[str]) -> bool:
    """A pipe or a device: there, and neither a file nor a folder."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _end_of_links(path: str | os.PathLike[str]) -> Path:
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OutputError(f"{path} could not be written (its links go in a circle); give another place")
    return place


def _replace(place: Path, data: bytes) -> None:
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    finally:
        beside.unlink(missing_ok=True)
