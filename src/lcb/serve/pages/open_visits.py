"""The budget of open visits: visitors without a key may begin only so many visits that they do not finish.

Counted in memory, for each process of its own; an hour after it began, a visit no longer counts.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from lcb.serve.errors import Problem

_HOUR = 3600.0
_PER_ADDRESS = 20  # an address may have one in so many


class OpenVisits:
    """Up to `most` open visits, of which one address has at most a twentieth."""

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.most_each, self.clock = most, max(1, most // _PER_ADDRESS), clock
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()  # visitor -> address, when it began
        self._of_address: Counter[str] = Counter()

    def begin(self, name: str, address: str) -> None:
        """Count a new visit; Problem 429 if too many are open."""
        now = self.clock()
        while self._open and now - next(iter(self._open.values()))[1] > _HOUR:
            self.end(next(iter(self._open)))
        if name in self._open:
            return
        if len(self._open) >= self.most or self._of_address[address] >= self.most_each:
            n, where = self._of_address[address], " from your address"
            if len(self._open) >= self.most:
                n, where = len(self._open), ""
            detail = f"{n} visits are open{where}; finish one, wait an hour, or raise limits.open_visits"
            raise Problem(429, detail, retry_after=60)
        self._open[name] = address, now
        self._of_address[address] += 1

    def end(self, name: str) -> None:
        """A visit is finished; one that is not open is left alone."""
        address, _ = self._open.pop(name, (None, 0.0))
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
