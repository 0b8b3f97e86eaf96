"""Names of users, and their places in arrays that hold a fixed number of them, past users first."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from lcb.errors import InputError
from lcb.events import Floats
from lcb.stats import Index, UserStats


class Places:
    """Past users have the first places; new ones take the others as they come."""

    def __init__(self, n_features: int, n_users: int, history: UserStats | None) -> None:
        if n_features < 1:
            raise InputError(f"n_features={n_features}; there must be at least 1")
        if n_users < 1:
            raise InputError(f"n_users={n_users}; it is the number of users that will come, at least 1")
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
        """(n, p) sums and (n,) counts: the past users', and zeros."""
        d = self.n_features
        stats, count = np.zeros((len(self), d * (d + 1) // 2 + d)), np.zeros(len(self))
        if self.history is not None:
            stats[: self.n_past] = self.history.packed[:-2].T
            count[: self.n_past] = self.history.count
        return stats, count

    def assign(self, user: Hashable) -> int:
        """The place of this user; a new one takes the next."""
        place = self._place.get(user)
        if place is None:
            if self._n_taken == len(self):
                raise InputError(
                    f"user {user!r} is one more than the n_users={self.n_users} there is room for; "
                    "start with a larger n_users"
                )
            place = self._place[user] = self._n_taken
            self._name[place] = user
            self._n_taken += 1
        return place

    def find(self, user: Hashable) -> int:
        if user not in self._place:
            raise InputError(f"user {user!r} has not started; choose for them first")
        return self._place[user]

    def list_names(self, places: Index) -> list[Hashable]:
        """Of those who have one."""
        return [self._name[i] for i in places.tolist() if i in self._name]
