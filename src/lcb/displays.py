"""How results look in a notebook: `to_frame()`, `_repr_html_` and `chart()`, from one table of columns.

A result says in `_table` what its rows and columns are, and in `chart` how it is drawn.  Charts are a layer above the
results, so `chart` asks the package for them (`import lcb`), which loads them when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from lcb.frames import build_frame

if TYPE_CHECKING:
    import pandas as pd

_MOST_COLUMNS = 14  # of a table in a notebook; a frame has all


@dataclass(frozen=True)
class DisplayTable:
    """Rows with names, and columns of equal length."""

    caption: str
    index_name: str
    index: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]


class Displayed:
    """Base class of results that notebooks show."""

    def _table(self) -> DisplayTable:
        raise TypeError(f"{type(self).__name__} has no table; define _table")

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a pandas DataFrame (extra `frames`)."""
        table = self._table()
        return build_frame(table.columns, table.index, table.index_name)

    def _repr_html_(self) -> str:
        """Return the result as an HTML table, for notebooks."""
        table = self._table()
        shown = list(table.columns)[:_MOST_COLUMNS]
        n_hidden = len(table.columns) - len(shown)
        more = f" ({n_hidden} more columns: to_frame() has all)" if n_hidden else ""
        heads = "".join(f"<th>{escape(name)}</th>" for name in [table.index_name, *shown])
        rows = []
        for i, name in enumerate(table.index):
            cells = "".join(f"<td>{escape(format_cell(table.columns[column][i]))}</td>" for column in shown)
            rows.append(f"<tr><th>{escape(str(name))}</th>{cells}</tr>")
        caption = f"<caption>{escape(table.caption)}{more}</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def format_cell(value: Any) -> str:
    """Return a value as short text: floats with four digits, a dash for None and nan.

    >>> format_cell(0.123456), format_cell(None), format_cell(float("nan")), format_cell("lcb"), format_cell(3)
    ('0.1235', '-', '-', 'lcb', '3')
    """
    if value is None or value != value:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
