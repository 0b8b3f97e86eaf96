"""The items that the catalogue had at every moment of the log."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lcb.serve.events import ItemsBody

_NEVER = np.iinfo(np.int64).max


class CatalogueHistory:
    """Keeps when each item was added and removed; memory grows with the changes, not with their number times items."""

    def __init__(self) -> None:
        self._present: dict[str, int] = {}  # id -> index into the lists below
        self._ids: list[str] = []
        self._added: list[int] = []  # seq
        self._removed: list[int] = []  # seq
        self._changed = 0  # seq of the last change

    def apply(self, seq: int, body: ItemsBody) -> None:
        """Read the next event that changed the catalogue."""
        new = list(dict.fromkeys(item[0] for item in body.items))
        if body.replace and new == self.final_ids:
            return
        for id in self.final_ids if body.replace else body.remove:
            if id in self._present:
                self._removed[self._present.pop(id)] = seq
                self._changed = seq
        for id in new:
            if id not in self._present:
                self._present[id] = len(self._ids)
                self._ids.append(id)
                self._added.append(seq)
                self._removed.append(_NEVER)
                self._changed = seq

    @property
    def final_ids(self) -> list[str]:
        return list(self._present)

    def is_final(self, seq: int) -> bool:
        """Whether the catalogue as of `seq` had the same items in the same order as at the end."""
        return seq >= self._changed

    def ids_at(self, seq: int) -> list[str]:
        """Return the ids of the catalogue as of `seq`, in its order; call it after the last `apply`."""
        added, removed = self._times
        return [self._ids[i] for i in np.flatnonzero((added <= seq) & (seq < removed))]

    @cached_property
    def _times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(self._added, np.int64), np.array(self._removed, np.int64)
