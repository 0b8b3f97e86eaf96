"""MIND: impressions and clicks of Microsoft News (Wu et al. 2020, ACL, doi:10.18653/v1/2020.acl-main.331).

    behaviors.tsv   impression id, user, time, history, impressions: N55689-1 N35729-0 (1: clicked, 0: not)
    news.tsv        news id, category, subcategory, title, abstract, url, title entities, abstract entities

Both are without a header and without quotes.  Each item of an impression is one event, its label the reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.datasets.dataset import Dataset
from lcb.storage.importing.bad_rows import Problems, show_cell
from lcb.storage.importing.items import build_items, read_item_table
from lcb.storage.importing.source import Chunk, Source
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.table import Kind

_BEHAVIORS = ("impression", "user", "time", "history", "impressions")
_NEWS = ("item", "category", "subcategory", "title", "abstract", "url", "title_entities", "abstract_entities")
_TIME = "%m/%d/%Y %I:%M:%S %p"


def _open_source(folder: Path, part: str) -> Source:
    news = open_csv(str(folder / "news.tsv"), "\t", _NEWS, quoted=False)
    table = open_csv(str(folder / "behaviors.tsv"), "\t", _BEHAVIORS, quoted=False)
    known = read_item_table(news, "item", None, "title", "|")
    columns = news.read_all(["category", "subcategory"])
    cells = columns["category"]
    if part == "subcategory":
        cells = pc.binary_join_element_wise(cells, columns["subcategory"], "/")
    items = build_items(news.path, known.names, cells, known.titles)

    def chunks(problems: Problems) -> Iterator[Chunk]:
        kinds: dict[str, Kind] = {"user": "id", "time": "text", "impressions": "text"}
        for batch, rows in table.batches(kinds, problems.add_unread):
            yield _split_impressions(batch, rows, table.path, problems)

    names = {"order": "time", "reward": "click"}
    files = (folder / "behaviors.tsv", folder / "news.tsv")
    return Source("behaviors.tsv", chunks, files, names, items=items)


def _split_impressions(batch: Any, rows: NDArray[np.int64], path: str, problems: Problems) -> Chunk:
    """Return one row per item shown; rows whose time cannot be parsed go to `problems`."""
    text = plain(batch.column("time"))
    time = pc.strptime(text, format=_TIME, unit="s", error_is_null=True)
    for i in np.flatnonzero(time.is_null().to_numpy(zero_copy_only=False)).tolist():
        said = f"time is {show_cell(text, i)}; one such as 11/15/2019 9:55:12 AM is wanted"
        problems.add_unread(path, int(rows[i]), "time is no time", said)
    is_valid = time.is_valid()
    batch, rows, time = batch.filter(is_valid), rows[is_valid.to_numpy(zero_copy_only=False)], time.drop_null()
    lists = pc.split_pattern(pc.utf8_trim_whitespace(plain(batch.column("impressions"))), " ")
    parent = pc.list_parent_indices(lists)
    shown_items = lists.flatten()
    label = pc.utf8_slice_codeunits(shown_items, -1)
    labelled = pc.equal(pc.utf8_slice_codeunits(shown_items, -2, -1), "-")
    columns = {
        "user": plain(batch.column("user")).take(parent),
        "item": pc.if_else(labelled, pc.utf8_slice_codeunits(shown_items, 0, -2), shown_items),
        "order": time.take(parent),
        "reward": pc.if_else(labelled, label, pa.scalar(None, pa.string())),
    }
    return Chunk(path, columns, rows[parent.to_numpy()])


DATASET = Dataset(
    name="mind",
    title="MIND",
    where="https://msnews.github.io/",
    licence="Microsoft Research License Terms: research use",
    files="behaviors.tsv and news.tsv",
    reading="an event is an item shown, its reward the click; categories are the news' category, "
    "or with --part subcategory category/subcategory",
    is_in=lambda folder: (folder / "behaviors.tsv").is_file() and (folder / "news.tsv").is_file(),
    source=_open_source,
    parts=("category", "subcategory"),
)
