"""Additive statistics of each user, from which most learners learn.

    gram = sum x x'    moment = sum r x    square_sum = sum r^2    count = number of rewards

Each user is one column of p = d(d+1)/2 + d + 2 numbers: the upper triangle of `gram`, then the rest.  The Gaussian
log likelihood of a user's rewards under a class is the dot product of that column with a vector of the class's
parameters (`LatentModels.packed`).  The array is (p, users) in C order, each statistic contiguous over users, so the
two matrix products of an EM step read memory sequentially.  The columns of a class's users sum to its statistics.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from lcb.arrays import LARGEST, Floats, Index
from lcb.errors import EventError, InputError
from lcb.runtime.memory import need_memory
from lcb.runtime.on_disk import allocate

_BLOCK = 1 << 14  # users whose statistics are turned at a time


def n_packed(n_features: int) -> int:
    """Return p, the number of values per user.

    >>> n_packed(10)
    67
    """
    return n_features * (n_features + 1) // 2 + n_features + 2


@cache
def upper(n_features: int) -> tuple[Index, Index]:
    """Return the rows and columns of the upper triangle of a (d, d) matrix, in packed order."""
    return np.triu_indices(n_features)


def add_row(packed: Floats, x: Floats, reward: float) -> Floats:
    """Return the statistics (p,) of one user with one more reward."""
    rows, columns = upper(len(x))
    return packed + np.concatenate((x[rows] * x[columns], reward * x, (reward * reward, 1.0)))


def add_rows(packed: Floats, x: Floats, rewards: Floats) -> Floats:
    """Do the same as `add_row` with each of several rewards at one x, to statistics (n, p), with the same bits."""
    rows, columns = upper(len(x))
    n, products = len(rewards), x[rows] * x[columns]
    added = (np.tile(products, (n, 1)), rewards[:, None] * x, (rewards * rewards)[:, None], np.ones((n, 1)))
    return np.asarray(packed + np.concatenate(added, axis=1))


@dataclass(frozen=True, eq=False)
class UserStats:
    """The statistics of many users, one column each.

    >>> stats = UserStats.from_rows(user=["ann", "ann", "bob"], x=[[1.0], [2.0], [3.0]], reward=[1, 0, 1])
    >>> stats.users, stats.count, stats.gram[:, 0, 0], stats.moment[:, 0], stats.square_sum
    (('ann', 'bob'), array([2., 1.]), array([5., 9.]), array([1., 3.]), array([1., 1.]))
    >>> (stats + stats).count
    array([4., 2.])
    """

    packed: NDArray[Any]  # (p, users), float64 or float32
    n_features: int
    users: tuple[Hashable, ...] = field(default=(), repr=False)  # () if they have no names
    features: tuple[str, ...] = ()
    of_clicks: bool = False  # every reward is known to be 0 or 1; `fit` warns, because it models them as Gaussian

    @classmethod
    def from_rows(
        cls,
        user: ArrayLike | Sequence[Hashable],
        x: ArrayLike,
        reward: ArrayLike,
        *,
        features: Sequence[str] = (),
        dtype: DTypeLike = np.float64,
        reward_range: tuple[float, float] | None = None,
    ) -> UserStats:
        """Sum rows (n, d) and their rewards (n,) by user (n,); users keep the order of their first row."""
        names = user if isinstance(user, list | tuple) else np.asarray(user).tolist()  # 1 and "1" are two users
        try:
            rows = np.asarray(x, dtype=np.float64)
            rewards = np.asarray(reward, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise EventError(
                f"features or rewards are ragged or not numbers ({error}); give x as (n, d) and reward as (n,)"
            ) from None
        if rows.ndim != 2 or len(names) != len(rows) or rewards.shape != (len(rows),):
            raise EventError(
                f"{len(names)} users, x of shape {rows.shape}, reward {rewards.shape}; wanted n, (n, d) and (n,)"
            )
        if features and len(features) != rows.shape[1]:
            raise EventError(f"{len(features)} feature names for {rows.shape[1]} columns of x; name every column")
        if rows.size == 0:
            raise EventError(f"x has shape {rows.shape}: nothing to learn from; give at least one row and one feature")
        check_rows(rows, rewards, features=features or None, reward_range=reward_range)
        builder = StatsBuilder(rows.shape[1], features=features)
        builder.add(names, rows, rewards)
        return replace(builder.build(dtype), of_clicks=is_clicks(rewards))

    @classmethod
    def from_sums(
        cls, arms: Floats, counts: Floats, sums: Floats, square_sum: Floats, *, features: Sequence[str] = ()
    ) -> UserStats:
        """Build from a fixed set of arms (A, d): pulls and reward sums (users, A), and squared rewards (users,).

        >>> UserStats.from_sums(np.array([[1.0], [2.0]]), np.array([[1, 3]]), np.array([[1, 2]]), np.array([3])).packed
        array([[13.],
               [ 5.],
               [ 3.],
               [ 4.]])
        """
        d = arms.shape[1]
        rows, columns = upper(d)
        n = np.asarray(counts, np.float64)
        packed = np.empty((n_packed(d), len(n)))
        np.matmul((arms[:, rows] * arms[:, columns]).T, n.T, out=packed[: len(rows)])
        np.matmul(arms.T, np.asarray(sums, np.float64).T, out=packed[len(rows) : -2])
        packed[-2], packed[-1] = square_sum, n.sum(axis=1)
        return cls(packed, d, (), tuple(features))

    @property
    def n_users(self) -> int:
        return self.packed.shape[1]

    @property
    def n_events(self) -> int:
        return int(self.count.sum(dtype=np.float64))

    @property
    def gram(self) -> Floats:
        """(users, d, d)"""
        d = self.n_features
        rows, columns = upper(d)
        gram = np.empty((self.n_users, d, d), self.packed.dtype)
        gram[:, rows, columns] = self.packed[: len(rows)].T
        gram[:, columns, rows] = gram[:, rows, columns]
        return gram

    @property
    def moment(self) -> Floats:
        """(users, d)"""
        return self.packed[-self.n_features - 2 : -2].T

    @property
    def square_sum(self) -> Floats:
        """(users,)"""
        return self.packed[-2]

    @property
    def count(self) -> Floats:
        """(users,)"""
        return self.packed[-1]

    @property
    def total(self) -> UserStats:
        """The sum over all users."""
        return self._replace(self.packed.sum(axis=1, keepdims=True, dtype=np.float64), ())

    def take(self, index: ArrayLike) -> UserStats:
        """Select the users at these positions (or under this mask)."""
        positions = np.asarray(index)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        users = tuple(self.users[i] for i in positions.tolist()) if self.users else ()
        return self._replace(np.take(self.packed, positions, axis=1), users)  # in C order, as `packed[:, i]` is not

    def astype(self, dtype: DTypeLike) -> UserStats:
        return self._replace(self.packed.astype(dtype, copy=False), self.users)

    def __add__(self, other: UserStats) -> UserStats:
        """Merge the users of both; a user of both gets the sum."""
        return self._merge(other, +1.0)

    def __sub__(self, other: UserStats) -> UserStats:
        """Subtract the statistics of `other`, whose users must all be here."""
        strangers = set(other.users) - set(self.users)
        if strangers:
            raise InputError(f"user {next(iter(strangers))!r} is not in these statistics; subtract only users that are")
        return self._merge(other, -1.0)

    def _merge(self, other: UserStats, sign: float) -> UserStats:
        if other.n_features != self.n_features:
            raise InputError(f"statistics of {other.n_features} and {self.n_features} features; both need the same")
        if self.features and other.features and self.features != other.features:
            raise InputError(f"statistics of features {other.features} and {self.features}; both need the same")
        if not (self.users and other.users):
            raise InputError("statistics without user names cannot be added; build both with from_rows")
        position = {user: i for i, user in enumerate(self.users)}
        for user in other.users:
            position.setdefault(user, len(position))
        packed = np.zeros((len(self.packed), len(position)), self.packed.dtype)
        packed[:, : self.n_users] = self.packed
        packed[:, [position[user] for user in other.users]] += sign * other.packed
        return replace(self._replace(packed, tuple(position)), of_clicks=self.of_clicks and other.of_clicks)

    def _replace(self, packed: NDArray[Any], users: tuple[Hashable, ...]) -> UserStats:
        return UserStats(packed, self.n_features, users, self.features, self.of_clicks)


class StatsBuilder:
    """Adds rows to statistics as they arrive; memory grows with users, not with rows.

    With `folder`, the statistics are in files there, which may be larger than memory.
    """

    def __init__(
        self, n_features: int, features: Sequence[str] = (), folder: str | os.PathLike[str] | None = None
    ) -> None:
        self.folder = folder
        self.n_features = n_features
        self.features = tuple(features)
        self.position: dict[Hashable, int] = {}
        self._rows = np.zeros((0, n_packed(n_features)))
        self._n_added = 0  # columns given to `add_at`

    @property
    def n_users(self) -> int:
        return max(len(self.position), self._n_added)

    def positions(self, users: Sequence[Hashable]) -> Index:
        """Return the column of each of these users, (n,); a new user gets the next column."""
        position = self.position
        return np.array([position.setdefault(user, len(position)) for user in users], np.intp)

    def add(self, users: Sequence[Hashable], x: Floats, reward: Floats) -> None:
        """Add rows (n, d) and rewards (n,) of `users` (n names)."""
        self.add_at(self.positions(users), x, reward)

    def add_at(self, positions: Index, x: Floats, reward: Floats) -> None:
        """Add rows whose users are given as columns (n,), from `positions` or from codes 0, 1, ... of the caller."""
        from lcb._stats_numba import accumulate

        if not len(positions):
            return
        self._n_added = max(self._n_added, int(positions.max()) + 1)
        self._grow()
        accumulate(self._rows, positions, np.ascontiguousarray(x, np.float64), np.ascontiguousarray(reward, np.float64))

    def build(self, dtype: DTypeLike = np.float64, users: tuple[Hashable, ...] | None = None) -> UserStats:
        """Return the statistics of all rows added so far; `users` are the names, if the caller has coded them."""
        packed = allocate((self._rows.shape[1], self.n_users), dtype, self.folder)
        for i in range(0, self.n_users, _BLOCK):
            block = slice(i, min(i + _BLOCK, self.n_users))
            packed[:, block] = self._rows[block].T
        return UserStats(packed, self.n_features, tuple(self.position) if users is None else users, self.features)

    def _grow(self) -> None:
        if self.n_users > len(self._rows):
            n_rows = max(self.n_users, 2 * len(self._rows), 1024)
            if self.folder is None:
                need_memory(
                    8.0 * self._rows.shape[1] * (self.n_users + len(self._rows)),
                    f"statistics of {self.n_users:,} users or more over {self.n_features:,} features",
                    "give fewer features, learn from fewer users (--users), or keep statistics on disk (--on-disk)",
                )
            rows = allocate((n_rows, self._rows.shape[1]), np.float64, self.folder)
            rows[: len(self._rows)] = self._rows
            self._rows = rows


def check_rows(
    x: NDArray[Any],
    reward: NDArray[Any],
    *,
    place: str = "rows",
    first_row: int = 1,
    features: Sequence[str] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> None:
    """Raise EventError, naming the first row, for rows (n, d) or rewards (n,) that are not finite or too large.

    >>> check_rows(np.array([[1.0, np.nan]]), np.array([0.5]), place="clicks.csv", features=("age", "hour"))
    Traceback (most recent call last):
    lcb.errors.EventError: clicks.csv row 1: feature hour is nan; every feature must be a finite number, ...
    """
    wrong = ~(np.abs(x) <= LARGEST)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        name = features[column] if features else f"x[{column}]"
        raise EventError(
            f"{place} row {first_row + row}: feature {name} is {x[row, column]}; "
            f"every feature must be {_describe_limit(x[row, column])}, correct or drop the row"
        )
    wrong = ~(np.abs(reward) <= LARGEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise EventError(
            f"{place} row {first_row + row}: reward is {reward[row]}; "
            f"every reward must be {_describe_limit(reward[row])}, correct or drop the row"
        )
    if reward_range is not None:
        low, high = reward_range
        outside = (reward < low) | (reward > high)
        if outside.any():
            row = int(np.argmax(outside))
            raise EventError(
                f"{place} row {first_row + row}: reward {reward[row]:g} is outside the declared range "
                f"[{low:g}, {high:g}]; mend the row, or declare the range of your rewards"
            )


def is_clicks(reward: NDArray[Any]) -> bool:
    """Whether every reward is 0 or 1, and both occur.

    >>> is_clicks(np.array([0.0, 1.0])), is_clicks(np.array([0.0, 0.5]))
    (True, False)
    """
    return bool(((reward == 0) | (reward == 1)).all() and reward.min() < reward.max())


def _describe_limit(value: float) -> str:
    return f"at most {LARGEST:g} in absolute value" if np.isfinite(value) else "a finite number"
