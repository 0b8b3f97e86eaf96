"""Counts of all users of one recommender, and sums over them that are exact.

A sum in floating point keeps the rounding of everything that was ever in it: a user with a reward of 1e9 who is erased
would leave an error behind.  These sums keep what rounding leaves over, so that adding a number and subtracting it
again gives what was there before, in any order; equal sums have equal bytes.
"""

from __future__ import annotations

from math import fsum, isfinite

from msgspec import Struct

from lcb.errors import StoreError

_MOST_WAITING = 1000


class StoredTally(Struct):
    """A tally in a snapshot; each sum is a list of numbers, which earlier versions wrote as one rounded number."""

    n_users: int
    n_decisions: int
    n_rewards: int
    reward_sum: list[float] | float
    rate_sum: list[float] | float
    rate_square_sum: list[float] | float


class Tally:
    """Counts of one recommender; a user's rate is their reward per decision.

    >>> tally = Tally()
    >>> tally.change_rate(0.0, 0.1); tally.change_rate(0.0, 1e9); tally.change_rate(1e9, 0.0)
    >>> tally.rate_sum, tally.rate_square_sum == 0.1 * 0.1
    (0.1, True)
    """

    __slots__ = ("_rates", "_rewards", "_squares", "n_decisions", "n_rewards", "n_users")

    def __init__(self) -> None:
        self.n_users = self.n_decisions = self.n_rewards = 0
        self._rewards: list[float] = []
        self._rates: list[float] = []
        self._squares: list[float] = []

    def change_rate(self, before: float, after: float) -> None:
        if before != after:
            self._rates += (after, -before)
            self._squares += (after * after, -before * before)
            if len(self._rates) > _MOST_WAITING:
                self._settle()

    def change_rewards(self, before: float, after: float) -> None:
        """Count a user's sum of rewards after a change of it."""
        self._rewards += (after, -before)
        if len(self._rewards) > _MOST_WAITING:
            self._settle()

    def remove_user(self, n_decisions: int, n_rewards: int, reward_sum: float) -> None:
        self.n_users -= 1
        self.n_decisions -= n_decisions
        self.n_rewards -= n_rewards
        self.change_rewards(reward_sum, 0.0)
        self.change_rate(reward_sum / n_decisions if n_decisions else 0.0, 0.0)

    @property
    def reward_sum(self) -> float:
        return fsum(self._rewards)

    @property
    def rate_sum(self) -> float:
        return fsum(self._rates)

    @property
    def rate_square_sum(self) -> float:
        return fsum(self._squares)

    def _settle(self) -> None:
        """Replace the numbers of each sum by few that have the same exact sum."""
        self._rewards, self._rates, self._squares = map(condense, (self._rewards, self._rates, self._squares))

    def pack(self) -> StoredTally:
        self._settle()
        sums = (self._rewards, self._rates, self._squares)
        return StoredTally(self.n_users, self.n_decisions, self.n_rewards, *map(list, sums))

    @classmethod
    def unpack(cls, stored: StoredTally) -> Tally:
        tally = cls()
        tally.n_users, tally.n_decisions, tally.n_rewards = stored.n_users, stored.n_decisions, stored.n_rewards
        sums = (stored.reward_sum, stored.rate_sum, stored.rate_square_sum)
        if not all(isinstance(one, list) for one in sums):
            raise StoreError("its sums are rounded: it was written by an earlier version")
        tally._rewards, tally._rates, tally._squares = (list(one) for one in sums if isinstance(one, list))
        if not all(map(isfinite, (*tally._rewards, *tally._rates, *tally._squares))):
            raise StoreError("a sum in it is not finite")
        return tally


def condense(numbers: list[float]) -> list[float]:
    """Return the exact sum of numbers as few numbers: the rounded sum, what rounding left over, and so on.

    The result depends on the exact sum alone.

    >>> condense([1e9, 1e-9, 0.5, -1e9]), condense([1.0, -1.0])
    ([0.500000001, 2.828193152570687e-17], [])
    """
    left, parts = list(numbers), []
    while part := fsum(left):
        parts.append(part)
        left.append(-part)
    return parts
