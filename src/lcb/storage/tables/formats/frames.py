"""A DataFrame as a table in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lcb.frames import to_arrow
from lcb.storage.tables.arrow import is_list, is_number, use_common_types, value_type
from lcb.storage.tables.formats.parquet import PARQUET_ROWS
from lcb.storage.tables.row_errors import OnBadRow
from lcb.storage.tables.table import Batches, Kind, Table


def open_frame(frame: Any) -> Table:
    """Open a DataFrame of pandas, polars, pyarrow or DuckDB, or a dictionary of columns."""
    table = use_common_types(to_arrow(frame))
    types = {column.name: value_type(column.type) for column in table.schema}

    def read(columns: Mapping[str, Kind], on_bad_row: OnBadRow) -> Batches:
        row = 1
        for batch in table.select(list(columns)).to_batches(PARQUET_ROWS):
            yield batch, np.arange(row, row + batch.num_rows)
            row += batch.num_rows

    return Table(
        "table",
        tuple(table.column_names),
        read,
        table.num_rows,
        numeric=tuple(name for name, kind in types.items() if is_number(kind)),
        lists=tuple(name for name, kind in types.items() if is_list(kind)),
        types=types,
    )
