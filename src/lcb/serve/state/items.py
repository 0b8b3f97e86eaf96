"""The effects of items now: what the newest version brought, and the residuals of the rewards since.

    effect, variance   of the version, or its prior for an item that it did not know
    count, sum         of r - x . m over the rewards since the version was learned; m: the user's expected weights then
    now                `lcb.item_effects.add_residuals(effect, variance, count, sum, noise)`

A `learning` event opens a second table of sums.  The version that is learned from the log up to that event takes it
over, so that no reward counts twice and none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from lcb.arrays import Floats, Index
from lcb.item_effects import ArmEffects, ItemEffects, add_residuals
from lcb.serve.state.catalogue import Catalogue

_MOST_KEPT = 2_000_000  # items whose effects are kept computed, 16 bytes each beside the id
Sums = dict[str, tuple[int, float]]  # by item: count, and sum of residuals


class ItemSums(Struct):
    """The part of the state that the log alone determines; it is stored in the service-wide snapshot."""

    version: int = 0  # the version whose effects are the base; 0: no version with effects yet
    since: Sums = {}  # what rewards have added since that version was learned
    began: int = 0  # seq of the last `learning` event whose version has not come; 0: none
    learning: Sums = {}  # what rewards have added since that event


class ItemState:
    """Item effects as of the world's seq; `learned` are those of the version `sums.version`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.sums = ItemSums()
        self.learned: ItemEffects | None = None
        self._catalogue = catalogue
        self._rows: dict[str, int]
        self._now: Floats  # effect and variance of the items of `_rows`
        self._whole: tuple[int, Index] | None  # rows of the catalogue, and after which of its changes
        self._forget()

    # Events

    def begin_learning(self, seq: int) -> None:
        """A version will be learned from the log up to `seq`."""
        self.sums.began, self.sums.learning = seq, {}

    def take_version(self, version: int, seen: int | None, learned: ItemEffects | None) -> None:
        """Use the effects of a new version from here on.

        A version that was learned elsewhere (`seen` is None) knows no reward of this log that comes after it.
        """
        sums = self.sums
        since = sums.learning if seen is not None and seen == sums.began else {}
        self.sums = ItemSums(0 if learned is None else version, {} if learned is None else since)
        self._set_learned(learned)

    def restore(self, sums: ItemSums, learned: ItemEffects | None) -> None:
        self.sums = sums
        self._set_learned(learned)

    def add(self, item: str, residual: tuple[int, float]) -> None:
        """Add the count and the residual of a reward to its item."""
        sums = self.sums
        for table in (sums.since, sums.learning) if sums.began else (sums.since,):
            n, total = table.get(item, (0, 0.0))
            table[item] = n + residual[0], total + residual[1]
        if (row := self._rows.get(item)) is not None:
            self._now[:, row] = self._compute(item)

    def _set_learned(self, learned: ItemEffects | None) -> None:
        self.learned = learned
        self._forget()

    # Reading

    def get(self, item: str) -> tuple[float, float]:
        """Return the effect of an item and its variance; there must be a version with effects."""
        effect, variance = self.of_arms([item])
        return float(effect[0]), float(variance[0])

    def count(self, item: str) -> int:
        """Return the number of rewards that an item's effect rests on."""
        assert self.learned is not None
        place = int(self.learned.find([item])[0])
        known = int(self.learned.count[place]) if place >= 0 else 0
        return known + self.sums.since.get(item, (0, 0.0))[0]

    def of_arms(self, ids: Sequence[str]) -> ArmEffects:
        """Return the effects of the arms of a decision, in arrays that later events do not change."""
        catalogue = self._catalogue
        if ids is not catalogue.ids:
            rows = self._find_rows(ids)
        else:
            if self._whole is None or self._whole[0] != catalogue.n_changes:
                self._whole = catalogue.n_changes, self._find_rows(ids)
            rows = self._whole[1]
        return ArmEffects(self._now[0].take(rows), self._now[1].take(rows))

    def _find_rows(self, ids: Sequence[str]) -> Index:
        """Return where `_now` has these items; those it does not have are computed."""
        rows = self._rows
        try:
            return np.fromiter(map(rows.__getitem__, ids), np.intp, len(ids))
        except KeyError:
            new = [id for id in dict.fromkeys(ids) if id not in rows]
        if len(rows) + len(new) > _MOST_KEPT:
            self._forget()
            return self._find_rows(ids)
        size = self._now.shape[1]
        if len(rows) + len(new) > size:
            larger = np.empty((2, max(2 * size, len(rows) + len(new))))
            larger[:, :size] = self._now
            self._now = larger
        for id in new:
            self._now[:, len(rows)] = self._compute(id)
            rows[id] = len(rows)
        return self._find_rows(ids)

    def _compute(self, item: str) -> tuple[float, float]:
        assert self.learned is not None
        effect, variance = self.learned.get(item)
        n, total = self.sums.since.get(item, (0, 0.0))
        return add_residuals(effect, variance, n, total, self.learned.noise) if n or total else (effect, variance)

    def _forget(self) -> None:
        """Forget all effects that were computed."""
        self._rows, self._now, self._whole = {}, np.empty((2, 64)), None
