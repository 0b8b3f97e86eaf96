"""Where the archive of a log is; apart from what reads it, which needs pyarrow."""

from __future__ import annotations

import os
from pathlib import Path


def find_folder(store_url: str, folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of an archive: the given one, or that beside an SQLite file; None for PostgreSQL.

    >>> str(find_folder("lcb.db", None)), find_folder("postgresql://host/name", None)
    ('lcb.db.archive', None)
    """
    if folder is not None:
        return Path(folder)
    return None if "://" in store_url else Path(f"{store_url}.archive")
