"""The row of each user in the arrays of the compiled code."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.bandits.bandit import Arms
from lcb.errors import InputError
from lcb.recommenders.recommender import Users
from lcb.stats import UserStats


class Play(NamedTuple):
    """The input of the compiled `serve` functions, which serve users one after another, each through all steps."""

    places: NDArray[np.int64]  # (B,)
    contexts: Floats  # (B, T, K, d)
    rewards: Floats  # (B, T, K)
    uniforms: Floats  # (B, T)
    arms: Arms  # (B, T), to be filled


class Places:
    """The row of each user in arrays of fixed length: past users first, then new users in the order they come."""

    def __init__(self, n_features: int, n_users: int, history: UserStats | None) -> None:
        if n_features < 1:
            raise InputError(f"n_features={n_features}; there must be at least 1")
        if n_users < 1:
            raise InputError(f"n_users={n_users}; give the number of users that will come, at least 1")
        if history is not None and history.n_features != n_features:
            raise InputError(f"history has {history.n_features} features, the context {n_features}; give both the same")
        self.n_features, self.n_users, self.history = n_features, n_users, history
        self.n_past = 0 if history is None else history.n_users
        self._place = {} if history is None else {user: i for i, user in enumerate(history.users)}
        self._name = {i: user for user, i in self._place.items()}
        self._n_taken = self.n_past

    def __len__(self) -> int:
        return self.n_past + self.n_users

    def start_stats(self) -> tuple[Floats, Floats]:
        """Return sums (n, p) and counts (n,): those of past users, zeros for new ones."""
        d = self.n_features
        stats, count = np.zeros((len(self), d * (d + 1) // 2 + d)), np.zeros(len(self))
        if self.history is not None:
            stats[: self.n_past] = self.history.packed[:-2].T
            count[: self.n_past] = self.history.count
        return stats, count

    def assign(self, user: Hashable) -> int:
        """Return the row of this user; a new user gets the next free one."""
        place = self._place.get(user)
        if place is None:
            if self._n_taken == len(self):
                raise InputError(f"no row is left for {user!r}: all n_users={self.n_users} are taken; raise n_users")
            place = self._place[user] = self._n_taken
            self._name[place] = user
            self._n_taken += 1
        return place

    def find(self, user: Hashable) -> int:
        """Return the row of a user who has started."""
        if user not in self._place:
            raise InputError(f"user {user!r} has not started; choose for them first")
        return self._place[user]

    def arrange_play(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Play:
        places = np.array([self.assign(user) for user in users], np.int64)
        contexts, rewards = np.ascontiguousarray(contexts, np.float64), np.ascontiguousarray(rewards, np.float64)
        arms = np.empty(contexts.shape[:2], np.int64)
        return Play(places, contexts, rewards, rng.random(arms.shape), arms)

    def list_names(self, places: Index) -> list[Hashable]:
        """Return the users of these rows; free rows are left out."""
        return [self._name[i] for i in places.tolist() if i in self._name]
