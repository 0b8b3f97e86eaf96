"""Refused requests as events of the log: one per address, key and minute, with a count.

They are counted in memory, so that an attacker cannot fill the log: at most `MOST` pairs of address and key get an
event of their own each minute, and one event has the rest.
"""

from __future__ import annotations

import asyncio

import structlog
from msgspec import Struct

from lcb.errors import LCBError
from lcb.serve.service import Service

EVERY = 60.0  # seconds
MOST = 10
_LAST = 1.0  # seconds to write them when the service ends
REFUSED = frozenset({401, 403, 421})
_REST = "other addresses"


class _Count(Struct):
    n: int = 0
    asked: dict[tuple[int, str], None] = {}  # status and route, each once; there are as many as the service has routes


class Refusals:
    """Counts of refused requests by address and key, written once a minute; `start` is called inside the event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._counts: dict[tuple[str, str | None], _Count] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, address: str, status: int, route: str, key: str | None) -> None:
        """Count a refused request; `key` is the name of its key, if that is known."""
        counts, who = self._counts, (address, key)
        if who not in counts and len(counts) >= MOST:
            who = (_REST, None)
        found = counts.get(who)
        if found is None:
            found = counts[who] = _Count()
        found.n += 1
        found.asked[status, route] = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            async with asyncio.timeout(_LAST):
                await self.flush()
        except TimeoutError:  # a store that does not answer must not delay the end
            structlog.get_logger("lcb.serve").warning("the last refusals were not stored")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self.flush()

    async def flush(self) -> None:
        """Write the counts; if the store does not take them, the operational log gets them."""
        counts, self._counts = self._counts, {}
        for (address, key), one in counts.items():
            try:
                await self.service.record_refusal(address, one.n, list(one.asked), key)
            except LCBError as error:
                log = structlog.get_logger("lcb.serve")
                log.warning("refusals not stored", address=address, n=one.n, asked=list(one.asked), error=str(error))
