"""Lines in which the connections of each address wait for the event loop; the lines take turns.

In one turn of the event loop, connections begin at most `AT_ONCE` things, for at most `SLICE` seconds: to be set up, to
read a piece of what came, to answer a request that came with others.  Up to there everybody begins at once, which costs
a request a microsecond.  Beyond it they wait in the line of their address, and each line in turn has its first one
begin.  So whoever opens a thousand connections, and sends many requests on each, or bodies in tiny chunks, waits for
themselves; a caller from another address waits for a few turns.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from time import perf_counter

from uvicorn.protocols.http.flow_control import FlowControl

AT_ONCE = 64  # things that are begun in a turn of the event loop; answering a small request takes some 0.1 ms
SLICE = 0.01  # seconds of a turn in which they are begun; parsing a piece of tiny chunks takes milliseconds


class Lines:
    """The lines of one server, by address."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.left = AT_ONCE  # in this turn; below `AT_ONCE`, `_begin_turn` is called in the next one
        self._until = 0.0  # when the time of this turn is over, once something was begun in it
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()

    def may_begin(self, address: str) -> bool:
        """Whether `address` may begin something now, which is counted; if not, `wait`."""
        if self.left <= 0 or address in self._lines:
            return False
        if self.left < AT_ONCE and perf_counter() >= self._until:
            return False
        self.spend()
        return True

    def spend(self) -> None:
        """Count something that is begun now."""
        if self.left == AT_ONCE:
            self.loop.call_soon(self._begin_turn)
            self._until = perf_counter() + SLICE
        self.left -= 1

    def wait(self, address: str, begin: Callable[[], None]) -> None:
        """Call `begin` when it is its turn; after `may_begin` has returned False."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = deque()
        line.append(begin)

    def _begin_turn(self) -> None:
        self.left = AT_ONCE
        lines = self._lines
        while lines and self.left > 0 and (self.left == AT_ONCE or perf_counter() < self._until):
            self.spend()  # schedules the next turn first: whatever is raised below, the others go on
            address, line = lines.popitem(last=False)
            begin = line.popleft()
            if line:
                lines[address] = line  # behind the others
            begin()


class Flow(FlowControl):
    """Flow control of a connection that reads nothing while what came before waits in a line."""

    in_line = False

    def stand_in_line(self) -> None:
        self.pause_reading()
        self.in_line = True

    def leave_line(self) -> None:
        self.in_line = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.in_line:
            self.read_paused = False
            self._transport.resume_reading()
