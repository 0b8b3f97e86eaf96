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
        shown = f"{rate:g} {what} per second" if rate >= 1 else f"{60 * rate:g} {what} per minute"
        self._words = f"more than {shown}; wait, or raise {setting}"
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

    def add(self, who: str, n: int) -> None:
        """Count `n` more requests of `who`, who has just been let in; they may make the next one wait.

        >>> rates = RateLimits(2.0, clock=lambda: 0.0)
        >>> rates.take("ann"), rates.add("ann", 9)
        (None, None)
        >>> rates.take("ann")
        Traceback (most recent call last):
        lcb.serve.errors.Problem: more than 2 requests per second; wait, or raise limits.rate
        """
        if self.rate:
            left, then = self._left.get(who, (self.most, self.clock()))
            self._left[who] = (left - n, then)
