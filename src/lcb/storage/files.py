"""Writes files atomically: to a temporary file in the same folder, which is then renamed."""

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
    """Write `data` to `path`; after a crash or Ctrl-C the file is the old one or missing, never half-written.

    A symbolic link is followed and kept; a pipe or a device is written into.
    """
    try:
        if _is_stream(path):
            Path(path).write_bytes(data)
        else:
            _replace(_resolve_links(path), data)
    except OSError as error:
        words = f"{path} could not be written ({error.strerror or error})"
        raise OutputError(f"{words}; check the folder and its permissions") from None


def create_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file of mode 600, whatever the umask is; an existing file is refused."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def read_json(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        words = f"{path} could not be read ({error.strerror or error})"
        raise InputError(f"{words}; give the path of a JSON file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); give a file that lcb wrote") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OutputError if `path` cannot be written, before a long computation for it starts."""
    if os.path.isdir(path):
        raise OutputError(f"{path} is a folder; give the path of a file")
    needed = [Path(path)] if os.path.exists(path) else []
    if not _is_stream(path):
        folder = _resolve_links(path).parent
        if not folder.is_dir():
            raise OutputError(f"{folder} is not a folder; create it first, or give another path")
        needed.append(folder)
    if not all(os.access(place, os.W_OK) for place in needed):
        raise OutputError(f"{path} cannot be written; check the permissions, or give another path")


@contextmanager
def create_folders(place: Path) -> Iterator[None]:
    """Create a folder and its missing parents; if the `with` block raises, remove those of them that are empty."""
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
def create_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Do the same as `create_folders`; raise OutputError before the `with` block if no file can be written there."""
    with ExitStack() as stack:
        try:
            stack.enter_context(create_folders(Path(folder)))
            TemporaryFile(dir=folder).close()
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"{folder} cannot be written ({reason}); give another folder") from None
        yield


def is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to the same file, by links of any kind, or would if it existed."""
    exist = os.path.exists(one) and os.path.exists(other)
    return os.path.realpath(one) == os.path.realpath(other) or (exist and os.path.samefile(one, other))


def name_temporary(path: Path) -> Path:
    """Return the path of a temporary file of this process in the same folder."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a pipe or a device: it exists and is neither a file nor a folder."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _resolve_links(path: str | os.PathLike[str]) -> Path:
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OutputError(f"{path} could not be written (its links form a circle); give another path")
    return place


def _replace(place: Path, data: bytes) -> None:
    beside = name_temporary(place)
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    finally:
        beside.unlink(missing_ok=True)
