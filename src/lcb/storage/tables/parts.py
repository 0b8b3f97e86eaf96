"""The files of a table that is one file, a folder of parts, or a pattern."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape, glob, has_magic
from pathlib import Path

from lcb.errors import InputError
from lcb.storage.tables.open_table import find_kind, list_suffixes


def list_parts(path: str | os.PathLike[str]) -> list[str]:
    """Return the files in the order of their names; files whose name begins with _ or . are left out, as Spark does.

    Of a folder, these are the files whose ending is that of a table, which must be of one kind.

    >>> list_parts("clicks.csv")
    ['clicks.csv']
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        found = sorted(_find_parts(name))
        if not found:
            raise InputError(
                f"{name} is a folder without tables; give the path of a table, or of its parts, which end in "
                f"{list_suffixes()}"
            )
        _check_one_kind(name, found)
        return found
    if not has_magic(name) or os.path.exists(name):
        return [name]
    matching = (file for file in glob(name, recursive=True) if os.path.isfile(file))
    found = sorted(file for file in matching if not os.path.basename(file).startswith("_"))
    if not found:
        raise InputError(f"no file matches {name}; correct the pattern, and quote it for the shell")
    return found


def has_parts(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pattern, or a folder with tables."""
    name = os.fspath(path)
    if os.path.isdir(name):
        return any(_find_parts(name))
    return has_magic(name) and not os.path.exists(name)


def _find_parts(folder: str) -> Iterator[str]:
    for file in Path(folder).rglob("*"):
        hidden = any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
        if not hidden and find_kind(file.name) and file.is_file():
            yield str(file)


def _check_one_kind(folder: str, parts: list[str]) -> None:
    """Refuse tables of two kinds: nobody knows whether both are parts."""
    kind = find_kind(parts[0])
    other = next((part for part in parts if find_kind(part) != kind), None)
    if kind is not None and other is not None:
        inside = os.path.join(escape(folder), "**", "*")
        raise InputError(
            f"{folder} has tables of two kinds, such as {parts[0]} and {other}; move one of them away, or give a "
            f"pattern: '{inside}{kind[0]}' reads one kind, '{inside}' all files"
        )
