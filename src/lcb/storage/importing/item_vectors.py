"""Numbers of the items' own, such as an embedding, for an import.

a column of lists, or numeric columns    of the table of items, or of the log: the first row of each item counts;
                                         lists may be text, "[0.1, 0.2]"; a pattern, e*, names many columns
a table                                  with a column of the item, and a column of lists or numeric columns
vectors.npy                              (n, m), its ids in vectors.ids.npy or vectors.ids.txt, one per row; without
                                         such a file the rows are those of the table of items, in their order
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.runtime.memory import need_memory
from lcb.storage.logs.items import Items, list_first
from lcb.storage.tables.arrow import are_lists, is_list, is_string, parse_numbers, plain, split_lists
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.row_errors import name_file_in_errors
from lcb.storage.tables.table import Table
from lcb.words import format_count

Numbers = NDArray[np.float32]
_HEAD = 1 << 20  # bytes from which the length of lines is estimated
_COPIES = 3  # of the vectors while they are read, put into the order of the items and written


@dataclass(frozen=True, eq=False)
class ItemVectors:
    """Vectors (n, m) of the items with these ids, and the names of their columns."""

    path: str
    ids: Any  # (n,) text
    vectors: Numbers = field(repr=False)
    names: tuple[str, ...]

    def add_to(self, items: Items) -> Items:
        """Return the items with their vectors; raise InputError if one has none."""
        place = pc.index_in(items.names.cast(pa.string()), value_set=self.ids)
        if place.null_count:
            missing = items.names.filter(place.is_null())
            raise InputError(
                f"{format_count(place.null_count, 'item', 'have')} no numbers in {self.path}, such as "
                f"{list_first(missing[:3].to_pylist())}; every item needs them: add them, or leave the items out"
            )
        return replace(items, vectors=self.vectors[place.to_numpy()], inputs=self.names)


def read_item_features(
    given: str, table: str | os.PathLike[str], item_id: str, item: str, *, one_row_each: bool = False
) -> ItemVectors:
    """Read a file, or columns of `table`, whose ids are in column `item_id`, or else in `item` or column item.

    Memory is estimated first: from the rows of a file, and of `table` if each is an item (`one_row_each`); else as
    items are found.
    """
    if given.lower().endswith(".npy"):
        return _read_npy(Path(given), table, (item_id, item))
    if os.path.exists(given):
        opened = open_table(given)
        id = _find_id(opened, (item_id, item))
        columns = _find_lists(opened, id)[:1] or [name for name in opened.numeric if name != id]
        if not columns:
            raise InputError(f"{given} has neither a column of lists nor a numeric column; give one with numbers")
        return _read_columns(opened, id, columns, _estimate_rows(opened), one_row_each=True)
    opened = open_table(table)
    columns = _find_columns(given, opened)
    n_rows = _estimate_rows(opened) if one_row_each else 0
    return _read_columns(opened, _find_id(opened, (item_id, item)), columns, n_rows)


def read_item_columns(table: Table, item: str, columns: Sequence[str]) -> ItemVectors:
    """Read columns of a table whose items are in column `item`; the first row of each counts."""
    return _read_columns(table, item, _find_columns(",".join(columns), table), 0)


def _find_id(table: Table, usual: tuple[str, ...]) -> str:
    found = next((name for name in (*usual, "item", "id") if name in table.names), None)
    if found is None:
        table.require([usual[0]])
    return str(found)


def _find_columns(given: str, table: Table) -> list[str]:
    """Return the columns that are named, or match a pattern, in the order of the table for each pattern."""
    found: list[str] = []
    for name in (one.strip() for one in given.split(",")):
        is_pattern = name not in table.names and bool(set("*?[") & set(name))
        found += [one for one in table.names if fnmatchcase(one, name)] if is_pattern else [name]
        if is_pattern and not found:
            raise InputError(f"--item-features {given}: no column of {table.path} matches {name}; name those there are")
    if any(name not in table.names for name in found) and "." in given:
        raise InputError(f"--item-features {given}: no such file, and no such column of {table.path}")
    table.require(found)
    return list(dict.fromkeys(found))


def _find_lists(table: Table, id: str) -> list[str]:
    """Return the columns of lists, in a text by its first rows."""
    if table.lists or table.numeric != (id,) * (id in table.numeric):
        return [name for name in table.lists if name != id]
    others = [name for name in table.names if name != id]
    first = next(table.batches(dict.fromkeys(others, "text")), None)
    return [] if first is None else [name for name in others if are_lists(plain(first[0].column(name)))]


def _estimate_rows(table: Table) -> int:
    """Return the number of rows, of a text by the length of its first lines; 0 if it is not known."""
    if table.n_rows is not None or table.path.endswith(".gz"):
        return table.n_rows or 0
    with name_file_in_errors(table.path), open(table.path, "rb") as file:
        head = file.read(_HEAD)
        return os.fstat(file.fileno()).st_size * max(head.count(b"\n"), 1) // max(len(head), 1)


def _need_memory(n_items: int, m: int, path: str) -> None:
    need_memory(
        4.0 * n_items * m * _COPIES,
        f"{m:,} numbers for each of {n_items:,} items of {path}",
        "give fewer numbers, such as their main directions, or fewer items",
    )


def _read_columns(table: Table, id: str, columns: list[str], n_rows: int, *, one_row_each: bool = False) -> ItemVectors:
    """Read the vectors of the first row of each item, batch by batch: memory grows with items, not with rows.

    With `one_row_each` a second row of an item is refused: which vector is meant is not known.
    """
    seen: set[str] = set()
    ids: list[str] = []
    parts: list[Numbers] = []
    names: tuple[str, ...] = ()
    kinds: dict[str, Any] = {id: "id", **dict.fromkeys(columns, "number or text")}
    for batch, rows in table.batches(kinds):
        texts = plain(batch.column(id)).cast(pa.string()).to_pylist()
        first = {text: i for i, text in reversed([*enumerate(texts)]) if text not in seen}
        places = sorted(first.values())
        if one_row_each and len(places) < len(texts):
            i = min(set(range(len(texts))).difference(places))
            raise InputError(
                f"{table.path} row {rows[i]}: item {texts[i]} has a second row; give one row for each item"
            )
        part, names = _read_batch(batch.take(pa.array(places, pa.int64())), columns, table.path, rows[places])
        if parts and part.shape[1] != parts[0].shape[1]:
            raise InputError(
                f"{table.path} has lists of {parts[0].shape[1]} and of {part.shape[1]} numbers; make them equal"
            )
        seen.update(first)
        _need_memory(max(len(seen), n_rows), part.shape[1], table.path)
        ids += [texts[i] for i in places]
        parts.append(part)
    return ItemVectors(table.path, pa.array(ids, pa.string()), np.concatenate(parts), names)


def _read_batch(batch: Any, columns: list[str], path: str, rows: Any) -> tuple[Numbers, tuple[str, ...]]:
    parts, names = [], []
    for name in columns:
        column = plain(batch.column(name))
        if is_string(column.type) and are_lists(column):
            column = split_lists(column)
        if is_list(column.type):
            lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(lengths != lengths[0]) if len(lengths) else np.zeros(0, np.int64)
            if column.null_count or len(wrong):
                row = rows[int(wrong[0])] if len(wrong) else rows[pc.index(column.is_null(), True).as_py()]
                raise InputError(
                    f"{path} row {row}: {name} is missing or of another length; give every item as many numbers"
                )
            m = int(lengths[0]) if len(lengths) else 0
            values, made = plain(column.flatten()), [f"{name}{j}" for j in range(m)]
        else:
            m, values, made = 1, column, [name]
        parts.append(_to_numbers(values, path, name).reshape(len(batch), m))
        names += made
    return np.concatenate(parts, axis=1), tuple(names)


def _to_numbers(values: Any, path: str, name: str) -> Numbers:
    try:
        numbers = (parse_numbers(values) if pa.types.is_string(values.type) else values).cast(pa.float32(), safe=False)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} column {name} is no number ({error}); convert it") from None
    found = numbers.to_numpy(zero_copy_only=False)
    if not np.isfinite(found).all():
        raise InputError(
            f"{path} column {name} has numbers that are missing or not finite; every item needs finite ones"
        )
    return np.asarray(found, np.float32)


def _read_npy(path: Path, table: str | os.PathLike[str], usual: tuple[str, ...]) -> ItemVectors:
    with name_file_in_errors(path):
        try:
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
            if len(shape) == 2:
                _need_memory(shape[0], shape[1], str(path))
            vectors = np.load(path, allow_pickle=False)
        except ValueError as error:
            raise InputError(f"{path} is no array of numbers ({error}); write it with numpy.save") from None
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number) or not np.isfinite(vectors).all():
        raise InputError(
            f"{path} has shape {vectors.shape} of {vectors.dtype}; (items, numbers), all finite, are wanted"
        )
    beside = [path.with_name(f"{path.stem}.ids{suffix}") for suffix in (".npy", ".txt")]
    there = next((one for one in beside if one.exists()), None)
    if there is None:
        opened = open_table(table)
        id = _find_id(opened, usual)
        ids = plain(opened.read_all([id])[id]).cast(pa.string()).to_pylist()
    elif there.suffix == ".npy":
        ids = [str(one) for one in np.load(there, allow_pickle=False).tolist()]
    else:
        ids = there.read_text(encoding="utf-8").splitlines()
    if len(ids) != len(vectors) or len(set(ids)) != len(ids):
        raise InputError(
            f"{path} has {len(vectors):,} rows, {there or table} has {len(ids):,} ids, {len(set(ids)):,} different: "
            f"give one id per row, in {beside[0].name}"
        )
    names = tuple(f"v{j}" for j in range(vectors.shape[1]))
    return ItemVectors(str(path), pa.array(ids, pa.string()), vectors.astype(np.float32), names)
