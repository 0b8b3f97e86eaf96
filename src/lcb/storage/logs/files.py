"""The three files of a log on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lcb.errors import InputError

STAMP = b"lcb.import"  # in the metadata of events and items written together
FEATURES = b"lcb.features"  # in the metadata of events: JSON, the names of the columns that are features
NAMES = ("events.parquet", "items.parquet", "categories.json")


@dataclass(frozen=True)
class LogFiles:
    """The paths of the three files of a log, whether or not they exist.

    >>> LogFiles.at("clicks.parquet").items.name, LogFiles.at("clicks").items.name
    ('clicks.items.parquet', 'items.parquet')
    """

    events: Path
    items: Path
    categories: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> LogFiles:
        """Return the files of a log; `path` is a folder, its events.parquet, or another .parquet file."""
        place = Path(path)
        if place.suffix.lower() not in (".parquet", ".pq"):
            return cls(*(place / name for name in NAMES))
        if place.name == NAMES[0]:
            return cls(*(place.with_name(name) for name in NAMES))
        names = (f"{place.stem}.items.parquet", f"{place.stem}.categories.json")
        return cls(place, *(place.with_name(name) for name in names))

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> LogFiles:
        """Do the same as `at`, and raise InputError if the events file does not exist."""
        files = cls.at(path)
        if not files.events.is_file():
            if not os.path.exists(path):
                raise InputError(f"{path} does not exist; give an imported log or a folder with {NAMES[0]}")
            if not os.path.isdir(path):
                raise InputError(f"{path} is not a log; import it first: lcb import {path} --out log")
            raise InputError(f"{path} has no {NAMES[0]}; import it first: lcb import {path} --out log")
        return files
