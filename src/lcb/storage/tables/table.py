"""A table in a file, read in batches of columns.

A batch comes with the numbers of its rows; row 1 is the first row of data.  A row that cannot be split into cells (too
many, too few, not JSON, an id of another type) goes to `on_bad_row`: `refuse_row` raises, `Problems.add_unread` lists
the row, which is then left out.  Cells of CSV stay text; the caller converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lcb.errors import InputError
from lcb.storage.tables.arrow import plain
from lcb.storage.tables.row_errors import OnBadRow, name_file_in_errors, refuse_row, to_one_line
from lcb.words import suggest

Rows = NDArray[np.int64]
Batches = Iterator[tuple[Any, Rows]]
Kind = Literal["id", "number", "number or text", "text", "absent"]


@dataclass(frozen=True)
class Table:
    """An open table; `batches` reads it.

    The caller says what each column holds, because JSON lines do not declare it:

        id                an integer or text, of one type in all rows
        number            numbers or truth values, or a list of them
        number or text    the same; a cell of another type comes as text, to be converted
        text              anything; a cell of another type than the first comes as text
        absent            nothing: a row with a value is bad
    """

    path: str
    names: tuple[str, ...]
    read: Callable[[Mapping[str, Kind], OnBadRow], Batches]
    n_rows: int | None = None
    numeric: tuple[str, ...] = ()  # columns of numbers, as far as the beginning of the file tells
    lists: tuple[str, ...] = ()  # columns of lists, likewise
    types: Mapping[str, Any] = field(default_factory=dict)  # of a file that declares them
    may_have_more: bool = False  # columns that the first rows do not have

    def batches(self, columns: Mapping[str, Kind], on_bad_row: OnBadRow = refuse_row) -> Batches:
        """Yield batches of these columns with their row numbers."""
        self.require(name for name, kind in columns.items() if kind != "absent")
        with name_file_in_errors(self.path):
            yield from self.read(columns, on_bad_row)

    def require(self, names: Iterable[str]) -> None:
        """Refuse columns that are missing, or there twice."""
        for name in names:
            if name not in self.names:
                there = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
                meant = f" ({asked})" if (asked := suggest(name, self.names)) else ""
                words = f"{self.path} has no column {name}{meant}; it has {there}: rename one, or name another"
                raise InputError(to_one_line(words))
            if self.names.count(name) > 1:
                raise InputError(f"{self.path} has more than one column {name}; rename all but one")

    def rename(self, names: Mapping[str, str]) -> Table:
        """Return the table with other names of columns: `names` maps the new name to the one in the file."""
        own = {new: old for new, old in names.items() if new != old}
        if not own:
            return self
        self.require(own.values())
        new_name = {old: new for new, old in own.items()}

        def read(columns: Mapping[str, Kind], on_bad_row: OnBadRow) -> Batches:
            asked = {own.get(name, name): kind for name, kind in columns.items()}
            for batch, rows in self.read(asked, on_bad_row):
                yield batch.rename_columns([new_name.get(name, name) for name in batch.schema.names]), rows

        def to_new(given: Iterable[str]) -> tuple[str, ...]:
            return tuple(new_name.get(name, name) for name in given if name not in own)

        types = {new_name.get(name, name): kind for name, kind in self.types.items() if name not in own}
        return replace(
            self,
            names=to_new(self.names),
            read=read,
            numeric=to_new(self.numeric),
            lists=to_new(self.lists),
            types=types,
        )

    def read_all(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the columns of a small table at once; its first bad row is refused."""
        batches = [batch for batch, _ in self.batches(dict.fromkeys(columns, "text"))]
        if not batches:
            raise InputError(f"{self.path} has no rows; give a table with at least one row")
        table = pa.Table.from_batches(batches)
        return {name: plain(table[name]) for name in columns}
