"""A sample of the users of a table: those whose names have the smallest hashes.

The hash is the same in every file and on every machine, so the same users are kept wherever a log is read.  The first
pass reads the column of users only and finds the largest hash to keep; reading then drops all other rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.progress import Progress, silent
from lcb.runtime.parallel import read_ahead
from lcb.storage.tables.codes import Hashes, hash_ids
from lcb.storage.tables.event_rows import check_users
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.parts import list_parts
from lcb.storage.tables.row_errors import Place

_ALL = 2**64


@dataclass(frozen=True)
class UserSample:
    """The users whose hash is at most `largest`.

    >>> UserSample(n_users=1000, largest=2**64 // 50).n_in_all
    50000
    """

    n_users: int
    largest: int

    @property
    def n_in_all(self) -> int:
        """About how many users there are, of whom these are kept."""
        return self.n_users if self.largest == _ALL - 1 else round(self.n_users * _ALL / (self.largest + 1))

    def keep(self, column: Any) -> NDArray[np.bool_]:
        return hash_ids(column) <= np.uint64(self.largest)

    def describe(self) -> str:
        """Say what was kept.

        >>> UserSample(1000, 2**64 // 50).describe()
        'a sample of 1,000 users, drawn by a hash of their names, of about 50,000'
        """
        if self.largest == _ALL - 1:
            return f"all {self.n_users:,} users, which are no more than were asked for"
        return f"a sample of {self.n_users:,} users, drawn by a hash of their names, of about {self.n_in_all:,}"


@dataclass(frozen=True, eq=False)
class HashedUsers:
    """The users whose names have these hashes."""

    hashes: Hashes

    def keep(self, column: Any) -> NDArray[np.bool_]:
        return np.isin(hash_ids(column), self.hashes)


def draw_users(path: str | os.PathLike[str], n_users: int, progress: Progress = silent) -> UserSample:
    """Draw `n_users` users of a table, or all if it has fewer."""
    smallest: Hashes = np.empty(0, np.uint64)  # at most one more than is kept, to know whether there are more
    waiting: list[Hashes] = []
    n_waiting = n_rows = 0
    for hashes in read_ahead([partial(_read_hashes, part) for part in list_parts(path)]):
        n_rows += len(hashes)
        if len(smallest) > n_users:
            hashes = hashes[hashes < smallest[-1]]
        waiting.append(hashes)
        n_waiting += len(hashes)
        if n_waiting > max(n_users, 1 << 16):
            smallest, waiting, n_waiting = _merge(smallest, waiting, n_users + 1), [], 0
        progress("drawing users", n_rows, None)
    return sample_hashes(np.concatenate([smallest, *waiting]), n_users)


def sample_hashes(hashes: Hashes, n_users: int) -> UserSample:
    """Return the sample of the `n_users` users with the smallest of these hashes."""
    smallest = _merge(hashes, [], n_users + 1)
    if len(smallest) <= n_users:
        return UserSample(len(smallest), _ALL - 1)
    return UserSample(n_users, int(smallest[n_users - 1]))


def _merge(smallest: Hashes, waiting: list[Hashes], n: int) -> Hashes:
    return np.unique(np.concatenate([smallest, *waiting]))[:n]


def _read_hashes(path: str) -> Iterator[Hashes]:
    first_row = 1
    for batch, _ in open_table(path).batches({"user": "id"}):
        yield hash_ids(check_users(batch.column("user"), Place(path, first_row)))
        first_row += batch.num_rows
