"""Large bodies of each caller wait for each other: reading one takes the event loop some 20 ms per MB."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from lcb.serve.errors import Problem

LARGE = 100_000  # bytes; smaller bodies never wait
RATE, BURST = 16_000_000, 8_000_000  # bytes in a second, and at once
PATIENCE = 5.0  # seconds
_MOST = 10_000  # callers


class BodyTurns:
    """Lets a caller's large bodies be read at `RATE`: the next waits, or is refused with 503 if that takes too long.

    >>> turns = BodyTurns(clock=lambda: 0.0)
    >>> [turns.reserve("ann", 4_000_000) for _ in range(4)], turns.reserve("ben", 4_000_000)
    ([0.0, 0.0, 0.0, 0.25], 0.0)
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.clock, self.sleep = clock, sleep
        self._busy: OrderedDict[str, float] = OrderedDict()  # by caller: until when their bodies take the loop

    async def take(self, caller: str, n_bytes: int) -> None:
        """Wait until a large body of `caller` may be read."""
        if (wait := self.reserve(caller, n_bytes)) > 0:
            await self.sleep(wait)

    def reserve(self, caller: str, n_bytes: int) -> float:
        """Return how many seconds a body must wait, and count it; Problem 503 if that are too many."""
        now = asyncio.get_running_loop().time() if self.clock is None else self.clock()
        busy = max(self._busy.get(caller, now), now)
        wait = max(busy - now - BURST / RATE, 0.0)
        if wait > PATIENCE:
            words = f"large bodies of yours would wait for {wait:.0f} s; send less at a time, or this again in 5 s"
            raise Problem(503, words, retry_after=5)
        self._busy[caller] = busy + n_bytes / RATE
        self._busy.move_to_end(caller)
        if len(self._busy) > _MOST:
            self._busy.popitem(last=False)
        return wait
