"""The events of a log as arrays: user, arm, reward and propensity.

An arm is an item; `x` (A, d) are the features of the items.  Without `offers`, every event could have shown every item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.storage.logs.log import Log
from lcb.storage.logs.offers import Offers

MOST_ITEMS = 10_000


@dataclass(frozen=True, eq=False)
class LoggedEvents:
    """Events sorted by user, then by order."""

    names: tuple[str, ...]  # of the columns of `vectors`
    vectors: Floats = field(repr=False)  # (A, C) 0/1, the categories of every item; one-hot if there are none
    user: Index = field(repr=False)  # (n,) sorted
    arm: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    propensity: Floats | None = field(repr=False)  # (n,) of the arm, under the policy that wrote the log
    n_users: int
    offers: Offers | None = field(default=None, repr=False)

    @property
    def n_events(self) -> NDArray[np.int64]:
        """(n_users,)"""
        return np.bincount(self.user, minlength=self.n_users)

    @property
    def reward_range(self) -> tuple[float, float]:
        return float(self.reward.min()), float(self.reward.max())

    def of_users(self, users: Index, n_steps: int | None = None) -> LoggedEvents:
        """Select the first `n_steps` events (all, if None) of each of these users."""
        chosen = np.zeros(self.n_users, bool)
        chosen[users] = True
        kept = chosen[self.user]
        if n_steps is not None:
            first = np.concatenate([[0], np.cumsum(self.n_events)[:-1]])
            kept &= np.arange(len(self.user)) - first[self.user] < n_steps
        propensity = None if self.propensity is None else self.propensity[kept]
        offers = None if self.offers is None else self.offers.take(kept)
        user, arm, reward = self.user[kept], self.arm[kept], self.reward[kept]
        return replace(self, user=user, arm=arm, reward=reward, propensity=propensity, offers=offers)

    def history(self, x: Floats, features: tuple[str, ...], *, keep_rows: bool = False) -> EventLog:
        """Return all events as training rows."""
        builder = LogBuilder(x.shape[1], features, keep_rows=keep_rows)
        names = np.unique(self.user)
        builder.add_at(np.searchsorted(names, self.user), x[self.arm], self.reward)
        return builder.build(users=tuple(names.tolist()))


def read_events(log: Log, like: float | None = None) -> LoggedEvents:
    """Read the events of a log, with the items' categories as vectors."""
    if log.n_items > MOST_ITEMS:
        raise InputError(
            f"{log.n_items:,} items would be the arms of every event, at most {MOST_ITEMS:,} are possible; "
            "use method queue, whose arms are categories"
        )
    names = log.categories or tuple(str(name) for name in log.items.to_pylist())
    member = log.item_categories.toarray() if log.categories else np.eye(log.n_items)
    return LoggedEvents(
        names=names,
        vectors=member.astype(np.float64),
        user=log.user.astype(np.intp),
        arm=log.item.astype(np.intp),
        reward=log.labels(like).astype(np.float64),
        propensity=None if log.propensity is None else log.propensity.astype(np.float64),
        n_users=log.n_users,
        offers=log.offers,
    )
