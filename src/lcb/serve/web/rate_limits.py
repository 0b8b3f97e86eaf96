"""How often each key, or each address where there are no keys, may ask: a bucket of tokens filled by a steady clock."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from lcb.serve.errors import Problem

_MOST = 10_000


class Rates:
    """`rate` requests a second, and a second's worth at once; 0 for any number.

    >>> rates = Rates(1.0, clock=lambda: 0.0)
    >>> rates.take("ann"), rates.take("bob")
    (None, None)
    >>> rates.take("ann")
    Traceback (most recent call last):
    lcb.serve.errors.Problem: more than 1 requests a second; wait, or raise limits.rate
    """

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """One request of `who`, or a Problem."""
        if not self.rate:
            return
        now, most = self.clock(), max(self.rate, 1.0)
        left, then = self._left.get(who, (most, now))
        left = min(left + (now - then) * self.rate, most)
        if left < 1:
            words = f"more than {self.rate:g} requests a second; wait, or raise limits.rate"
            raise Problem(429, words, retry_after=max(1, round((1 - left) / self.rate)))
        self._left[who] = (left - 1, now)
        self._left.move_to_end(who)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
