"""Labels of each user and arm, for the queue method; an arm is a category of items.  A log can be read in two ways:

    labels     each event has a reward (or a rating, 1 if at least `like`): a label for every arm of its item
    choices    each event is an item that the user took: a label 1 for every arm of the item, 0 for all other arms

A user's labels for an arm have no order (queues shuffle them), so labels of two values are kept as counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.runtime.memory import need_memory
from lcb.stats import UserStats
from lcb.storage.logs.log import Log
from lcb.words import format_count

Reading = Literal["labels", "choices"]
READINGS = ("labels", "choices")
Counts = NDArray[np.int32]
_BYTES = 40.0  # of a user and arm: counts, sums and places, and what they are made of


@dataclass(frozen=True, eq=False)
class QueueLabels:
    """The labels of every user and arm.  `values` and `first` are there only if labels have more than two values."""

    arms: tuple[str, ...]
    vectors: Any = field(repr=False)  # (n_items, A) sparse 0/1: the arms of every item
    count: Counts = field(repr=False)  # (U, A) number of labels
    total: Floats = field(repr=False)  # (U, A) sum of the labels; with two values, the number of the higher
    n_events: NDArray[np.int64] = field(repr=False)  # (U,) events whose item has an arm
    logged: Floats = field(repr=False)  # (U, 2) sum and number of the rewards in the log
    levels: tuple[float, float] | None  # the two values; None if there are more
    values: Floats | None = field(default=None, repr=False)  # all labels, sorted by user and arm
    first: NDArray[np.int64] | None = field(default=None, repr=False)  # (U, A) position of the first label in `values`
    item_of_event: Index = field(default_factory=lambda: np.empty(0, np.intp), repr=False)
    user_of_event: Index = field(default_factory=lambda: np.empty(0, np.intp), repr=False)

    @property
    def n_users(self) -> int:
        return len(self.count)

    @property
    def reward_range(self) -> tuple[float, float]:
        if self.levels:
            return self.levels
        assert self.values is not None
        return float(self.values.min()), float(self.values.max())

    def logged_rate(self, users: Index) -> float:
        """Return the mean reward of these users in the log."""
        total, n = self.logged[users].sum(axis=0)
        return float(total / n)

    def count_items(self, users: Index) -> tuple[Floats, Floats]:
        """Return the arms of every item, 0/1 (n_items, A), and the number of these users' events with it (n_items,)."""
        chosen = np.zeros(self.n_users, bool)
        chosen[users] = True
        n = np.bincount(self.item_of_event[chosen[self.user_of_event]], minlength=self.vectors.shape[0])
        return self.vectors.toarray().astype(np.float64), n.astype(np.float64)

    def history(self, users: Index, x: Floats, features: tuple[str, ...], *, keep_rows: bool = False) -> EventLog:
        """Return all labels of these users as training rows, with the arms' features x (A, d)."""
        if self.levels:
            high = self.total[users]
            return EventLog.from_counts(x, high, self.count[users] - high, levels=self.levels, features=features)
        assert self.values is not None
        assert self.first is not None
        n = self.count[users].astype(np.float64)
        ends = self.first[users, -1] + self.count[users, -1]
        squares = np.array([(self.values[a:b] ** 2).sum() for a, b in zip(self.first[users, 0], ends, strict=True)])
        stats = UserStats.from_sums(x, n, self.total[users], squares, features=features)
        if not keep_rows:
            return EventLog(stats)
        user, arm, value = self.take_values(users)
        return EventLog(stats, rows=(user, x[arm], value))

    def take_values(self, users: Index) -> tuple[Index, Index, Floats]:
        """Return the place of the user, the arm and the value of every label of these users, more than two values."""
        assert self.values is not None
        assert self.first is not None
        count = self.count[users].astype(np.int64)
        n = count.sum(axis=1)
        user = np.repeat(np.arange(len(users)), n)
        arm = np.repeat(np.tile(np.arange(count.shape[1]), len(users)), count.ravel())
        place = np.arange(len(user)) + np.repeat(self.first[users, 0] - (np.cumsum(n) - n), n)
        return user, arm, self.values[place]


def default_reading(log: Log, like: float | None) -> Reading:
    """Return "labels" if the log has rewards (or ratings, with `like`), else "choices"."""
    if like is not None or log.reward is not None:
        return "labels"
    if log.rating is not None:
        raise InputError("the log has ratings; give --like R (an item rated R or more is liked), or --reading choices")
    return "choices"


def read_labels(log: Log, reading: Reading, like: float | None = None, most_arms: int = 100) -> QueueLabels:
    """Read the labels of a log; `like` is the smallest rating that counts as liked."""
    if reading not in READINGS:
        raise InputError(f"reading {reading!r}; give labels (events have rewards) or choices (events are items taken)")
    if reading == "choices" and like is not None:
        raise InputError(f"like {like:g} with reading choices, which ignores ratings; leave like out, or read labels")
    names, vectors = log.arms(most_arms)
    need_memory(
        _BYTES * log.n_users * len(names),
        f"labels of {log.n_users:,} users for {format_count(len(names), 'category')}",
        "give items fewer categories, or evaluate over items (--arms items)",
    )
    has_arm = np.diff(vectors.indptr)[log.item] > 0
    user, item = log.user[has_arm].astype(np.intp), log.item[has_arm].astype(np.intp)
    if not len(user):
        raise InputError("no event has an item with an arm; give items with categories")
    n_events = np.bincount(user, minlength=log.n_users)
    event, arm = vectors[item].nonzero()
    owner = user[event]
    place = owner * len(names) + arm
    common = {"arms": names, "vectors": vectors, "n_events": n_events, "item_of_event": item, "user_of_event": user}
    shape = log.n_users, len(names)
    if reading == "choices":
        total = _sum_at(place, None, shape)
        count = np.broadcast_to(n_events[:, None], shape).astype(np.int32)
        logged = np.column_stack([total.sum(axis=1), count.sum(axis=1)])
        return QueueLabels(count=count, total=total, logged=logged, levels=(0.0, 1.0), **common)
    label = log.labels(like)[has_arm].astype(np.float64)
    logged = np.column_stack([np.bincount(user, label, log.n_users), n_events])
    count = _sum_at(place, None, shape).astype(np.int32)
    different = np.unique(label)
    if len(different) < 2:
        other = "log other rewards" if like is None else f"choose a --like other than {like:g}"
        raise InputError(f"every label is {different[0]:g}, so no algorithm can do better than another; {other}")
    if len(different) == 2:
        high = (label[event] == different[1]).astype(np.float64)
        levels = float(different[0]), float(different[1])
        return QueueLabels(count=count, total=_sum_at(place, high, shape), logged=logged, levels=levels, **common)
    values = label[event][np.argsort(place, kind="stable")]
    first = (np.cumsum(count.ravel()) - count.ravel()).reshape(shape)
    total = _sum_at(place, label[event], shape)
    return QueueLabels(count=count, total=total, logged=logged, levels=None, values=values, first=first, **common)


def _sum_at(place: Index, weight: Floats | None, shape: tuple[int, int]) -> Floats:
    """Sum `weight` (or count) at flat positions of a (U, A) table."""
    return np.bincount(place, weight, shape[0] * shape[1]).reshape(shape).astype(np.float64)
