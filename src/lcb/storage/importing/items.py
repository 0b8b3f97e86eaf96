"""Items and their categories: from a table of items, or gathered from the events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lcb.errors import InputError
from lcb.storage.importing.bad_rows import Check, Problems
from lcb.storage.importing.ids import Ids
from lcb.storage.logs.items import Items, code_categories, flatten_lists
from lcb.storage.tables.arrow import is_list, is_string, plain
from lcb.storage.tables.table import Table
from lcb.words import format_count

_JOINT = "\x1f"  # separator of categories, where a list is stored as text


def read_item_table(
    table: Table, item: str, categories: str | None, title: str | None, separator: str, *, whole: bool = False
) -> Items:
    """Return the items of a table with one row per item."""
    columns = table.read_all([name for name in (item, categories, title) if name is not None])
    problems = Problems()
    names = columns[item]
    ids = Ids(item, whole=whole)
    codes = ids.codes(names, Check(table.path, np.arange(1, len(names) + 1), problems))
    if problems.n_rows:
        raise InputError(f"{problems.lines()[0]}; {format_count(problems.n_rows, 'bad row')} of items, correct them")
    if len(ids) < len(codes):
        raise InputError(
            f"{table.path} has {format_count(len(codes) - len(ids), 'item')} more than once; give every item one row"
        )
    titles = None if title is None else columns[title].cast(pa.string())
    cells = None if categories is None else columns[categories]
    return build_items(table.path, ids.names(), cells, titles, separator)


def build_items(
    path: str, names: Any, cells: Any, titles: Any = None, separator: str = "|", none: Sequence[str] = ()
) -> Items:
    """Build items with the categories of `cells`: lists, or text with a separator; words in `none` mean no category."""
    if cells is None:
        return Items(path, names, (), np.zeros(len(names) + 1, np.int64), titles=titles)
    start, values = split_categories(cells, separator, none)
    found, codes = code_categories(values, None, f"{path} column of categories", path)
    return Items(path, names, found, start, codes, titles)


def split_categories(cells: Any, separator: str, none: Sequence[str] = ()) -> tuple[NDArray[np.int64], Any]:
    """Split cells into starts (n + 1,) and values, stripped of blanks, without empty values.

    >>> start, values = split_categories(pa.array(["Comedy|Drama", None, "War| "]), "|")
    >>> start.tolist(), values.to_pylist()
    ([0, 2, 2, 3], ['Comedy', 'Drama', 'War'])
    """
    cells = plain(cells)
    if is_string(cells.type):
        cells = pc.split_pattern(cells.cast(pa.string()), separator)
    start, values = flatten_lists(cells)
    if not is_string(values.type):
        return start, values
    values = pc.utf8_trim_whitespace(values.cast(pa.string()))
    kept = pc.fill_null(pc.invert(pc.is_in(values, value_set=pa.array(["", *none]))), False)
    n_kept = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    return n_kept[start].astype(np.int64), values.filter(kept)


class Gathered:
    """Collects the items of the events, with the categories in the same rows; memory grows with items."""

    def __init__(self, separator: str) -> None:
        self.separator = separator
        self.cells = Ids("categories")
        self.pairs = np.zeros(0, np.int64)  # item code and cell code in one number, each pair once
        self.titles: dict[int, str] = {}  # by item code; the last that is not empty

    def add(self, item: NDArray[np.int32], cells: Any) -> None:
        cells = plain(cells)
        if is_list(cells.type):
            self.separator = _JOINT
            cells = pc.binary_join(cells.cast(pa.list_(pa.string())), _JOINT)
        cells = pc.fill_null(cells.cast(pa.string()), "")
        codes = self.cells.codes(cells, Check("", np.arange(len(item)), Problems()))
        pairs = np.unique(item.astype(np.int64) << 32 | codes)
        self.pairs = np.union1d(self.pairs, pairs)

    def add_titles(self, item: NDArray[np.int32], cells: Any) -> None:
        """Keep the title of every item that has one in these rows."""
        titles = plain(cells).cast(pa.string())
        there = np.flatnonzero(
            pc.fill_null(pc.greater(pc.binary_length(titles), 0), False).to_numpy(zero_copy_only=False)
        )
        codes, last = np.unique(item[there][::-1], return_index=True)
        rows = there[::-1][last]
        self.titles.update(zip(codes.tolist(), titles.take(pa.array(rows)).to_pylist(), strict=True))

    def items(self, names: Any, order: NDArray[np.int64], path: str) -> tuple[Items, int]:
        """Return the items in this order, and how many of them have different categories in different rows."""
        ordered = names.take(pa.array(order))
        titles = pa.array([self.titles.get(i) for i in order.tolist()], pa.string()) if self.titles else None
        if not len(self.cells):
            return build_items(path, ordered, None, titles), 0
        start, values = split_categories(self.cells.names(), self.separator)
        found, codes = code_categories(values, None, f"{path} column of categories", path)
        item, cell = self.pairs >> 32, self.pairs & 0xFFFFFFFF
        lengths = np.diff(start)[cell]
        ends = np.cumsum(lengths)
        taken = np.repeat(start[cell] - ends + lengths, lengths) + np.arange(lengths.sum())
        shape = (len(names), max(len(found), 1))
        made = csr_array((np.ones(len(taken), bool), (np.repeat(item, lengths), codes[taken])), shape=shape)[order]
        made.sort_indices()
        n_differing = int(np.sum(np.bincount(item, minlength=len(names)) > 1))
        start, members = made.indptr.astype(np.int64), made.indices.astype(np.int32)
        return Items(path, ordered, found, start, members, titles), n_differing
