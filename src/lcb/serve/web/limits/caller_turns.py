"""Callers take turns on the event loop: one with many requests that take milliseconds each holds up nobody for long.

A request is decoded, decided and encoded without a pause.  So requests are begun for some milliseconds of each turn of
the event loop, and those that are left wait: each caller has a line, and the lines take turns.  While nobody waits, a
request costs a look at the clock more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from time import perf_counter

SLICE = 0.01  # seconds of a turn of the event loop in which requests are begun
_MOST_WOKEN = 64  # at the begin of a turn


class CallerTurns:
    """The lines of one event loop, by caller: a key, or an address."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._returned: deque[tuple[str, asyncio.Future[None]]] = deque()  # woken in this turn, found no time left
        self._until = 0.0  # when the time of this turn is over; 0: no request was begun in it
        self._n_begun = 0  # in this turn

    def may_begin(self) -> bool:
        """Whether a request may begin now, which is counted; if not, `wait`."""
        if self._lines or self._returned:
            return False
        now = perf_counter()
        if not self._until:
            self._until, self._n_begun = now + SLICE, 0
            asyncio.get_running_loop().call_soon(self._begin_turn)
        elif now >= self._until:
            return False
        self._n_begun += 1
        return True

    async def wait(self, caller: str) -> None:
        """Return when it is the turn of a request of `caller`."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = deque()
        line.append(turn := loop.create_future())
        await turn
        while self._n_begun and perf_counter() >= self._until:  # one is begun in every turn
            self._returned.append((caller, turn := loop.create_future()))
            await turn
        self._n_begun += 1

    async def pause(self, caller: str) -> None:
        """Let others begin, amid long work of `caller`; return when it is the turn of this work again."""
        if not self._until:  # nothing was begun in this turn of the event loop
            self._until, self._n_begun = perf_counter(), 0
            asyncio.get_running_loop().call_soon(self._begin_turn)
        await self.wait(caller)

    def _begin_turn(self) -> None:
        """Wake as many as may find time: at most twice as many as were begun in the turn before."""
        self._line_up_again()
        left = most = min(2 * max(self._n_begun, 1), _MOST_WOKEN)
        self._until, self._n_begun = perf_counter() + SLICE, 0
        while left and (turn := self._take_next()) is not None:
            if not turn.done():  # else its request was given up
                turn.set_result(None)
                left -= 1
        if left < most:  # the woken run in the next turn of the event loop, then this again
            asyncio.get_running_loop().call_soon(self._begin_turn)
        else:
            self._until = 0.0

    def _line_up_again(self) -> None:
        """Put those who found no time left at the head of their caller's line, and these lines first.

        Before all others they would keep other callers waiting: of quick requests of one caller many are woken, and
        if the next ones are slow, few of them find time.
        """
        while self._returned:
            caller, turn = self._returned.pop()
            self._lines.setdefault(caller, deque()).appendleft(turn)
            self._lines.move_to_end(caller, last=False)

    def _take_next(self) -> asyncio.Future[None] | None:
        """Return who is next: the first of the first line, which then goes behind the others; None if nobody waits."""
        if not self._lines:
            return None
        caller, line = self._lines.popitem(last=False)
        turn = line.popleft()
        if line:
            self._lines[caller] = line
        return turn
