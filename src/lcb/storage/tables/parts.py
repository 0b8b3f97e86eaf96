"""The files of a table that is one file, a folder of Parquet parts, or a pattern."""

from __future__ import annotations

import os
from glob import glob, has_magic
from pathlib import Path

from lcb.errors import InputError

SUFFIXES = (".parquet", ".pq")


def list_parts(path: str | os.PathLike[str]) -> list[str]:
    """Return the files in the order of their names; files whose name begins with _ or . are left out, as Spark does.

    >>> list_parts("clicks.csv")
    ['clicks.csv']
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        found = sorted(str(file) for file in Path(name).rglob("*") if _is_part(file.relative_to(name)))
        if not found:
            raise InputError(f"{name} is a folder without Parquet files; give the path of a table, or of its parts")
        return found
    if not has_magic(name) or os.path.exists(name):
        return [name]
    matching = (file for file in glob(name, recursive=True) if os.path.isfile(file))
    found = sorted(file for file in matching if not os.path.basename(file).startswith("_"))
    if not found:
        raise InputError(f"no file matches {name}; correct the pattern, and quote it for the shell")
    return found


def has_parts(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pattern, or a folder with Parquet files."""
    place = Path(path)
    if place.is_dir():
        return any(_is_part(file.relative_to(place)) for file in place.rglob("*"))
    return has_magic(str(place)) and not place.exists()


def _is_part(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not any(part.startswith(("_", ".")) for part in file.parts)
