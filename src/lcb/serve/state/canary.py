"""Canaries: a new version serves a share of the newcomers first, and is compared with the version before it.

    group      newcomers who were drawn for the new version; the other newcomers since then are the old version's group
    rate       reward per decision of a user
    rank       place of a rate among those of both groups, from 0 to 1; equal rates share theirs
    verdict    once `least` users of the group have a reward: withdraw if Welch's 95 % interval of the difference of
               mean ranks (new - old) lies below 0, else promote

The difference of mean ranks is P(a user of the group has the higher rate) - 1/2, where equal rates count half.  Ranks,
because one user with a huge reward would widen an interval of mean rates until nothing is found worse.

The verdict follows from the log: every replica comes to the same one, at the same event.  It is carried out by an event
of its own, so decisions depend on events alone.
"""

from __future__ import annotations

from math import fsum

import numpy as np
from msgspec import Struct

from lcb.serve.chance import draw_number
from lcb.serve.state.users import User

PROMOTED, WITHDRAWN, ENDED = "promoted", "withdrawn", "ended by another version"
_MOST = 100_000  # users that are compared


class Canary(Struct):
    """One canary of the log."""

    version: int
    old: int  # the version that the others get
    share: float  # of newcomers
    least: int  # users with a reward before the verdict
    since: int  # seq of its first event
    until: int | None = None  # seq of the event that ended it
    outcome: str | None = None

    def takes(self, seed: bytes, user: str) -> bool:
        """Whether a new user gets the new version; every replica draws the same."""
        return draw_number(seed, f"canary/{self.version}/{user}") < self.share

    def place(self, seq: int, model: int) -> int:
        """Return the place of a user whose first decision is `seq`: positive in the group, negative in the old one's.

        0: in neither.
        """
        if seq <= self.since or (self.until is not None and seq > self.until):
            return 0
        return seq if model == self.version else -seq if model == self.old else 0


class Verdict(Struct, array_like=True):
    """What the rewards say; `seq` is the event with which it was reached."""

    version: int
    promoted: bool
    seq: int
    n_users: int  # of the group
    n_others: int
    mean: float
    mean_of_others: float
    low: float  # of the interval of the difference of mean ranks
    high: float
    ranked: bool = False  # of an earlier version: low and high are of the difference of mean rates

    @property
    def reason(self) -> str:
        what = "not worse" if self.promoted else "worse"
        return (
            f"{what} than the version before it: {self.mean:.4g} per decision of {self.n_users} users, against "
            f"{self.mean_of_others:.4g} of {self.n_others} others; difference of their mean ranks (0 to 1) "
            f"{self.low:+.4g} to {self.high:+.4g}"
        )


class CanaryCounts:
    """The rates of the users of the canary that is open."""

    def __init__(self) -> None:
        self.rates: dict[int, tuple[float, bool]] = {}  # by place: rate, whether there was a reward
        self.verdict: Verdict | None = None
        self.n_rewarded = [0, 0]  # users with a reward: of the old version, of the canary

    def begin(self) -> None:
        self.restore({}, None)

    def restore(self, rates: dict[int, tuple[float, bool]], verdict: Verdict | None) -> None:
        self.rates, self.verdict = rates, verdict
        self.n_rewarded = [0, 0]
        for place, (_, rewarded) in rates.items():
            self.n_rewarded[place > 0] += rewarded

    def add(self, user: User) -> None:
        """Add a user with their first decision."""
        if user.canary and len(self.rates) < _MOST:
            self.rates[user.canary] = (0.0, False)

    def note(self, user: User) -> bool:
        """Note a user's rate after an event; False if the user is in neither group."""
        place = user.canary
        if place not in self.rates:
            return False
        rewarded = user.n_rewards > 0
        self.n_rewarded[place > 0] += rewarded - self.rates[place][1]
        self.rates[place] = (user.rate, rewarded)
        return True

    def is_due(self, canary: Canary) -> bool:
        """Whether there are enough users for a verdict, and there is none yet."""
        return self.verdict is None and self.n_rewarded[1] >= canary.least and self.n_rewarded[0] >= 2

    def judge(self, canary: Canary, seq: int) -> None:
        """Reach the verdict after an event, if the rates allow one."""
        self.verdict = self._judge(canary, seq)

    def forget(self, first: int) -> None:
        """Remove an erased user, whose first event was `first`."""
        for place in (first, -first):
            if (found := self.rates.pop(place, None)) is not None:
                self.n_rewarded[place > 0] -= found[1]

    def compare(self) -> tuple[list[float], list[float]]:
        """Return the rates of the group and of the others."""
        group = [rate for place, (rate, _) in self.rates.items() if place > 0]
        return group, [rate for place, (rate, _) in self.rates.items() if place < 0]

    def _judge(self, canary: Canary, seq: int) -> Verdict | None:
        from lcb.evaluate.two_groups import Group  # imports SciPy, which decisions do not need

        rates = self.compare()
        if not all(rates):
            return None
        ranks = _rank(rates[0] + rates[1])
        parts = ranks[: len(rates[0])], ranks[len(rates[0]) :]
        # exact sums, so that neither the order of users nor an erasure leaves rounding behind
        new, old = (Group.of_sums(len(one), fsum(one), fsum(rank * rank for rank in one)) for one in parts)
        found = new.difference_to(old)
        if found is None:
            return None
        _, low, high = found
        mean, mean_of_others = (fsum(one) / len(one) for one in rates)
        return Verdict(canary.version, not high < 0, seq, new.n, old.n, mean, mean_of_others, low, high, ranked=True)


def _rank(rates: list[float]) -> list[float]:
    """Return the place of each rate among all, from 0 to 1; equal rates share the mean of theirs.

    >>> _rank([0.5, 1e9, 0.0, 0.5])
    [0.5, 0.875, 0.125, 0.5]
    """
    _, which, counts = np.unique(rates, return_inverse=True, return_counts=True)
    ranks: list[float] = ((np.cumsum(counts) - counts / 2) / len(rates))[which].tolist()
    return ranks
