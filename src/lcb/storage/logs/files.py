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
from lcb.storage.tables.parts import has_parts
from lcb.storage.tables.row_errors import name_file_in_errors

STAMP = b"lcb.import"  # in the metadata of events and items written together
FEATURES = b"lcb.features"  # in the metadata of events: JSON, the names of the columns that are features
INPUTS = b"lcb.item_features"  # in the metadata of items: JSON, the names of the numbers in the column features
FEATURE_MAP = b"lcb.feature_map"  # in the metadata of events: JSON, the map from categories to the column x
_PARQUET = (".parquet", ".pq")
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
        if place.suffix.lower() not in _PARQUET:
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
            if not os.listdir(path):
                raise InputError(
                    f"{path} is an empty folder; give an imported log, or a table or a folder of its parts"
                )
            raise InputError(f"{path} has no {NAMES[0]}; import it first: lcb import {path} --out log")
        return files


def find_table(path: str | os.PathLike[str], *, named: bool = False) -> Path | None:
    """Return the event table at a path; None if it is a log whose features come from the categories of its items.

    A folder of tables without events.parquet, and a pattern, are the parts of a table.  A log is a folder with
    events.parquet, or a .parquet file that `lcb import` wrote or that has a table of items beside it.  It is a table
    too if its events have a list column x, or, in a file, if feature columns are `named`.
    """
    place = Path(path)
    if not LogFiles.at(place).events.is_file() and has_parts(place):
        return place
    if not place.is_dir() and (named or place.suffix.lower() not in _PARQUET):
        return place
    files = LogFiles.find(place)
    with name_file_in_errors(files.events):
        schema = pq.read_schema(files.events)
    has_x = "x" in schema.names and is_list(schema.field("x").type)
    return files.events if has_x or not is_log(place) else None


def is_log(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a log: a folder, or a .parquet file that was imported or has a table of items beside it."""
    place = Path(path)
    if place.suffix.lower() not in _PARQUET or place.is_dir():
        return place.is_dir()
    files = LogFiles.find(place)
    with name_file_in_errors(files.events):
        return files.items.is_file() or STAMP in (pq.read_schema(files.events).metadata or {})


def read_feature_map(events: Path) -> FeatureMap | None:
    """Return the map that made the column x of an exported log; None if the file has none."""
    if events.suffix.lower() not in _PARQUET or not events.is_file():
        return None
    with name_file_in_errors(events):
        found = (pq.read_schema(events).metadata or {}).get(FEATURE_MAP)
    return None if found is None else FeatureMap.from_json(json.loads(found))
