"""The source of a log in one table whose columns the caller names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lcb.errors import InputError
from lcb.storage.importing.bad_rows import Problems
from lcb.storage.importing.items import read_item_table
from lcb.storage.importing.source import ROLES, Chunk, Source
from lcb.storage.logs.items import Items
from lcb.storage.tables.arrow import convert_cells, is_list, is_string, plain, value_type
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.table import Kind, Table
from lcb.words import format_count

_KINDS: dict[str, Kind] = {
    "user": "id",
    "item": "id",
    "order": "text",
    "categories": "text",
    "title": "text",
}  # all else: numbers


@dataclass(frozen=True)
class Columns:
    """Which column of a table has which role; None: the column of the usual name, if there is one.

    Usual names: user, item, reward, rating, order or time, propensity, categories, title.
    """

    user: str | None = None
    item: str | None = None
    reward: str | None = None
    rating: str | None = None
    order: str | None = None
    propensity: str | None = None
    categories: str | None = None
    title: str | None = None
    features: tuple[str, ...] = ()

    def find(self, table: Table) -> dict[str, str]:
        """Return the column of each role."""
        named = {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}
        roles = {role: named.get(role, role) for role in ROLES if role in named or role in table.names}
        if "order" not in roles and "time" in table.names:
            roles["order"] = "time"
        roles = {"user": "user", "item": "item"} | roles
        for name in self.features:
            if name in roles:
                raise InputError(f"features has {name}, a reserved column name; rename the column in {table.path}")
            if self.features.count(name) > 1:
                raise InputError(f"features has {name} more than once; name each column once")
        return roles | {name: name for name in self.features}


def table_source(
    path: str | os.PathLike[str],
    columns: Columns = Columns(),  # noqa: B008
    *,
    items: str | os.PathLike[str] | None = None,
    item_id: str | None = None,
    separator: str = "|",
) -> Source:
    """Return the source of a log in one file, with `items`, if given, as its table of items and categories.

    item_id      the column of `items` with their ids: by default named as in the log, or else `item`
    separator    between the categories of a text cell
    """
    if not separator:
        raise InputError("the separator is empty; give the text between two categories, such as '|'")
    if os.path.isdir(path):
        raise InputError(f"{path} is not the folder of a known data set; give a file, or see: lcb import --list")
    table = open_table(path)
    if items is None:
        return source_from_table(table, columns, files=(Path(path),), separator=separator)
    known = _read_items(open_table(items), columns, columns.item or "item", item_id, columns.title, separator)
    source = source_from_table(
        table, replace(columns, categories=None, title=None), files=(Path(path), Path(items)), separator=separator
    )
    return add_items(source, known)


def source_from_table(
    table: Table,
    columns: Columns,
    items: Items | None = None,
    *,
    files: tuple[Path, ...],
    separator: str = "|",
    whole: tuple[str, ...] = (),
    repeats: bool = True,
) -> Source:
    roles = columns.find(table)
    table.require(roles.values())
    kinds = {name: _KINDS.get(role, "number or text") for role, name in reversed(roles.items())}

    def chunks(problems: Problems) -> Iterator[Chunk]:
        for batch, rows in table.batches(kinds, problems.add_unread):
            made = {role: batch.column(name) for role, name in roles.items()}
            yield Chunk(table.path, _spread_lists(made, columns.features, table.path), rows)

    name = os.path.basename(table.path)
    return Source(name, chunks, files, roles, table.n_rows, items, False, separator, whole, repeats)


def add_items(source: Source, items: Items) -> Source:
    """Add a table of items to a source; ids are converted to the type of the log, so that 7 and "7" are one item."""
    chunk = next(source.chunks(Problems()), None)
    if chunk is None:
        return replace(source, items=items)
    kind = value_type(chunk.columns["item"].type)
    names = items.names
    if is_string(kind) and not is_string(names.type):
        names = names.cast(pa.string())
    elif not is_string(kind) and is_string(names.type):
        names, failing = convert_cells(names, lambda part: part.cast(pa.int64()))
        if len(failing):
            example = items.names[int(failing[0])].as_py()
            raise InputError(
                f"{items.path} has {format_count(len(failing), 'item')} named by no whole number, such as {example!r}; "
                f"those of {source.name} are, convert one"
            )
    return replace(source, items=replace(items, names=names))


def _read_items(
    table: Table, columns: Columns, item: str, item_id: str | None, title: str | None, separator: str
) -> Items:
    usual = [item_id] if item_id else [name for name in (item, "item") if name in table.names]
    ids = usual[0] if usual else item
    categories = columns.categories or next((name for name in ("categories", "category") if name in table.names), None)
    titles = title or ("title" if "title" in table.names else None)
    return read_item_table(table, ids, categories, titles, separator)


def _spread_lists(columns: dict[str, Any], features: Sequence[str], path: str) -> dict[str, Any]:
    """Split features that are lists into columns x0, x1, ..."""
    made = dict(columns)
    for name in features:
        column = plain(made[name])
        if not is_list(column.type):
            continue
        lengths = pc.unique(pc.list_value_length(column).drop_null()).to_pylist()
        if len(lengths) > 1 or 0 in lengths:
            raise InputError(f"{path} column {name} has lists of {sorted(lengths)} numbers; make them equally long")
        del made[name]
        for j in range(lengths[0] if lengths else 0):
            made[f"{name}{j}"] = pc.list_element(pc.if_else(column.is_valid(), column, None), j)
    return made
