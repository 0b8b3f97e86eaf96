"""A source of events: a stream of chunks of columns, each column named by its role.

user, item                 ids, needed
order                      a time or a position; without it events keep the order of the rows
rating, reward             numbers
propensity                 in (0, 1]
categories                 of the item: a list, or text with a separator
title                      of the item
any other name             a feature
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.storage.importing.bad_rows import Problems
from lcb.storage.importing.item_vectors import ItemVectors
from lcb.storage.logs.items import Items

ROLES = ("user", "item", "order", "rating", "reward", "propensity", "categories", "title")


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file: columns by role, and the number of each row in the file."""

    path: str
    columns: Mapping[str, Any]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """A log to import; `chunks(problems)` reads it once and adds rows that cannot be read to `problems`."""

    name: str
    chunks: Callable[[Problems], Iterator[Chunk]]
    files: tuple[Path, ...]  # all files that are read; an import does not overwrite them
    names: Mapping[str, str] = field(default_factory=dict)  # role -> the column's own name, for messages
    n_rows: int | None = None
    items: Items | None = None  # None: the items are those of the events
    only_met: bool = False  # leave out items that no event has
    separator: str = "|"  # between the categories of a text cell
    whole: tuple[str, ...] = ()  # roles, user or item, whose ids are whole numbers even if the file has text
    repeats: bool = False  # a user may do the same twice, so that equal rows without a time are kept
    notes: tuple[str, ...] = ()
    vectors: ItemVectors | None = None  # numbers of the items' own
