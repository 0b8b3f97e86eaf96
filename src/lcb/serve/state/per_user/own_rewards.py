"""What one user's rewards add up to while rewards change, without a fold of the user for each change.

Rewards, and the residuals of an item, are added up as a fold adds them, in the order of the first rewards, so the sums
have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lcb.serve import events
from lcb.serve.base_bodies import BaseBody
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.read_event import read_event
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.users import User, find_own
from lcb.storage.store.base import Row


class RunningSum:
    """Numbers added up one after another, each rounded: a change adds up again what follows it.

    >>> total = RunningSum(0.5)
    >>> total.append(0.25); total.append(1.0); total.change(1, 0.125)
    >>> float(total), len(total)
    (1.625, 3)
    """

    def __init__(self, *numbers: float) -> None:
        self._numbers = np.array([*numbers, *[0.0] * 8])
        self._sums = np.zeros(len(self._numbers))  # up to each number
        self._n, self._n_added = len(numbers), 0  # numbers; those whose sums are right

    def __len__(self) -> int:
        return self._n

    def append(self, number: float) -> None:
        if self._n == len(self._numbers):
            self._numbers, self._sums = (
                np.concatenate((one, np.zeros(self._n))) for one in (self._numbers, self._sums)
            )
        self._numbers[self._n] = number
        self._n += 1

    def change(self, i: int, number: float) -> None:
        self._numbers[i] = number
        self._n_added = min(self._n_added, i)

    def __float__(self) -> float:
        """Return the sum of all, of which there must be at least one."""
        first = self._n_added
        if first < self._n:
            later = self._numbers[first : self._n]
            if first:
                later = np.concatenate((self._sums[first - 1 : first], later))
            self._sums[max(first - 1, 0) : self._n] = np.add.accumulate(later)
            self._n_added = self._n
        return float(self._sums[self._n - 1])


class OwnRewards:
    """The rewards of one user for items with effects, from all of the user's events, taken in order."""

    def __init__(self, fold: UserFold, rows: Iterable[Row] = ()) -> None:
        self._fold = fold
        self._base: User | None = None  # what a compaction has left
        self._sums: dict[str, tuple[float, RunningSum]] = {}  # by item: residuals that the base has, and the sum of all
        self._places: dict[str, tuple[RunningSum, int, float]] = {}  # by slot: where its residual is, expected reward
        self.take_all(rows)

    def take_all(self, rows: Iterable[Row]) -> None:
        """Take the rewards among events of the user, and a base."""
        for row in rows:
            if row.kind in ("base", "reward"):
                self.take(row, read_event(row))

    def take(self, row: Row, body: BaseBody | events.RewardBody) -> None:
        """Count a reward, or change one; a base row is in place of all events before it."""
        if isinstance(body, BaseBody):
            self._base, self._sums, self._places = User.unpack(body.user), {}, {}
            return
        slot = slot_of_reward(row.id)
        if body.before is not None:
            if slot in self._places:
                total, i, mean = self._places[slot]
                total.change(i, body.reward - mean)
        elif body.mean is not None and self._fold.is_teaching(row, body):
            _, total = self._find_sum(body.item or "")
            self._places[slot] = total, len(total), body.mean
            total.append(body.reward - body.mean)

    def _find_sum(self, item: str) -> tuple[float, RunningSum]:
        found = self._sums.get(item)
        if found is None:
            count, total = (0.0, 0.0) if self._base is None else find_own(self._base.residuals, item)
            found = self._sums[item] = (count, RunningSum(total)) if count else (0.0, RunningSum())
        return found

    def weigh(self, item: str) -> tuple[int, float]:
        """Return the same as `weigh_own` of the folded user."""
        in_base, total = self._find_sum(item)
        if not len(total):
            return 0, 0.0
        count = in_base + len(total) - (in_base > 0)
        return 1, float(total) / count
