"""Migrations: numbered `.sql` files, each applied once and in order, in one transaction.

`migrations/<store>/0001.sql` creates the tables of a new store; each later file changes the schema of the one before.
A store with a newer schema than this code knows is refused.
"""

from __future__ import annotations

import logging
import re
from importlib.resources import files

from lcb.errors import StoreError

_SAID = {2: "the snapshots of earlier versions are dropped, so the next start reads the whole log"}


def migrations(store: str) -> list[tuple[int, str]]:
    """The number and the statements of every migration, in order.

    >>> migrations("sqlite")[0][0]
    1
    """
    folder = files("lcb.storage.store") / "migrations" / store
    found = [(int(file.name[:4]), file) for file in folder.iterdir() if re.fullmatch(r"\d{4}\.sql", file.name)]
    return [(number, file.read_text(encoding="utf-8")) for number, file in sorted(found, key=lambda one: one[0])]


def missing_migrations(store: str, place: str, version: int) -> list[tuple[int, str]]:
    """The migrations that a store at schema `version` still needs."""
    known = migrations(store)
    if version > known[-1][0]:
        raise StoreError(
            f"{place} has schema {version}, this lcb knows up to {known[-1][0]}; install the lcb that wrote it"
        )
    return [(number, text) for number, text in known if number > version]


def log_upgrade(place: str, version: int, done: list[tuple[int, str]]) -> None:
    """Say in the operational log that a store of schema `version` was upgraded; a new store (0) is no upgrade."""
    if version and done:
        words = [f"{place} was upgraded from schema {version} to {done[-1][0]}"]
        words += [_SAID[number] for number, _ in done if number in _SAID]
        logging.getLogger("lcb.storage").info("; ".join(words))
