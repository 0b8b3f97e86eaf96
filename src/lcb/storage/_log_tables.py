"""The tables of a log, checked and coded: what `lcb.storage.logs` puts together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lcb.errors import InputError
from lcb.progress import Progress
from lcb.storage._diagnose import naming, one_line
from lcb.storage.log_files import FEATURES, STAMP, LogFiles

NUMBERS = ("rating", "reward", "propensity")


@dataclass(frozen=True)
class Items:
    """items.parquet and categories.json; `names` is None where there is no such table."""

    path: str
    names: Any = None  # (n,)
    categories: tuple[str, ...] = ()
    start: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # (n + 1,) into `codes`
    codes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # categories, item after item
    titles: Any = None
    stamp: bytes | None = None

    def matrix(self, names: Any) -> csr_array:
        """(n_items, n_categories) of bool."""
        shape = (len(names), len(self.categories))
        if self.names is None:
            return csr_array(shape, dtype=bool)
        made = csr_array((np.ones(len(self.codes), bool), self.codes, self.start), shape=shape)
        made.sum_duplicates()
        return made

    def take(self, places: NDArray[np.int64]) -> Items:
        """The items at these places alone; all categories stay."""
        lengths = np.diff(self.start)[places]
        ends = np.cumsum(lengths)
        codes = self.codes[np.repeat(self.start[places] - ends + lengths, lengths) + np.arange(lengths.sum())]
        start = np.concatenate([[0], ends]).astype(np.int64)
        titles = None if self.titles is None else self.titles.take(pa.array(places))
        return Items(self.path, self.names.take(pa.array(places)), self.categories, start, codes, titles)

    def notes(self, counts: NDArray[np.int64]) -> list[str]:
        """What is there and never used, what is used and has no category; counts (n,) are the events of each item."""
        n_categories, seen = len(self.categories), counts > 0
        if not n_categories:
            return []
        used = np.bincount(self.codes[np.repeat(seen, np.diff(self.start))], minlength=n_categories) > 0
        bare = seen & (np.diff(self.start) == 0)
        notes = []
        if not used.all():
            names = _some([self.categories[j] for j in np.flatnonzero(~used)])
            notes.append(f"{np.sum(~used):,} of {n_categories:,} categories are those of no event: {names}")
        if bare.any():
            n_events, n_all = int(np.sum(counts[bare])), int(np.sum(counts))
            notes.append(f"{bare.sum():,} items have no category; {n_events:,} of {n_all:,} events are theirs")
        return notes


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


# Items


def read_items(files: LogFiles) -> Items:
    """The items and their categories; empty where there is no table of items."""
    path = str(files.items)
    if not files.items.is_file():
        return Items(path)
    with naming(path):
        table = pq.read_table(files.items)
    if "item" not in table.column_names:
        raise InputError(one_line(f"{path} has no column item; it has {_some(table.column_names)}: rename one"))
    names = _ids(table["item"], f"{path} column item").combine_chunks()
    n_repeated = len(names) - len(pc.unique(names))
    if n_repeated:
        raise InputError(f"{path} has {n_repeated:,} items more than once; give every item one row")
    titles = plain(table["title"]).cast(pa.string()) if "title" in table.column_names else None
    stamp = (table.schema.metadata or {}).get(STAMP)
    column = next((table[name] for name in ("categories", "category") if name in table.column_names), None)
    if column is None:
        return Items(path, names, (), np.zeros(len(names) + 1, np.int64), titles=titles, stamp=stamp)
    known = _category_names(files)
    start, values = flat_lists(column)
    categories, codes = category_codes(values, known, f"{path} column categories", str(files.categories))
    return Items(path, names, categories, start, codes, titles, stamp)


def flat_lists(column: Any) -> tuple[NDArray[np.int64], Any]:
    """Lists as starts (n + 1,) and values; a value that is no list is a list of one, none is an empty list."""
    column = plain(column)
    if not is_list(column.type):
        start = np.concatenate([[0], np.cumsum(column.is_valid().to_numpy(zero_copy_only=False))])
        return start, column.drop_null()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), plain(column.flatten())


def _category_names(files: LogFiles) -> tuple[str, ...] | None:
    if not files.categories.is_file():
        return None
    with naming(files.categories):
        text = files.categories.read_text(encoding="utf-8-sig")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{files.categories} is not JSON ({error}); write a list of names") from None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f'{files.categories} is no list of names; write one, as in ["sport", "arts"]')
    texts = tuple(map(str, names))
    if len(set(texts)) < len(texts):
        raise InputError(f"{files.categories} has {len(texts) - len(set(texts))} names twice; name each category once")
    return texts


def category_codes(
    values: Any, known: tuple[str, ...] | None, what: str, names_path: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The names of all categories, and the codes of those in `values`: indices, or names."""
    if values.null_count:
        raise InputError(f"{what} has {values.null_count:,} missing values; leave them out of the lists")
    if pa.types.is_null(values.type):
        return known or (), np.zeros(0, np.int32)
    if pa.types.is_integer(values.type):
        codes = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if known is None:
            ids = np.unique(codes)
            return tuple(map(str, ids.tolist())), np.searchsorted(ids, codes).astype(np.int32)
        n_wrong = int(np.sum((codes < 0) | (codes >= len(known))))
        if n_wrong:
            raise InputError(
                f"{what} has {n_wrong:,} indices outside 0 to {len(known) - 1}, such as "
                f"{codes[(codes < 0) | (codes >= len(known))][0]}; {names_path} names {len(known)} categories"
            )
        return known, codes.astype(np.int32)
    if not is_string(values.type):
        raise InputError(f"{what} holds {values.type}; indices or names are wanted, convert it")
    values = values.cast(pa.string())
    if known is None:
        known = tuple(sorted(pc.unique(values).to_pylist()))
    found = pc.index_in(values, value_set=pa.array(known, pa.string()))
    if found.null_count:
        example = values.filter(found.is_null())[0].as_py()
        raise InputError(f"{what} has {found.null_count:,} names that {names_path} has not, such as {example!r}")
    return known, found.to_numpy().astype(np.int32)


# Events


def read_events(files: LogFiles, items: Items, progress: Progress) -> Events:
    """The events with coded users and items."""
    path = str(files.events)
    with naming(path):
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        names = file.schema_arrow.names
        metadata = file.schema_arrow.metadata or {}
    for wanted in ("user", "item"):
        if wanted not in names:
            raise InputError(
                one_line(
                    f"{path} has no column {wanted}; it has {_some(names)}: "
                    f"name yours with: lcb import {path} --{wanted} NAME --out log"
                )
            )
    if file.metadata.num_rows == 0:
        raise InputError(f"{path} has no rows; give a log with at least one event")
    if items.stamp is not None and metadata.get(STAMP, items.stamp) != items.stamp:
        raise InputError(f"{items.path} and {path} are of two imports; import the log again")
    features = tuple(name for name in json.loads(metadata.get(FEATURES, b"[]")) if name in names)
    columns = ["user", "item", *(name for name in ("order", *NUMBERS) if name in names), *features]

    def column(name: str) -> Any:
        progress(f"opening {files.events.name}", columns.index(name), len(columns))
        with naming(path):
            return file.read([name]).column(0)

    users, user = _coded(column("user"), f"{path} column user")
    if items.names is None:
        item_names, item = _coded(column("item"), f"{path} column item")
    else:
        item_names, item = items.names, _known(column("item"), items, path)
    order = _order(column("order"), path) if "order" in names else np.arange(len(user))
    numbers = {name: _floats(column(name), f"{path} column {name}") for name in NUMBERS if name in names}
    _check_propensity(numbers, path)
    x = np.column_stack([_floats(column(name), f"{path} column {name}") for name in features]) if features else None
    rows = _sorting(user, order)
    if rows is not None:
        user, item, order = user[rows], item[rows], order[rows]
        numbers = {name: values[rows] for name, values in numbers.items()}
        x = None if x is None else x[rows]
    notes = _repeated(user, order, item)
    return Events(users, item_names, user, item, order, numbers, x, features, notes)


def _coded(column: Any, what: str) -> tuple[Any, NDArray[np.int32]]:
    """Names in order, and the code of each row."""
    coded = _ids(column, what).dictionary_encode().unify_dictionaries()
    names = coded.chunk(0).dictionary
    order = pc.sort_indices(names)
    rank = np.empty(len(names), np.int32)
    rank[order.to_numpy()] = np.arange(len(names), dtype=np.int32)
    return names.take(order), np.concatenate([rank[chunk.indices.to_numpy()] for chunk in coded.chunks])


def _known(column: Any, items: Items, path: str) -> NDArray[np.int32]:
    ids = _ids(column, f"{path} column item")
    if ids.type != items.names.type:
        raise InputError(
            f"{path} column item holds {ids.type}, {items.path} column item holds {items.names.type}; convert one"
        )
    found = pc.index_in(ids, value_set=items.names)
    if found.null_count:
        unknown = pc.unique(ids.filter(found.is_null()))
        raise InputError(
            f"{path} has {found.null_count:,} of {len(ids):,} events of {len(unknown):,} items that {items.path} has "
            f"not, such as {_some(unknown[:3].to_pylist())}; add them, or leave the events out with: "
            f"lcb import {path} --items {items.path} --on-error skip --out log"
        )
    return found.to_numpy()


def _order(column: Any, path: str) -> NDArray[Any]:
    column = plain(column)
    _check_present(column, f"{path} column order")
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(column.type):
        raise InputError(f"{path} column order holds {column.type}; numbers or times are wanted, convert it")
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    _check_finite(values, f"{path} column order")
    return np.asarray(values)


def _floats(column: Any, what: str) -> NDArray[np.float32]:
    column = plain(column)
    _check_present(column, what)
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
            f"events; what was logged had a chance above 0, leave the others out with: lcb import --on-error skip"
        )


def _sorting(user: NDArray[np.int32], order: NDArray[Any]) -> NDArray[np.int64] | None:
    """The rows by user, then order, then place in the file; None if they are so already."""
    same = user[1:] == user[:-1]
    if np.all((user[1:] > user[:-1]) | (same & (order[1:] >= order[:-1]))):
        return None
    return np.lexsort((order, user))


def _repeated(user: NDArray[np.int32], order: NDArray[Any], item: NDArray[np.int32]) -> tuple[str, ...]:
    """A note on events equal in user, order and item."""
    tied = np.flatnonzero((user[1:] == user[:-1]) & (order[1:] == order[:-1]))
    if not len(tied):
        return ()
    rows = np.union1d(tied, tied + 1)
    rows = rows[np.lexsort((item[rows], order[rows], user[rows]))]
    same = [values[rows[1:]] == values[rows[:-1]] for values in (user, order, item)]
    n = int(np.sum(np.logical_and.reduce(same)))
    return (f"{n:,} of {len(user):,} events repeat another of the same user, item and order",) if n else ()


# Columns


def _ids(column: Any, what: str) -> Any:
    """Users or items as int64 or strings, in chunks."""
    _check_present(column, what)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if not is_string(kind):
        raise InputError(f"{what} holds {kind}; integers or strings are wanted, convert it")
    return column.cast(pa.string())


def plain(column: Any) -> Any:
    """One array without dictionary."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _check_present(column: Any, what: str) -> None:
    if column.null_count:
        raise InputError(f"{what} has {column.null_count:,} missing of {len(column):,} values; every row needs one")


def _check_finite(values: NDArray[Any], what: str) -> None:
    n_wrong = int(np.sum(~np.isfinite(values)))
    if n_wrong:
        raise InputError(f"{what} has {n_wrong:,} values that are no finite numbers; mend or drop the rows")


def _some(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:5]))
    return shown + (", ..." if len(names) > 5 else "")
