"""The generic folder: events.parquet, items.parquet, categories.json, as `lcb import` itself writes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lcb.datasets.dataset import Dataset
from lcb.storage.importing.source import Source
from lcb.storage.importing.table_source import add_items, table_source
from lcb.storage.logs.files import LogFiles
from lcb.storage.logs.items import read_items


def _open_source(folder: Path, part: str) -> Source:
    files = LogFiles.at(folder)
    source = table_source(files.events)
    read = tuple(path for path in (files.events, files.items, files.categories) if path.is_file())
    if not files.items.is_file():
        return replace(source, files=read)
    return replace(add_items(source, read_items(files)), files=read)


DATASET = Dataset(
    name="folder",
    title="a log as a folder",
    where="any program that writes Parquet",
    licence="that of your data",
    files="events.parquet, and where known items.parquet and categories.json",
    reading="columns user, item, order, rating, reward, propensity of events.parquet; categories from items.parquet",
    is_in=lambda folder: (folder / "events.parquet").is_file(),
    source=_open_source,
)
