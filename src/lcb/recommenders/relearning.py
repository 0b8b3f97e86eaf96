"""Shared by recommenders that relearn: when to learn, who serves the first users, and the rows to learn from.

    schedule = Schedule(n_warmup_users=50, retrain_every=20)
    schedule.is_due(n_users)               before a new user starts: True after 50 users, then after every 20
    schedule.plan_next(n_users)            after each training

The first `n_warmup_users` are served by a bandit that needs no training (`build_warmup`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, Bandit
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Users

_NO_LIMIT = 1 << 62


class Schedule:
    """Training is due after `n_warmup_users`, then after every `retrain_every` new users (None: never again).

    With `trained` there is no warm-up, because models are given at the start.

    >>> schedule = Schedule(n_warmup_users=3, retrain_every=None)
    >>> schedule.is_due(2), schedule.n_users_until_due(2), schedule.is_due(3)
    (False, 1, True)
    >>> schedule.plan_next(3, succeeded=False)                       # too few data: try again after 3 more users
    >>> schedule.is_due(5), schedule.is_due(6)
    (False, True)
    >>> schedule.plan_next(6)
    >>> schedule.is_due(1000)
    False
    """

    def __init__(self, n_warmup_users: int, retrain_every: int | None, *, trained: bool = False) -> None:
        if retrain_every is not None and retrain_every < 1:
            raise InputError(f"retrain_every={retrain_every}; give a number of users, at least 1, or None for never")
        if not trained and n_warmup_users < 1:
            raise InputError(f"n_warmup_users={n_warmup_users}; without past users it must be at least 1")
        self.n_warmup_users = 0 if trained else n_warmup_users
        self.retrain_every = retrain_every
        self._next = retrain_every if trained else n_warmup_users  # users at which training is next due; None: never

    def is_due(self, n_users: int, n_rewarded: int | None = None) -> bool:
        """Whether to train before the next user starts, given the numbers of users who started and who have a reward.

        Warm-up continues while fewer than `n_warmup_users` have a reward.
        """
        enough = n_rewarded is None or n_rewarded >= self.n_warmup_users
        return enough and self._next is not None and n_users >= self._next

    def n_users_until_due(self, n_users: int) -> int:
        """Return how many users can start before the next training, at least 1."""
        return _NO_LIMIT if self._next is None else max(1, self._next - n_users)

    def plan_next(self, n_users: int, *, succeeded: bool = True) -> None:
        """Plan the next training after one at `n_users`; after a failed one there is always another."""
        wait = self.retrain_every or (None if succeeded else self.n_warmup_users)
        self._next = None if wait is None else n_users + wait


def build_warmup(warmup: str, bandit: Bandit | None, n_features: int) -> Pooled | Individual:
    """Build the recommender of the first users: one bandit for all, or one each; LinUCB if none is given."""
    if warmup not in ("pooled", "individual"):
        raise InputError(f"warmup={warmup!r}; it is 'pooled' (one LinUCB for all) or 'individual' (one each)")
    return (Pooled if warmup == "pooled" else Individual)(bandit or LinUCB(n_features))


def serve_between_trainings(
    serve_part: Callable[[Users, Floats, Floats, np.random.Generator], Arms],
    train_if_due: Callable[[], int],
    users: Users,
    contexts: Floats,
    rewards: Floats,
    rng: np.random.Generator,
) -> Arms:
    """Serve new users in parts, with no training within a part; `train_if_due` returns the largest size of a part."""
    arms = np.empty(contexts.shape[:2], np.int64)
    i = 0
    while i < len(users):
        part = slice(i, i + min(len(users) - i, train_if_due()))
        arms[part] = serve_part(users[part], contexts[part], rewards[part], rng)
        i = part.stop
    return arms


def select_taken_rows(
    users: Users, contexts: Floats, rewards: Floats, arms: Arms
) -> tuple[list[Hashable], Floats, Floats]:
    """Return users, x (rows, d) and rewards (rows,) of `arms` (B, T), the arms taken in the first T steps."""
    n_steps = arms.shape[1]
    taken = np.take_along_axis(contexts[:, :n_steps], arms[..., None, None], axis=2)[:, :, 0]
    received = np.take_along_axis(rewards[:, :n_steps], arms[..., None], axis=2)
    names = [user for user in users for _ in range(n_steps)]
    return names, taken.reshape(len(names), -1), received.ravel()
