"""How many requests may wait for the store: one caller, beside others, at most as many as there are places free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from lcb.serve.errors import Problem
from lcb.serve.threads import CALLER

_RECENT = 60.0  # seconds after which a caller who asked for nothing needs no place


class WaitingRoom:
    """Places for `most` entries.

    A caller who is alone may have all.  Of several each may have as many as are left free by all, so that one who asks
    for very much has half of them, and two have a third each.

    >>> room, first = WaitingRoom(8, lambda: 0.0), CALLER.set("ann")
    >>> room.n_free, room.take(2), room.n_free
    (8, 'ann', 6)
    >>> _ = CALLER.set("ben")
    >>> room.n_free, room.take(3), room.n_free
    (3, 'ben', 0)
    >>> CALLER.reset(first)
    """

    def __init__(self, most: int, monotonic: Callable[[], float]) -> None:
        self.most, self.monotonic = most, monotonic
        self.n = 0
        self._of: Counter[str] = Counter()
        self._asked: dict[str, float] = {}  # by caller: when they last asked, since others were forgotten
        self._forgot = 0.0

    @property
    def n_free(self) -> int:
        """How many more entries the caller of this request may have here."""
        caller, now = CALLER.get(), self.monotonic()
        self._asked[caller] = now
        if now - self._forgot > _RECENT:
            self._asked = {one: at for one, at in self._asked.items() if now - at <= _RECENT}
            self._forgot = now
        free = self.most - self.n
        if len(self._asked) > 1:  # what they then have may be as many as are then free
            free = (free - self._of[caller] + 1) // 2
        return max(free, 0)

    def check(self) -> None:
        """Raise Problem 503 if there is no place for the caller of this request."""
        if self.n_free <= 0:
            words = f"{self.n} requests wait for the store, {self._of[CALLER.get()]} of them yours"
            raise Problem(503, f"{words}; try again in a second", retry_after=1)

    def take(self, n: int) -> str:
        """Take `n` places; returns the caller, for `leave`."""
        caller = CALLER.get()
        self.n += n
        self._of[caller] += n
        return caller

    def leave(self, caller: str, n: int) -> None:
        self.n -= n
        self._of[caller] -= n
        if self._of[caller] <= 0:
            del self._of[caller]
