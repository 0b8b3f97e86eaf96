"""The three files of a log on disk."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from lcb.errors import InputError
from lcb.features import FeatureMap
from lcb.storage.tables.arrow import is_list
from lcb.storage.tables.row_errors import name_file_in_errors

STAMP = b"lcb.import"  # in the metadata of events and items written together
FEATURES = b"lcb.features"  # in the metadata of events: JSON, the names of the columns that are features
FEATURE_MAP = b"lcb.feature_map"  # in the metadata of events: JSON, the map from categories to the column x
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


def find_table(path: str | os.PathLike[str], *, named: bool = False) -> Path | None:
    """Return the event table at a path; None if it is a log whose features come from the categories of its items.

    A log is a folder, or a .parquet file that `lcb import` wrote or that has a table of items beside it.  It is a table
    too if its events have a list column x, or, in a file, if feature columns are `named`.
    """
    place = Path(path)
    if not place.is_dir() and (named or place.suffix.lower() not in (".parquet", ".pq")):
        return place
    files = LogFiles.find(place)
    with name_file_in_errors(files.events):
        schema = pq.read_schema(files.events)
    is_log = place.is_dir() or files.items.is_file() or STAMP in (schema.metadata or {})
    has_x = "x" in schema.names and is_list(schema.field("x").type)
    return files.events if has_x or not is_log else None


def read_feature_map(events: Path) -> FeatureMap | None:
    """Return the map that made the column x of an exported log; None if the file has none."""
    if events.suffix.lower() not in (".parquet", ".pq"):
        return None
    with name_file_in_errors(events):
        found = (pq.read_schema(events).metadata or {}).get(FEATURE_MAP)
    return None if found is None else FeatureMap.from_json(json.loads(found))
