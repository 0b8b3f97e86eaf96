"""Open Bandit Dataset: fashion items shown by two policies, with propensities (Saito et al. 2020, arXiv:2008.07146).

    all.csv, men.csv or women.csv   an index, timestamp,item_id,position,click,propensity_score,
                                    user_feature_0,...,user_feature_3,user-item_affinity_0,...
    item_context.csv                an index, item_id,item_feature_0,...,item_feature_3

It has no user ids: users with the same four features count as one user.  `position` (1 to 3) is kept as a feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

from lcb.datasets.dataset import Dataset
from lcb.storage.importing.bad_rows import Problems
from lcb.storage.importing.items import build_items, read_item_table
from lcb.storage.importing.source import Chunk, Source
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.table import Kind

_CAMPAIGNS = ("all.csv", "men.csv", "women.csv")
_COLUMNS = {
    "item": "item_id",
    "order": "timestamp",
    "reward": "click",
    "propensity": "propensity_score",
    "position": "position",
}
_USER = tuple(f"user_feature_{j}" for j in range(4))
_ITEM = tuple(f"item_feature_{j}" for j in range(1, 4))  # the first is a number
_LETTERS = 8  # of a hash of 32: enough to tell a few hundred values apart


def _open_source(folder: Path, part: str) -> Source:
    log = next(folder / name for name in _CAMPAIGNS if (folder / name).is_file())
    table, context = open_csv(str(log)), open_csv(str(folder / "item_context.csv"))
    items = read_item_table(context, "item_id", None, None, "|", whole=True)
    if part == "categories":
        columns = context.read_all(_ITEM)
        hashes = {name: pc.utf8_slice_codeunits(columns[name], 0, _LETTERS) for name in _ITEM}
        pairs = [pc.binary_join_element_wise(name, hashed, "=") for name, hashed in hashes.items()]
        cells = pc.binary_join_element_wise(*pairs, "|")
        items = build_items(context.path, items.names, cells)
    kinds: dict[str, Kind] = dict.fromkeys((*_COLUMNS.values(), *_USER), "text")

    def chunks(problems: Problems) -> Iterator[Chunk]:
        for batch, rows in table.batches(kinds, problems.add_unread):
            features = [pc.utf8_slice_codeunits(plain(batch.column(name)), 0, _LETTERS) for name in _USER]
            columns = {"user": pc.binary_join_element_wise(*features, "-")}
            columns |= {role: batch.column(name) for role, name in _COLUMNS.items()}
            yield Chunk(table.path, columns, rows)

    notes = ("users with the same four features count as one user: the set has no user ids",)
    files = (log, folder / "item_context.csv")
    return Source(log.name, chunks, files, _COLUMNS, items=items, whole=("item",), notes=notes)


DATASET = Dataset(
    name="open-bandit",
    title="Open Bandit Dataset",
    where="https://research.zozo.com/data.html (a sample: https://github.com/st-tech/zr-obp, folder obd)",
    licence="CC BY 4.0",
    files="item_context.csv and one of all.csv, men.csv, women.csv",
    reading="an event is an item shown, its reward the click; no categories, so items are the arms, "
    "or with --part categories the hashed features of the items",
    is_in=lambda folder: (
        (folder / "item_context.csv").is_file() and any((folder / name).is_file() for name in _CAMPAIGNS)
    ),
    source=_open_source,
    parts=("items", "categories"),
)
