"""`EventLog`, the input of the learners: statistics of each user and, for rewards of two values, click counts.

`UserStats` is enough for the Gaussian likelihood.  The Bernoulli likelihood needs, for every user, the number of clicks
and passes at each different feature vector (an arm).  With a fixed set of arms that is a small table; if every row has
features of its own, it is as large as the rows.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.stats import StatsBuilder, UserStats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_PAIRS = 20_000_000  # with more different (user, arm) pairs, clicks are not counted; about 2 GB while counting
_FREE = 100_000  # with more different feature vectors, equal ones are no longer looked for
_BATCH = 1 << 16  # rows of a table added at a time
_PENDING = 2_000_000  # rows buffered before they are merged into counts
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clicks:
    """Counts per user and arm; a click is the higher of the two rewards.

    >>> log = EventLog.from_rows(user=["ann", "ann", "bob"], x=[[1.0], [1.0], [2.0]], reward=[1, 0, 1])
    >>> log.clicks.arms, log.clicks.clicked.toarray(), log.clicks.passed.toarray()
    (array([[1.],
           [2.]]), array([[1., 0.],
           [0., 1.]]), array([[1., 0.],
           [0., 0.]]))
    """

    arms: Floats  # (A, d) the different feature vectors
    clicked: csr_array = field(repr=False)  # (users, A)
    passed: csr_array = field(repr=False)  # (users, A)
    low: float  # the reward of a pass
    high: float  # the reward of a click

    def take(self, index: Index) -> Clicks:
        """Select the users at these positions, and the arms they took."""
        clicked, passed = self.clicked[index], self.passed[index]
        used = np.union1d(clicked.indices, passed.indices)
        return Clicks(self.arms[used], clicked[:, used], passed[:, used], self.low, self.high)


@dataclass(frozen=True, eq=False)
class EventLog:
    """Statistics of every user and, for rewards of two values, the counts of clicks."""

    stats: UserStats
    clicks: Clicks | None = None
    two_valued: bool = False  # if true and `clicks` is None, there were too many pairs to count
    rows: tuple[Index, Floats, Floats] | None = field(default=None, repr=False)  # user (n,), x (n, d), reward (n,)
    constant: float | None = None  # the reward, if all rows have the same
    hashes: NDArray[np.uint64] | None = field(default=None, repr=False)  # (users,) of their names, if from a table

    @classmethod
    def from_rows(cls, user: ArrayLike, x: ArrayLike, reward: ArrayLike, *, features: Sequence[str] = ()) -> EventLog:
        """Build a log from rows (n, d) and rewards (n,) of users (n,)."""
        UserStats.from_rows(user, x, reward, features=features)  # checks the rows
        rows = np.asarray(x, dtype=np.float64)
        builder = LogBuilder(rows.shape[1], features, keep_rows=True)
        names: Sequence[Hashable] = user if isinstance(user, list | tuple) else np.asarray(user).tolist()
        builder.add(names, rows, np.asarray(reward, dtype=np.float64))
        return builder.build()

    @classmethod
    def from_table(
        cls,
        frame: Any,
        *,
        user: str = "user",
        item: str | None = None,
        reward: str = "reward",
        features: Sequence[str] = (),
    ) -> EventLog:
        """Build a log from a DataFrame (pandas, polars, pyarrow, DuckDB) or a dictionary of columns, a row per event.

        `user` and `reward` name their columns, `features` the columns that describe what was shown (numbers, or lists
        of numbers); their names become the names of the features.  Without `features`, each `item` is a feature.

        >>> visits = {"visitor": ["ann", "ann", "bob"], "clicked": [1, 0, 1], "sport": [1.0, 0.0, 1.0]}
        >>> log = EventLog.from_table(visits, user="visitor", reward="clicked", features=["sport"])
        >>> log.stats.n_events, log.stats.users, log.stats.features
        (3, ('ann', 'bob'), ('sport',))
        """
        from lcb.frames import read_rows

        rows = read_rows(frame, user=user, item=item, reward=reward, features=features)
        builder = LogBuilder(rows.x.shape[1], rows.features, keep_rows=True)
        place = builder.add_users(rows.users)[rows.code]
        for i in range(0, len(place), _BATCH):
            part = slice(i, i + _BATCH)
            builder.add_at(place[part], rows.x[part], rows.reward[part])
        return builder.build()

    @classmethod
    def from_counts(
        cls,
        arms: Floats,
        clicked: ArrayLike,
        passed: ArrayLike,
        *,
        levels: tuple[float, float] = (0.0, 1.0),
        features: Sequence[str] = (),
    ) -> EventLog:
        """Build a log from counts (users, A): times each arm (A, d) gave the higher reward, and the lower.

        >>> log = EventLog.from_counts(np.eye(2), clicked=[[2, 0], [0, 1]], passed=[[1, 0], [0, 0]])
        >>> log.stats.count, log.stats.moment.tolist(), log.stats.gram[0].tolist()
        (array([3., 1.]), [[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 0.0]])
        """
        from scipy.sparse import csr_array

        yes, no, (low, high) = np.asarray(clicked, np.float64), np.asarray(passed, np.float64), levels
        sums, squares = high * yes + low * no, (high**2 * yes + low**2 * no).sum(axis=1)
        stats = UserStats.from_sums(arms, yes + no, sums, squares, features=features)
        return cls(stats, Clicks(arms, csr_array(yes), csr_array(no), low, high), two_valued=True)

    @property
    def n_users(self) -> int:
        return self.stats.n_users

    @property
    def n_events(self) -> int:
        return self.stats.n_events

    @property
    def n_features(self) -> int:
        return self.stats.n_features

    @property
    def features(self) -> tuple[str, ...]:
        return self.stats.features

    @property
    def arms(self) -> Floats | None:
        """The different feature vectors (A, d), if clicks are counted."""
        return None if self.clicks is None else self.clicks.arms

    @property
    def levels(self) -> tuple[float, float] | None:
        """The rewards of a pass and of a click, if clicks are counted."""
        return None if self.clicks is None else (self.clicks.low, self.clicks.high)

    @cached_property
    def order(self) -> Index | None:
        """Positions of the users by the hash of their names; None: as they stand.

        Learners draw users in this order, so that they draw the same ones wherever the table is read.
        """
        return None if self.hashes is None else np.argsort(self.hashes, kind="stable")

    def sort_arms(self) -> EventLog:
        """Return the log with the arms in the order of their features, where clicks are counted."""
        clicks = self.clicks
        if clicks is None:
            return self
        rank = np.lexsort(clicks.arms.T[::-1])
        own = replace(clicks, arms=clicks.arms[rank], clicked=clicks.clicked[:, rank], passed=clicks.passed[:, rank])
        return replace(self, clicks=own)

    def take(self, index: ArrayLike) -> EventLog:
        """Select the users at these positions (or under this mask)."""
        positions = np.asarray(index)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        clicks = self.clicks.take(positions) if self.clicks else None
        rows = self._take_rows(positions)
        return EventLog(self.stats.take(positions), clicks, self.two_valued, rows, self.constant)

    def _take_rows(self, positions: Index) -> tuple[Index, Floats, Floats] | None:
        if self.rows is None:
            return None
        owner, x, reward = self.rows
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=self.n_users))
        parts = [order[ends[user - 1] if user else 0 : ends[user]] for user in positions.tolist()]
        kept = np.concatenate(parts) if parts else order[:0]
        return np.repeat(np.arange(len(parts)), [len(part) for part in parts]), x[kept], reward[kept]


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table of events, as `EventLog.from_table` takes them."""

    user: str = "user"
    item: str | None = None
    reward: str = "reward"
    features: Sequence[str] = ()

    def read(self, data: Any) -> EventLog | UserStats:
        """Return a log or statistics as they are; read a DataFrame or a dictionary of columns."""
        if isinstance(data, EventLog | UserStats):
            if self != TableColumns():
                raise InputError(
                    f"columns are named, but the data is {type(data).__name__}; name them for a table only"
                )
            return data
        if isinstance(data, str | os.PathLike):
            raise InputError(f"{os.fspath(data)!r} is a path; read the file first: lcb.read_log(path)")
        return EventLog.from_table(
            data, user=self.user, item=self.item, reward=self.reward, features=tuple(self.features)
        )


class LogBuilder:
    """Adds rows to statistics and counts as they arrive; counting stops at a third different reward."""

    def __init__(
        self,
        n_features: int,
        features: Sequence[str] = (),
        *,
        count: bool = True,
        keep_rows: bool = False,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._stats = StatsBuilder(n_features, features, folder)
        self._watching = self._counting = count  # look for a third reward; count pairs
        self._kept: list[tuple[Index, Floats, Floats]] | None = [] if keep_rows else None
        self._values: list[float] = []  # the different rewards, in order of arrival
        self._arm_of: dict[bytes, int] | None = {}  # None if nearly every row has features of its own
        self._arms: list[Floats] = []  # blocks of rows
        self._n_arms = self._n_rows = 0
        self._pairs: list[tuple[Integers, Integers, Integers]] = []  # (user, arm), rows, of these the second reward
        self._n_pending = 0
        self._merged = False  # the first of `_pairs` is the result of a merge

    @property
    def n_users(self) -> int:
        return self._stats.n_users

    def add_users(self, users: Sequence[Hashable]) -> Index:
        """Return the columns of these users in the statistics, (n,); a new user gets the next column."""
        return self._stats.positions(users)

    def add(self, users: Sequence[Hashable], x: Floats, reward: Floats) -> None:
        """Add rows (n, d) and rewards (n,) of `users` (n names)."""
        self.add_at(self.add_users(users), x, reward)

    def add_at(self, positions: Index, x: Floats, reward: Floats) -> None:
        """Add rows whose users are given as columns (n,) of the statistics."""
        self._stats.add_at(positions, x, reward)
        if self._kept is not None:
            self._kept.append((positions, x, reward))
        if self._watching:
            self._values += [value for value in np.unique(reward)[:5].tolist() if value not in self._values][:3]
            if len(self._values) > 2:
                self._watching = False
                self._stop_counting()
        if self._counting:
            self._count(positions, x, reward)

    @property
    def rewards(self) -> tuple[float, ...]:
        """The different rewards so far; counting ends with the third, and others are not kept."""
        return tuple(self._values[:3])

    def build(
        self,
        dtype: Any = np.float64,
        users: tuple[Hashable, ...] | None = None,
        rewards: tuple[float, ...] | None = None,
    ) -> EventLog:
        """Return the log of all rows added so far; `users` are the names, if the caller has coded them.

        `rewards` are the different ones of the whole log, if these are the rows of some of its users.
        """
        if rewards is not None:
            self._values += [value for value in rewards if value not in self._values]
        stats, two_valued = self._stats.build(dtype, users), len(self._values) == 2
        rows = None
        if self._kept is not None:
            none = np.empty(0, np.intp), np.empty((0, stats.n_features)), np.empty(0)
            owner, x, reward = (np.concatenate(part) for part in zip(none, *self._kept, strict=True))
            rows = owner, x, reward
        clicks = self._build_clicks() if two_valued and self._counting and self._pairs else None
        return EventLog(stats, clicks, two_valued, rows, self._values[0] if len(self._values) == 1 else None)

    def _stop_counting(self) -> None:
        self._counting = False
        self._arm_of, self._arms, self._pairs = None, [], []

    def _count(self, positions: Index, x: Floats, reward: Floats) -> None:
        keys = (positions.astype(np.int64) << 32) | self._number_arms(np.ascontiguousarray(x + 0.0))  # -0.0 is 0.0
        second = reward != self._values[0]
        self._pairs.append((keys, np.ones(len(keys), np.int64), second.astype(np.int64)))
        self._n_pending += len(keys)
        n_merged = len(self._pairs[0][0]) if self._merged else 0
        if self._n_pending > max(_PENDING, n_merged):  # so that every pair is merged a few times, not once per batch
            self._merge()
            if len(self._pairs[0][0]) > MOST_PAIRS:
                self._stop_counting()

    def _number_arms(self, x: Floats) -> Integers:
        """Return the arm number of each row, (n,); a new feature vector gets the next number."""
        self._n_rows += len(x)
        if self._arm_of is None:
            return self._add_arms(x)
        first, inverse = find_different_rows(x)
        names = [x[place].tobytes() for place in first.tolist()]
        known = np.array([self._arm_of.get(name, -1) for name in names], np.int64)
        new = known < 0
        known[new] = self._add_arms(x[first[new]])
        self._arm_of.update(zip(names, known.tolist(), strict=True))
        if self._n_arms > max(_FREE, self._n_rows // 2):
            self._arm_of = None
        return known[inverse]

    def _add_arms(self, x: Floats) -> Integers:
        numbers = np.arange(self._n_arms, self._n_arms + len(x))
        self._arms.append(x)
        self._n_arms += len(x)
        return numbers

    def _merge(self) -> None:
        """Merge the buffered rows into one count per (user, arm)."""
        keys, n_rows, n_second = (np.concatenate(part) for part in zip(*self._pairs, strict=True))
        different, inverse = np.unique(keys, return_inverse=True)
        n_rows, n_second = (np.bincount(inverse, part).astype(np.int64) for part in (n_rows, n_second))
        self._pairs = [(different, n_rows, n_second)]
        self._n_pending, self._merged = 0, True

    def _build_clicks(self) -> Clicks:
        from scipy.sparse import csr_array

        self._merge()
        keys, n_rows, n_second = self._pairs[0]
        low, high = sorted(self._values)
        n_clicks = n_second if self._values[1] == high else n_rows - n_second
        shape, places = (self._stats.n_users, self._n_arms), (keys >> 32, keys & 0xFFFFFFFF)
        clicked = csr_array((n_clicks.astype(np.float64), places), shape)
        passed = csr_array(((n_rows - n_clicks).astype(np.float64), places), shape)
        clicked.eliminate_zeros()
        passed.eliminate_zeros()
        return Clicks(np.concatenate(self._arms), clicked, passed, low, high)


def find_different_rows(x: Floats) -> tuple[Index, Index]:
    """Return the first position of each different row, and for each row the number of the one it equals.

    Rows are compared by a random projection (sorting numbers is faster than sorting rows), verified at the end.
    """
    for seed in range(100):
        projection = x @ np.random.default_rng(seed).standard_normal(x.shape[1])
        _, first, inverse = np.unique(projection, return_index=True, return_inverse=True)
        if np.array_equal(x, x[first][inverse]):
            return first, inverse
    return np.arange(len(x)), np.arange(len(x))
