"""Reads events.parquet of a log: checks the rows, codes users and items, sorts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.progress import Progress
from lcb.storage.logs.files import FEATURES, STAMP, LogFiles
from lcb.storage.logs.items import Items, check_present, list_first, to_id_column
from lcb.storage.logs.offers import Offers, read_offers
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.row_errors import name_file_in_errors, to_one_line
from lcb.words import format_count

NUMBERS = ("rating", "reward", "propensity")


@dataclass(frozen=True)
class Events:
    """events.parquet, sorted by user, then order."""

    users: Any
    items: Any
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    order: NDArray[Any]
    numbers: dict[str, NDArray[np.float32]]
    x: NDArray[np.float32] | None
    features: tuple[str, ...]
    notes: tuple[str, ...]
    offers: Offers | None = None


def read_events(files: LogFiles, items: Items, progress: Progress, with_offers: bool = True) -> Events:
    path = str(files.events)
    with name_file_in_errors(path):
        file = pq.ParquetFile(path, memory_map=True, pre_buffer=False, page_checksum_verification=True)
        names = file.schema_arrow.names
        metadata = file.schema_arrow.metadata or {}
    for wanted in ("user", "item"):
        if wanted not in names:
            raise InputError(
                to_one_line(
                    f"{path} has no column {wanted}; it has {list_first(names)}: "
                    f"name yours with: lcb import {path} --{wanted} NAME --out log"
                )
            )
    if file.metadata.num_rows == 0:
        raise InputError(f"{path} has no rows; give a log with at least one event")
    if items.stamp is not None and metadata.get(STAMP, items.stamp) != items.stamp:
        raise InputError(f"{items.path} and {path} are from different imports; import the log again")
    features = tuple(name for name in json.loads(metadata.get(FEATURES, b"[]")) if name in names)
    columns = ["user", "item", *(name for name in ("order", *NUMBERS) if name in names), *features]

    def column(name: str) -> Any:
        progress(f"opening {files.events.name}", columns.index(name), len(columns))
        with name_file_in_errors(path):
            return file.read([name]).column(0)

    users, user = _code_ids(column("user"), f"{path} column user")
    if items.names is None:
        item_names, item = _code_ids(column("item"), f"{path} column item")
    else:
        item_names, item = items.names, _code_known_items(column("item"), items, path)
    order = _to_order(column("order"), path) if "order" in names else np.arange(len(user))
    found = {name: column(name) for name in NUMBERS if name in names}
    numbers = {  # a column without any value is treated as missing
        name: _to_floats(values, f"{path} column {name}")
        for name, values in found.items()
        if values.null_count < len(values)
    }
    _check_propensity(numbers, path)
    x = np.column_stack([_to_floats(column(name), f"{path} column {name}") for name in features]) if features else None
    offers = read_offers(file, item_names, path) if with_offers else None
    if offers is not None:
        offers.check(item, numbers.get("propensity"), path)
    rows = _sort_rows(user, order)
    if rows is not None:
        user, item, order = user[rows], item[rows], order[rows]
        numbers = {name: values[rows] for name, values in numbers.items()}
        x = None if x is None else x[rows]
        offers = None if offers is None else offers.take(rows)
    notes = _note_repeated(user, order, item)
    return Events(users, item_names, user, item, order, numbers, x, features, notes, offers)


def _code_ids(column: Any, what: str) -> tuple[Any, NDArray[np.int32]]:
    """Return the names, sorted, and the code of each row."""
    coded = to_id_column(column, what).dictionary_encode().unify_dictionaries()
    names = coded.chunk(0).dictionary
    order = pc.sort_indices(names)
    rank = np.empty(len(names), np.int32)
    rank[order.to_numpy()] = np.arange(len(names), dtype=np.int32)
    return names.take(order), np.concatenate([rank[chunk.indices.to_numpy()] for chunk in coded.chunks])


def _code_known_items(column: Any, items: Items, path: str) -> NDArray[np.int32]:
    ids = to_id_column(column, f"{path} column item")
    if ids.type != items.names.type:
        words = f"{path} column item holds {ids.type}, {items.path} column item holds {items.names.type}"
        raise InputError(f"{words}; convert one")
    found = pc.index_in(ids, value_set=items.names)
    if found.null_count:
        unknown = pc.unique(ids.filter(found.is_null()))
        raise InputError(
            f"{found.null_count:,} of {len(ids):,} events in {path} are of "
            f"{format_count(len(unknown), 'item')} missing in {items.path}, such as "
            f"{list_first(unknown[:3].to_pylist())}; add them, or leave the events out with: "
            f"lcb import {path} --items {items.path} --on-error skip --out log"
        )
    return found.to_numpy()


def _to_order(column: Any, path: str) -> NDArray[Any]:
    column = plain(column)
    check_present(column, f"{path} column order")
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(column.type):
        raise InputError(f"{path} column order holds {column.type}; numbers or times are wanted, convert it")
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    _check_finite(values, f"{path} column order")
    return np.asarray(values)


def _to_floats(column: Any, what: str) -> NDArray[np.float32]:
    column = plain(column)
    check_present(column, what)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{what} holds {kind}; numbers are wanted, convert it")
    values = np.asarray(column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False))
    _check_finite(values, what)
    return values


def _check_propensity(numbers: dict[str, NDArray[np.float32]], path: str) -> None:
    if "propensity" not in numbers:
        return
    values = numbers["propensity"]
    n_zero, n_wrong = int(np.sum(values == 0)), int(np.sum((values < 0) | (values > 1)))
    if n_zero or n_wrong:
        raise InputError(
            f"{path} column propensity has {n_zero:,} zeros and {n_wrong:,} values outside 0 to 1 in {len(values):,} "
            "events; probabilities lie in (0, 1], leave the other rows out with: lcb import --on-error skip"
        )


def _sort_rows(user: NDArray[np.int32], order: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return the indices that sort rows by user, then order (stable); None if they are sorted already."""
    same = user[1:] == user[:-1]
    if np.all((user[1:] > user[:-1]) | (same & (order[1:] >= order[:-1]))):
        return None
    return np.lexsort((order, user))


def _note_repeated(user: NDArray[np.int32], order: NDArray[Any], item: NDArray[np.int32]) -> tuple[str, ...]:
    """Return a note if some events are equal in user, order and item."""
    tied = np.flatnonzero((user[1:] == user[:-1]) & (order[1:] == order[:-1]))
    if not len(tied):
        return ()
    rows = np.union1d(tied, tied + 1)
    rows = rows[np.lexsort((item[rows], order[rows], user[rows]))]
    same = [values[rows[1:]] == values[rows[:-1]] for values in (user, order, item)]
    n = int(np.sum(np.logical_and.reduce(same)))
    return (f"{n:,} of {len(user):,} events repeat another of the same user, item and order",) if n else ()


def _check_finite(values: NDArray[Any], what: str) -> None:
    n_wrong = int(np.sum(~np.isfinite(values)))
    if n_wrong:
        raise InputError(f"{what} has {n_wrong:,} values that are not finite numbers; correct or drop the rows")
