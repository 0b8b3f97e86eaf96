"""Opens events of any form as a log: an imported log, a table in a file, or a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lcb.progress import Progress, silent
from lcb.storage.importing.import_log import import_log
from lcb.storage.importing.item_vectors import read_item_columns
from lcb.storage.importing.table_source import Columns, source_from_table, table_source
from lcb.storage.logs.files import is_log
from lcb.storage.logs.log import Log, open_log
from lcb.storage.tables.formats.frames import open_frame
from lcb.storage.tables.open_table import open_table


def open_any(
    events: Any,
    columns: Columns = Columns(),  # noqa: B008
    *,
    item_features: Sequence[str] = (),
    with_offers: bool = True,
    progress: Progress = silent,
) -> Log:
    """Return a log as it is; open an imported log; import a table or a DataFrame, in a temporary folder.

    A table in memory or in a file is checked as by `lcb import`; rows that repeat another are kept.  `item_features`
    are its columns with the items' own numbers, such as an embedding; the first row of each item counts.
    """
    if isinstance(events, Log):
        return events
    if isinstance(events, str | os.PathLike):
        if is_log(events) and columns == Columns() and not item_features:
            return open_log(events, progress=progress, with_offers=with_offers)
        source = table_source(events, columns)
    else:
        source = source_from_table(open_frame(events), columns, files=())
    if item_features:
        table = open_table(events) if isinstance(events, str | os.PathLike) else open_frame(events)
        source = replace(source, vectors=read_item_columns(table, source.names.get("item", "item"), item_features))
    with TemporaryDirectory(prefix="lcb-") as folder:
        import_log(source, Path(folder, "log"), duplicates="keep", progress=progress)
        return open_log(Path(folder, "log"), progress=progress, with_offers=with_offers)
