"""The queue method (Mandel, Liu, Brunskill & Popovic 2015), extended to contexts as in the paper.

Every user has one queue of labels per arm, in random order.  A recommender chooses among the arms whose queues are not
empty, and gets the next label of that queue as its reward: each label is used once.  A user's labels for an arm are
exchangeable, so the rewards have the same distribution as in live use, as long as no queue is empty.  With few labels
the best arms run out first: then every recommender has to take the rest, and they all come to look alike.

Every recommender serves the same users in the same order, with the same queues: a user's j-th label for an arm is the
same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.offline.labels import QueueLabels
from lcb.event_log import EventLog
from lcb.progress import Progress, silent
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

WhenEmpty = Literal["withhold", "end"]
_QUEUES = 0x51  # part of the seed, so that queues share no random numbers with anything else


class Queue:
    """One user's labels, one queue per arm; for 0/1 labels it keeps counts and draws each label without replacement."""

    def __init__(self, labels: QueueLabels, user: int, n_steps: int, seed: int) -> None:
        rng = np.random.default_rng((seed, _QUEUES, user))
        self.left = labels.count[user].astype(np.int64)
        self.n_taken = [0] * len(self.left)
        self._levels = labels.levels
        if labels.levels:
            self._high = labels.total[user].astype(np.int64)
            self._uniform = rng.random((len(self.left), n_steps))
            return
        self._parts = _shuffle_labels(labels, user, rng)

    def take(self, arm: int) -> float:
        """Take the next label of an arm."""
        j = self.n_taken[arm]
        self.n_taken[arm] += 1
        if self._levels:
            is_high = bool(self._uniform[arm, j] * self.left[arm] < self._high[arm])
            self._high[arm] -= is_high
            self.left[arm] -= 1
            return self._levels[is_high]
        self.left[arm] -= 1
        return float(self._parts[arm][j])


@dataclass(frozen=True, eq=False)
class QueueRewards:
    """The rewards of a recommender, (users, n_steps), and the steps at which some arm had no label left."""

    rewards: Floats = field(repr=False)
    is_short: NDArray[np.bool_] = field(repr=False)


def evaluate_queue(
    recommender: Recommender,
    labels: QueueLabels,
    users: Index,
    x: Floats,
    n_steps: int,
    *,
    seed: int,
    rng: np.random.Generator,
    when_empty: WhenEmpty = "withhold",
    progress: Progress = silent,
) -> QueueRewards:
    """Serve `users` in turn with a recommender; arms have features x (A, d).

    An arm with an empty queue is not offered.  With `when_empty="end"` it is, and choosing it ends the user: the
    remaining rewards are nan.
    """
    if when_empty not in ("withhold", "end"):
        raise InputError(f"when_empty={when_empty!r}; give 'withhold' (do not offer the arm) or 'end' (end the user)")
    rewards = np.full((len(users), n_steps), np.nan)
    is_short = np.zeros(rewards.shape, bool)
    everything = np.arange(len(x))
    for i, user in enumerate(users.tolist()):
        if i % 64 == 0:
            progress("test users", i, len(users))
        queue = Queue(labels, user, n_steps, seed)
        for t in range(n_steps):
            is_short[i, t] = not queue.left.all()
            if when_empty == "end" or not is_short[i, t]:
                offered, context = everything, x
            else:
                offered = queue.left.nonzero()[0]
                if not len(offered):
                    is_short[i, t:] = True
                    break
                context = x[offered]
            decision = recommender.choose(user, context, rng)
            arm = int(offered[decision.arm])
            if not queue.left[arm]:
                break
            rewards[i, t] = queue.take(arm)
            recommender.update(user, decision, rewards[i, t])
    progress("test users", len(users), len(users))
    return QueueRewards(rewards, is_short)


def draw_uniform_history(
    labels: QueueLabels, users: Index, x: Floats, features: tuple[str, ...], n_pulls: int, rng: np.random.Generator
) -> EventLog:
    """Draw `n_pulls` arms of each user, uniformly from the non-empty queues; return their labels as training rows."""
    left = labels.count[users].astype(np.int64)
    n, sums, squares = np.zeros(left.shape), np.zeros(left.shape), np.zeros(len(users))
    high = labels.total[users].copy()
    rows = np.arange(len(users))
    parts = None if labels.levels else [_shuffle_labels(labels, user, rng) for user in users.tolist()]
    for _ in range(n_pulls):
        open_arms = np.greater(left, 0)
        able = np.asarray(open_arms.any(axis=1))
        arm = (rng.random(left.shape) * open_arms).argmax(axis=1)
        if parts is None:
            taken = np.less(rng.random(len(users)) * left[rows, arm], high[rows, arm]) & able
            high[rows, arm] -= taken
            value = taken.astype(np.float64)
        else:
            value = np.array(
                [part[a][int(n[i, a])] if able[i] else 0.0 for i, (part, a) in enumerate(zip(parts, arm, strict=True))]
            )
            squares += value**2
        n[rows, arm] += able
        sums[rows, arm] += value
        left[rows, arm] -= able
    if labels.levels:
        return EventLog.from_counts(x, sums, n - sums, levels=labels.levels, features=features)
    return EventLog(UserStats.from_sums(x, n, sums, squares, features=features))


def _shuffle_labels(labels: QueueLabels, user: int, rng: np.random.Generator) -> list[Floats]:
    """Return the user's labels for each arm, in random order."""
    assert labels.values is not None
    assert labels.first is not None
    begin, n = labels.first[user], labels.count[user]
    return [rng.permutation(labels.values[i : i + size]) for i, size in zip(begin, n, strict=True)]
