"""The items of a log and their categories: items.parquet and categories.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lcb.errors import InputError
from lcb.storage.logs.files import INPUTS, STAMP, LogFiles
from lcb.storage.tables.arrow import is_list, is_number, is_string, plain, value_type
from lcb.storage.tables.row_errors import name_file_in_errors, to_one_line
from lcb.words import format_count


@dataclass(frozen=True)
class Items:
    """items.parquet and categories.json; `names` is None if there is no such table."""

    path: str
    names: Any = None  # (n,)
    categories: tuple[str, ...] = ()
    start: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # (n + 1,) into `codes`
    codes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # categories, item after item
    titles: Any = None
    stamp: bytes | None = None
    vectors: NDArray[np.float32] | None = field(default=None, repr=False)  # (n, m) numbers of their own
    inputs: tuple[str, ...] = ()  # (m,) their names

    def matrix(self, names: Any) -> csr_array:
        """Return which item has which category, (n_items, n_categories) of bool."""
        shape = (len(names), len(self.categories))
        if self.names is None:
            return csr_array(shape, dtype=bool)
        made = csr_array((np.ones(len(self.codes), bool), self.codes, self.start), shape=shape)
        made.sum_duplicates()
        return made

    def take(self, places: NDArray[np.int64]) -> Items:
        """Return the items at these indices; all categories are kept."""
        lengths = np.diff(self.start)[places]
        ends = np.cumsum(lengths)
        codes = self.codes[np.repeat(self.start[places] - ends + lengths, lengths) + np.arange(lengths.sum())]
        start = np.concatenate([[0], ends]).astype(np.int64)
        titles = None if self.titles is None else self.titles.take(pa.array(places))
        vectors = None if self.vectors is None else self.vectors[places]
        return replace(
            self,
            names=self.names.take(pa.array(places)),
            start=start,
            codes=codes,
            titles=titles,
            stamp=None,
            vectors=vectors,
        )

    def notes(self, counts: NDArray[np.int64]) -> list[str]:
        """Return notes on unused categories and on items without a category; counts (n,) are events per item."""
        n_categories, seen = len(self.categories), counts > 0
        if not n_categories:
            return []
        used = np.bincount(self.codes[np.repeat(seen, np.diff(self.start))], minlength=n_categories) > 0
        bare = seen & (np.diff(self.start) == 0)
        notes = []
        if not used.all():
            names = list_first([self.categories[j] for j in np.flatnonzero(~used)])
            notes.append(f"{np.sum(~used):,} of {n_categories:,} categories have no event: {names}")
        if bare.any():
            n_events, n_all = int(np.sum(counts[bare])), int(np.sum(counts))
            bare_items = format_count(int(bare.sum()), "item")
            notes.append(f"{bare_items} without a category, with {n_events:,} of {n_all:,} events")
        return notes


def read_items(files: LogFiles) -> Items:
    """Read the items and their categories; empty if there is no table of items."""
    path = str(files.items)
    if not files.items.is_file():
        return Items(path)
    with name_file_in_errors(path):
        table = pq.read_table(files.items)
    if "item" not in table.column_names:
        raise InputError(to_one_line(f"{path} has no column item; it has {list_first(table.column_names)}: rename one"))
    names = to_id_column(table["item"], f"{path} column item").combine_chunks()
    n_repeated = len(names) - len(pc.unique(names))
    if n_repeated:
        raise InputError(f"{path} has {format_count(n_repeated, 'item')} more than once; give every item one row")
    titles = plain(table["title"]).cast(pa.string()) if "title" in table.column_names else None
    stamp = (table.schema.metadata or {}).get(STAMP)
    own = _read_vectors(table, path)
    column = next((table[name] for name in ("categories", "category") if name in table.column_names), None)
    if column is None:
        return Items(path, names, (), np.zeros(len(names) + 1, np.int64), titles=titles, stamp=stamp, **own)
    known = _read_category_names(files)
    start, values = flatten_lists(column)
    categories, codes = code_categories(values, known, f"{path} column categories", str(files.categories))
    return Items(path, names, categories, start, codes, titles, stamp, **own)


def _read_vectors(table: Any, path: str) -> dict[str, Any]:
    """Return the numbers of the items' own and their names: column features, lists of one length."""
    if "features" not in table.column_names:
        return {}
    column = plain(table["features"])
    if not is_list(column.type) or not is_number(column.type.value_type):
        return {}
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) != 1 or column.null_count:
        raise InputError(f"{path} column features must hold lists of the same length; correct it, or import it again")
    vectors = plain(column.flatten()).cast(pa.float32()).to_numpy(zero_copy_only=False).reshape(-1, int(lengths[0]))
    named = json.loads((table.schema.metadata or {}).get(INPUTS, b"[]"))
    return {"vectors": vectors, "inputs": tuple(named) or tuple(f"v{j}" for j in range(vectors.shape[1]))}


def flatten_lists(column: Any) -> tuple[NDArray[np.int64], Any]:
    """Return lists as starts (n + 1,) and values; a scalar counts as a list of one, null as an empty list."""
    column = plain(column)
    if not is_list(column.type):
        start = np.concatenate([[0], np.cumsum(column.is_valid().to_numpy(zero_copy_only=False))])
        return start, column.drop_null()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), plain(column.flatten())


def _read_category_names(files: LogFiles) -> tuple[str, ...] | None:
    if not files.categories.is_file():
        return None
    with name_file_in_errors(files.categories):
        text = files.categories.read_text(encoding="utf-8-sig")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{files.categories} is not JSON ({error}); write a list of names") from None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f'{files.categories} is not a list of names; write one, such as ["sport", "arts"]')
    texts = tuple(map(str, names))
    if len(set(texts)) < len(texts):
        raise InputError(f"{files.categories} repeats {len(texts) - len(set(texts))} names; name each category once")
    return texts


def code_categories(
    values: Any, known: tuple[str, ...] | None, what: str, names_path: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names of all categories, and the codes of `values`, which are indices or names."""
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
        raise InputError(f"{what} has {found.null_count:,} names that are not in {names_path}, such as {example!r}")
    return known, found.to_numpy().astype(np.int32)


def to_id_column(column: Any, what: str) -> Any:
    """Return users or items as int64 or strings, in chunks."""
    check_present(column, what)
    kind = value_type(column.type)
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if not is_string(kind):
        raise InputError(f"{what} holds {kind}; integers or strings are wanted, convert it")
    return column.cast(pa.string())


def check_present(column: Any, what: str) -> None:
    if column.null_count:
        raise InputError(f"{what} has {column.null_count:,} missing of {len(column):,} values; every row needs one")


def list_first(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:5]))
    return shown + (", ..." if len(names) > 5 else "")
