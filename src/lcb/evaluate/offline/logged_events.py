"""The events of a log as arrays: user, arm, reward and propensity.

Here an arm is an item, all items are on offer at every event, and `x` (A, d) are their features.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.features import category_vectors
from lcb.storage.logs.log import Log

MOST_ITEMS = 10_000  # on offer at every event


@dataclass(frozen=True, eq=False)
class LoggedEvents:
    """Events sorted by user, then by order."""

    names: tuple[str, ...]  # of the columns of `vectors`
    vectors: Floats = field(repr=False)  # (A, C) the categories of every item, 0/1; without categories one-hot
    user: Index = field(repr=False)  # (n,) never falling
    arm: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    propensity: Floats | None = field(repr=False)  # (n,) of the arm, under the policy that wrote the log
    n_users: int

    @property
    def n_events(self) -> NDArray[np.int64]:
        """(n_users,)"""
        return np.bincount(self.user, minlength=self.n_users)

    @property
    def reward_range(self) -> tuple[float, float]:
        return float(self.reward.min()), float(self.reward.max())

    def of_users(self, users: Index, n_steps: int | None = None) -> LoggedEvents:
        """The first `n_steps` events of these users, or all."""
        chosen = np.zeros(self.n_users, bool)
        chosen[users] = True
        kept = chosen[self.user]
        if n_steps is not None:
            first = np.concatenate([[0], np.cumsum(self.n_events)[:-1]])
            kept &= np.arange(len(self.user)) - first[self.user] < n_steps
        propensity = None if self.propensity is None else self.propensity[kept]
        return replace(self, user=self.user[kept], arm=self.arm[kept], reward=self.reward[kept], propensity=propensity)

    def history(self, x: Floats, features: tuple[str, ...]) -> EventLog:
        """All events as rows for a learner."""
        builder = LogBuilder(x.shape[1], features)
        names = np.unique(self.user)
        builder.add_coded(np.searchsorted(names, self.user), names.tolist(), x[self.arm], self.reward)
        return builder.build()


def read_events(log: Log, like: float | None = None) -> LoggedEvents:
    """The events of a log, with the items' categories as vectors."""
    if log.n_items > MOST_ITEMS:
        raise InputError(
            f"{log.n_items:,} items would be on offer at every event, at most {MOST_ITEMS:,} can be; "
            "evaluate by queues, whose arms are categories"
        )
    names = log.categories or tuple(str(name) for name in log.items.to_pylist())
    member = log.item_categories.toarray() if log.categories else np.eye(log.n_items)
    vectors = category_vectors(member, "indicator")
    propensity = None if log.propensity is None else log.propensity.astype(np.float64)
    return LoggedEvents(
        names=names,
        vectors=vectors,
        user=log.user.astype(np.intp),
        arm=log.item.astype(np.intp),
        reward=log.labels(like).astype(np.float64),
        propensity=propensity,
        n_users=log.n_users,
    )
