"""Rate limits: a token bucket per key or address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from lcb.serve.errors import Problem

_MOST = 10_000  # buckets kept


class RateLimits:
    """`rate` requests per second, with bursts of `seconds` worth; 0: no limit.  `setting` is where the rate is set.

    >>> rates = RateLimits(1.0, clock=lambda: 0.0)
    >>> rates.take("ann"), rates.take("bob")
    (None, None)
    >>> rates.take("ann")
    Traceback (most recent call last):
    lcb.serve.errors.Problem: more than 1 requests per second; wait, or raise limits.rate
    """

    def __init__(
        self,
        rate: float,
        setting: str = "limits.rate",
        *,
        seconds: float = 1.0,
        what: str = "requests",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.most, self.clock = rate, max(rate * seconds, 1.0), clock
        self._words = f"more than {rate:g} {what} per second; wait, or raise {setting}"
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count one request of `who`; Problem 429 if it exceeds the rate."""
        if not self.rate:
            return
        now, most = self.clock(), self.most
        left, then = self._left.get(who, (most, now))
        left = min(left + (now - then) * self.rate, most)
        if left < 1:
            raise Problem(429, self._words, retry_after=max(1, round((1 - left) / self.rate)))
        self._left[who] = (left - 1, now)
        self._left.move_to_end(who)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
