"""Numbered `.sql` files, each applied once and in order; all that are missing in one transaction.

`migrations/<store>/0001.sql` makes the tables of a new store; every later number changes what the one before left.
A store that is newer than this code is refused: nobody knows what its tables mean.
"""

from __future__ import annotations

import re
from importlib.resources import files

from lcb.errors import StoreError


def migrations(store: str) -> list[tuple[int, str]]:
    """The numbers and statements of a store, in order.

    >>> migrations("sqlite")[0][0]
    1
    """
    folder = files("lcb.storage.store") / "migrations" / store
    found = [(int(file.name[:4]), file) for file in folder.iterdir() if re.fullmatch(r"\d{4}\.sql", file.name)]
    return [(number, file.read_text(encoding="utf-8")) for number, file in sorted(found, key=lambda one: one[0])]


def missing(store: str, place: str, version: int) -> list[tuple[int, str]]:
    """What a store at `version` still needs."""
    known = migrations(store)
    if version > known[-1][0]:
        raise StoreError(
            f"{place} has schema {version}, this lcb knows up to {known[-1][0]}; install the lcb that wrote it"
        )
    return [(number, text) for number, text in known if number > version]
