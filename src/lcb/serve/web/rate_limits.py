"""Rate limits: a token bucket per key, or per address if there are no keys."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from lcb.serve.errors import Problem

_MOST = 10_000  # buckets kept


class RateLimits:
    """`rate` requests per second, with bursts of one second's worth; 0: no limit.

    >>> rates = RateLimits(1.0, clock=lambda: 0.0)
    >>> rates.take("ann"), rates.take("bob")
    (None, None)
    >>> rates.take("ann")
    Traceback (most recent call last):
    lcb.serve.errors.Problem: more than 1 requests per second; wait, or raise limits.rate
    """

    def __init__(
        self, rate: float, setting: str = "limits.rate", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.setting, self.clock = rate, setting, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count one request of `who`; Problem 429 if it exceeds the rate."""
        if not self.rate:
            return
        now, most = self.clock(), max(self.rate, 1.0)
        left, then = self._left.get(who, (most, now))
        left = min(left + (now - then) * self.rate, most)
        if left < 1:
            detail = f"more than {self.rate:g} requests per second; wait, or raise {self.setting}"
            raise Problem(429, detail, retry_after=max(1, round((1 - left) / self.rate)))
        self._left[who] = (left - 1, now)
        self._left.move_to_end(who)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
