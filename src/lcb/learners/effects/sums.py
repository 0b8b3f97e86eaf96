"""Sums over the rewards of each item that a step of item effects needs, here or on other machines.

Every user's rewards are summed alone, so the sums of some users add up with those of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lcb.arrays import Floats, Index
from lcb.event_log import EventLog
from lcb.learners.effects.rows import ItemRows
from lcb.learners.personal._steps import Parameters, expect_users
from lcb.learners.shared.users import Users
from lcb.models import LatentModels
from lcb.models.marginal import SharedNoise
from lcb.stats import upper

_SPAN = 1024  # users at a time


@dataclass(frozen=True, eq=False)
class ItemSums:
    """Of the rewards of each item, those of one user for it by their mean; `left` is of all rewards."""

    rest: Floats  # (I,) what effects and classes leave of a reward
    squares: Floats  # (I,) of it
    size: Floats  # (I,) 1 - x'P x / s2; none unless asked for
    left: Floats  # (2,) squares of what is left with the effects, and with one level for all items in their place

    def __add__(self, other: ItemSums) -> ItemSums:
        return ItemSums(
            self.rest + other.rest, self.squares + other.squares, self.size + other.size, self.left + other.left
        )


@dataclass(frozen=True, eq=False)
class SumItems:
    """Sums what these effects (I,) and classes leave; without classes, what the effects leave."""

    models: LatentModels | None
    effect: Floats
    with_size: bool = False
    level: float = 0.0

    def run(self, rows: ItemRows) -> ItemSums:
        """Return the sums over the rewards of some users."""
        fitted: Floats = np.zeros(len(rows.item))
        size: Floats = np.empty(0)
        if self.models is not None:
            fitted, spread = find_user_means(rows, self.models, self.effect, with_spread=self.with_size)
            if self.with_size:
                noise = float(self.models.pi @ self.models.sigma2)
                size = rows.sum_over_users(np.clip(1 - spread / noise, 0.0, 1.0))
        beside = rows.reward - fitted
        rest = beside - self.effect[rows.item]
        left = np.array([np.sum(rest**2), np.sum((beside - self.level) ** 2)])
        return ItemSums(rows.sum_over_users(rest), rows.sum_over_users(rest**2), size, left)


class RatedItems(Protocol):
    """Rewards of items, wherever they are; `ItemRows` are here."""

    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def x(self) -> Floats: ...  # (I, d)
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def n_users(self) -> int: ...
    @property
    def count(self) -> Floats: ...  # (I,) rewards
    @property
    def n_raters(self) -> Floats: ...  # (I,) users with a reward
    @property
    def mean(self) -> float: ...  # of all rewards
    @property
    def variance(self) -> float: ...

    def take_users(self, users: Index) -> ItemRows:
        """Return the rows of these users, here."""

    def history(self, effect: Floats) -> EventLog | Users:
        """Return the rewards less these effects (I,), to learn classes from."""

    def sum_items(self, work: SumItems) -> ItemSums:
        """Return the sums over all users."""


class LocalItems:
    """Rewards of items in this process."""

    def __init__(self, rows: ItemRows) -> None:
        self.rows = rows
        self.ids, self.x, self.features = rows.ids, rows.x, rows.features
        self.n_users, self.count, self.n_raters = rows.n_users, rows.count, rows.n_raters
        self.mean, self.variance = float(rows.reward.mean()), float(rows.reward.var())

    def take_users(self, users: Index) -> ItemRows:
        return self.rows.take_users(users)

    def history(self, effect: Floats) -> EventLog | Users:
        return self.rows.history(effect)

    def sum_items(self, work: SumItems) -> ItemSums:
        return work.run(self.rows)


def find_items(rows: ItemRows | RatedItems) -> RatedItems:
    """Return items as they are; wrap rows of this process."""
    return LocalItems(rows) if isinstance(rows, ItemRows) else rows


def find_user_means(
    rows: ItemRows, models: LatentModels, effect: Floats, *, with_spread: bool = False
) -> tuple[Floats, Floats]:
    """Return, for every row, x . m and x'P x of its user's weights given all rewards of the user, (n,) each.

    Without `with_spread` the second is empty.
    """
    from lcb.learners.effects._rows_numba import fit_rows

    fitted, spread = np.empty(len(rows.user)), np.empty(len(rows.user) if with_spread else 0)
    x = np.ascontiguousarray(rows.x)
    for users, mean, square in _find_moments(rows.history(effect), models, with_square=with_spread):
        part = slice(*np.searchsorted(rows.user, (users.start, users.stop)).tolist())
        fit_rows(rows.user[part] - users.start, rows.item[part], x, mean, square, fitted[part], spread[part])
    return fitted, spread


def _find_moments(log: EventLog, models: LatentModels, *, with_square: bool) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield users, their expected weights (n, d) and the upper triangles of E[w w'] (n, d (d + 1) / 2).

    Without `with_square` the last may be empty.
    """
    rewards = SharedNoise(log.stats)
    upper_rows, columns = upper(models.n_features)
    for start in range(0, log.n_users, _SPAN):
        users = slice(start, min(start + _SPAN, log.n_users))
        if models.personal:
            assert models.covariance is not None
            at = Parameters(models.pi, models.beta, models.covariance, models.sigma2[:1])
            yield users, *expect_users(rewards, at, users)
            continue
        resp = models.posterior(log.stats.take(np.arange(users.start, users.stop)))
        square = models.beta[:, upper_rows] * models.beta[:, columns] if with_square else np.empty((len(models.pi), 0))
        yield users, resp @ models.beta, resp @ square
