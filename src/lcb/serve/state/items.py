"""The effects of items now: what the newest version brought, and the residuals of the rewards since.

    effect, variance   of the version, or its prior for an item that it did not know
    count, sum         of r - x . m over the rewards since the version was learned; m: the user's expected weights then;
                       of one user's rewards for one item, the mean counts, so that nobody moves an item twice
    now                `lcb.models.item_effects.ItemEffects.get(item, count, sum)`

A `learning` event opens a second table of sums.  The version that is learned from the log up to that event takes it
over, so that no reward counts twice and none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from lcb.arrays import Floats, Index
from lcb.models.item_effects import ArmEffects, ItemEffects
from lcb.serve.state.catalogue import Catalogue

_MOST_SUMS = 1_000_000  # items with rewards since the last learning; those beyond wait for the next one
_MOST_KEPT = 1_000_000  # items whose effects are kept computed, beside those of the version
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
        self._known: dict[str, int]  # rows of the items that the version knew
        self._others: dict[str, int]  # and of those that came since
        self._effect: Floats  # of these rows, as of now
        self._variance: Floats
        self._noise: float  # of one residual
        self._whole: tuple[int, Index] | None  # rows of the catalogue, and after which of its changes
        self._of_whole: ArmEffects | None  # effects of the catalogue, gathered once for all decisions until a reward
        self._last: tuple[Sequence[str], Index]  # the arms of the last decision over others, and their rows
        self._begin()

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
            if len(table) >= _MOST_SUMS and item not in table:
                continue  # somebody sends ever new ids; learning begins anew
            n, total = table.get(item, (0, 0.0))
            table[item] = n + residual[0], total + residual[1]
        row = self._known.get(item)
        if row is not None or (row := self._others.get(item)) is not None:
            self._effect[row], self._variance[row] = self._compute(item)
            self._of_whole = None

    def _set_learned(self, learned: ItemEffects | None) -> None:
        self.learned = learned
        self._begin()

    # Reading

    def get(self, item: str) -> tuple[float, float]:
        """Return the effect of an item and its variance; there must be a version with effects."""
        effect, variance, _ = self.of_arms([item])
        return float(effect[0]), float(variance[0])

    def count(self, item: str) -> int:
        """Return the number of rewards that an item's effect rests on."""
        assert self.learned is not None
        place = int(self.learned.find([item])[0])
        known = int(self.learned.count[place]) if place >= 0 else 0
        return known + self.sums.since.get(item, (0, 0.0))[0]

    def of_arms(self, ids: Sequence[str], rows: Index | None = None) -> ArmEffects:
        """Return the effects of the arms of a decision, in arrays that later events do not change.

        `rows` are those of the catalogue, where they are known: its items were looked up once.
        """
        if rows is None and ids is not self._catalogue.ids:
            if ids != self._last[0]:  # the same arms are often offered to one user after another
                self._last = [*ids], self._find_rows(ids)
            return self._gather(self._last[1])
        catalogue, whole = self._catalogue, self._whole
        if whole is None or whole[0] != catalogue.n_changes:
            whole = self._whole = catalogue.n_changes, self._find_rows(catalogue.ids)
            self._of_whole = None
        if self._of_whole is None:
            self._of_whole = self._gather(whole[1])
        return self._of_whole if rows is None else self._of_whole.take(rows)

    def _gather(self, rows: Index) -> ArmEffects:
        return ArmEffects(self._effect[rows], self._variance[rows], self._noise)

    def _find_rows(self, ids: Sequence[str]) -> Index:
        """Return where `_effect` has these items; those it does not have are computed."""
        known = self._known
        try:
            return np.fromiter(map(known.__getitem__, ids), np.intp, len(ids))
        except KeyError:
            new = [id for id in dict.fromkeys(ids) if id not in known and id not in self._others]
        if self._others and len(self._others) + len(new) > _MOST_KEPT:
            self._begin()
            return self._find_rows(ids)
        self._add_rows(new)
        others = self._others
        return np.fromiter((known[id] if id in known else others[id] for id in ids), np.intp, len(ids))

    def _add_rows(self, new: list[str]) -> None:
        """Compute items that the version did not know."""
        begin, size = len(self._known) + len(self._others), len(self._effect)
        if begin + len(new) > size:
            more = np.empty(max(len(self._others), len(new), 64))
            self._effect, self._variance = np.concatenate([self._effect, more]), np.concatenate([self._variance, more])
        for row, id in enumerate(new, begin):
            self._others[id] = row
            self._effect[row], self._variance[row] = self._compute(id)

    def _compute(self, item: str) -> tuple[float, float]:
        assert self.learned is not None
        return self.learned.get(item, *self.sums.since.get(item, (0, 0.0)))

    def _begin(self) -> None:
        """Compute the items of the version anew, and forget the others."""
        learned = self.learned
        self._known = {} if learned is None else learned.rows
        self._others, self._whole, self._of_whole = {}, None, None
        self._last = (), np.empty(0, np.intp)
        self._noise = 1.0 if learned is None else learned.noise
        self._effect = np.empty(0) if learned is None else learned.effect.copy()
        self._variance = np.empty(0) if learned is None else learned.variance.copy()
        for item in self.sums.since:
            if (row := self._known.get(item)) is not None:
                self._effect[row], self._variance[row] = self._compute(item)
