"""Bounds the memory that large answers take together, from when they are computed until they are sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from lcb.serve.errors import Problem

SMALL = 100_000  # bytes of an answer that needs no room
_MOST = 64_000_000
_PATIENCE = 5.0  # seconds


class AnswerRoom:
    """Room for large answers; those that find none wait in line.  An answer larger than all of it takes all of it."""

    def __init__(self, most: int = _MOST) -> None:
        self.most, self.taken = most, 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> Callable[[], None]:
        """Wait for room; return what gives it back.  Problem 503 if there is none for 5 s."""
        if size <= SMALL:
            return lambda: None
        size = min(size, self.most)
        if self._line or self.taken + size > self.most:
            place = size, asyncio.get_running_loop().create_future()
            self._line.append(place)
            try:
                await asyncio.wait_for(asyncio.shield(place[1]), _PATIENCE)
            except BaseException as error:
                if place in self._line:
                    self._line.remove(place)
                else:  # it was given meanwhile
                    self._give(size)
                if isinstance(error, TimeoutError):
                    words = f"answers of {self.taken / 1e6:.0f} MB are computed or not read yet; send smaller batches"
                    raise Problem(503, words, retry_after=1) from None
                raise
        else:
            self.taken += size
        return lambda: self._give(size)

    def _give(self, size: int) -> None:
        self.taken -= size
        while self._line and self.taken + self._line[0][0] <= self.most:
            next_size, place = self._line.popleft()
            self.taken += next_size
            place.set_result(None)
