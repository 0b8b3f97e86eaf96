"""`ItemRows`: rewards of users for items that come again, as item effects need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lcb.arrays import Floats, Index
from lcb.event_log import EventLog
from lcb.stats import UserStats, n_packed

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class ItemRows:
    """One row per reward, sorted by user; an item has an id and features.

    A row costs 32 bytes; nothing has the size of users times items.

    >>> rows = ItemRows(("a", "b"), np.eye(2), [0, 0, 1], [0, 1, 1], [1.0, 0.0, 1.0])
    >>> rows.history().stats.moment.tolist(), rows.history(np.array([0.0, 0.5])).stats.moment.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[1.0, -0.5], [0.0, 0.5]])
    """

    ids: tuple[str, ...] = field(repr=False)
    x: Floats = field(repr=False)  # (I, d)
    user: Index = field(repr=False)  # (n,) 0, 1, ..., never falling
    item: Index = field(repr=False)  # (n,) positions in `ids`
    reward: Floats = field(repr=False)  # (n,)
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("x", np.float64), ("user", np.intp), ("item", np.intp), ("reward", np.float64)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))

    @property
    def n_users(self) -> int:
        return int(self.user[-1]) + 1

    @cached_property
    def count(self) -> Floats:
        """The number of rewards of each item, (I,)."""
        return np.bincount(self.item, minlength=len(self.ids)).astype(np.float64)

    @cached_property
    def share(self) -> Floats:
        """The weight of each row for its item's effect, (n,): the rewards of one user for one item count as one."""
        _, place, n = np.unique(self.user * len(self.ids) + self.item, return_inverse=True, return_counts=True)
        return 1 / n[place]

    @cached_property
    def n_raters(self) -> Floats:
        """The number of users with a reward for each item, (I,)."""
        return np.rint(self.sum_over_users(np.ones(len(self.item))))

    @property
    def items_repeat(self) -> bool:
        """Whether an item with rewards has those of two users or more on average, so that it can have an effect."""
        return bool(self.share.sum() >= 2 * max((self.count > 0).sum(), 1))

    def sum_by_item(self, values: Floats) -> Floats:
        """Sum values of the rows (n,) by item, (I,)."""
        return np.bincount(self.item, values, len(self.ids)).astype(np.float64)

    def sum_over_users(self, values: Floats) -> Floats:
        """Sum values of the rows (n,) by item, (I,), those of one user by their mean, so that nobody counts twice.

        >>> ItemRows(("a",), np.eye(1), [0, 0, 1], [0, 0, 0], [1.0, 0.0, 1.0]).sum_over_users(np.array([1.0, 0.0, 1.0]))
        array([1.5])
        """
        return self.sum_by_item(values * self.share)

    def history(self, effect: Floats | None = None, *, keep_rows: bool = False) -> EventLog:
        """Return the rewards less these effects (I,) as a log to learn classes from."""
        reward = self.reward if effect is None else self.reward - effect[self.item]
        d, n_users = self.x.shape[1], self.n_users
        packed = np.empty((n_packed(d), n_users))
        packed[: -d - 2] = self._gram
        packed[-d - 2 : -2] = (self._by_user(reward) @ self.x).T
        packed[-2], packed[-1] = np.bincount(self.user, reward**2, n_users), np.bincount(self.user, minlength=n_users)
        stats = UserStats(packed, d, tuple(range(n_users)), self.features)
        return EventLog(stats, rows=(self.user, self.x[self.item], reward) if keep_rows else None)

    def take_users(self, users: Index | Sequence[int]) -> ItemRows:
        """Return the rows of these users, numbered in this order; items stay as they are."""
        users, place = np.asarray(users, np.intp), np.full(self.n_users, -1)
        place[users] = np.arange(len(users))
        kept = np.flatnonzero(place[self.user] >= 0)
        kept = kept[np.argsort(place[self.user[kept]], kind="stable")]
        return replace(self, user=place[self.user[kept]], item=self.item[kept], reward=self.reward[kept])

    @cached_property
    def _gram(self) -> Floats:
        from lcb.learners.effects._rows_numba import add_grams

        d = self.x.shape[1]
        total = np.zeros((self.n_users, d * (d + 1) // 2))
        add_grams(total, self.user, self.item, np.ascontiguousarray(self.x))
        return total.T

    def _by_user(self, values: Floats) -> csr_array:
        """Values of the rows as a sparse matrix, (users, I)."""
        from scipy.sparse import csr_array

        begin = np.searchsorted(self.user, np.arange(self.n_users + 1))
        return csr_array((values, self.item, begin), shape=(self.n_users, len(self.ids)))
