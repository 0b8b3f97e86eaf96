"""Parquet in batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.parquet as pq

from lcb.storage.tables.arrow import is_list, is_number, use_common_types, value_type
from lcb.storage.tables.row_errors import OnBadRow
from lcb.storage.tables.table import Batches, Kind, Table

PARQUET_ROWS = 1 << 16  # at a time


def open_parquet(path: str) -> Table:
    file = pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True, pre_buffer=False)
    types = {column.name: value_type(column.type) for column in file.schema_arrow}

    def read(columns: Mapping[str, Kind], on_bad_row: OnBadRow) -> Batches:
        row = 1
        for batch in file.iter_batches(PARQUET_ROWS, columns=list(columns)):
            yield use_common_types(batch), np.arange(row, row + batch.num_rows)
            row += batch.num_rows

    return Table(
        path,
        tuple(file.schema_arrow.names),
        read,
        file.metadata.num_rows,
        numeric=tuple(name for name, kind in types.items() if is_number(kind)),
        lists=tuple(name for name, kind in types.items() if is_list(kind)),
        types=types,
    )
