"""Opens events of any form as a log: an imported log, a table in a file, or a DataFrame."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lcb.progress import Progress, silent
from lcb.storage.importing.import_log import import_log
from lcb.storage.importing.table_source import Columns, source_from_table, table_source
from lcb.storage.logs.files import is_log
from lcb.storage.logs.log import Log, open_log
from lcb.storage.tables.frames import open_frame


def open_any(
    events: Any,
    columns: Columns = Columns(),  # noqa: B008
    *,
    with_offers: bool = True,
    progress: Progress = silent,
) -> Log:
    """Return a log as it is; open an imported log; import a table or a DataFrame, in a temporary folder.

    A table in memory or in a file is checked as by `lcb import`; rows that repeat another are kept.
    """
    if isinstance(events, Log):
        return events
    if isinstance(events, str | os.PathLike):
        if is_log(events) and columns == Columns():
            return open_log(events, progress=progress, with_offers=with_offers)
        source = table_source(events, columns)
    else:
        source = source_from_table(open_frame(events), columns, files=())
    with TemporaryDirectory(prefix="lcb-") as folder:
        import_log(source, Path(folder, "log"), duplicates="keep", progress=progress)
        return open_log(Path(folder, "log"), progress=progress, with_offers=with_offers)
