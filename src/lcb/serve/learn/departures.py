"""Writes into the log that a user has left: one who was not seen for `learning.idle` seconds.

Only recommenders whose bandit seats users need it.  Every replica may write it; the id of the event names the user's
last event, so it is stored once.  It has no effect if the user has come back meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice, takewhile

import structlog

from lcb.errors import LCBError
from lcb.serve import events
from lcb.serve.decide.entry import Entry
from lcb.serve.errors import Problem
from lcb.serve.event_ids import event_id
from lcb.serve.log.waiting import IdTaken
from lcb.serve.read_event import read_event
from lcb.serve.service import Service
from lcb.storage.store.base import NewRow, Row

_MOST = 500  # departures written at a time
_LONGEST_PAUSE = 5.0  # seconds


class Departures:
    """Looks for users who have left, several times within `idle`; `then` is called after each look."""

    def __init__(self, service: Service, then: Callable[[], None]) -> None:
        self.service, self.then = service, then
        self.idle = service.settings.learning.idle
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start inside the event loop, if a recommender seats users."""
        if any(spec.traits.seats_users for spec in self.service.world.state.recommenders.values()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        log = structlog.get_logger("lcb.serve")
        while True:
            try:
                while await self.write_due() == _MOST:
                    pass
            except (Problem, LCBError) as error:  # the store is busy or gone; the next look tries again
                log.warning("departures could not be written", error=str(error))
            self.then()
            await asyncio.sleep(min(self.idle / 10, _LONGEST_PAUSE))

    async def write_due(self) -> int:
        """Write the departures of users who were not seen for `idle` seconds, at most 500; return how many."""
        present, until = self.service.world.mixtures.present, self.service.now() - self.idle
        seqs = list(islice(takewhile(lambda seq: present[seq] <= until, present), _MOST))
        store = self.service.store
        rows = self._read(seqs) if store.inline else await asyncio.to_thread(self._read, seqs)
        waiting = [self.service.journal.append(self._build(row)) for row in rows]
        for one in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(one, BaseException) and not isinstance(one, IdTaken):
                raise one
        return len(seqs)

    def _read(self, seqs: list[int]) -> list[Row]:
        """Read the last events of users; those erased meanwhile have none."""
        rows = (next(iter(self.service.store.events(seq - 1, seq)), None) for seq in seqs)
        return [row for row in rows if row is not None and row.user is not None]

    def _build(self, row: Row) -> Entry:
        body = events.LeaveBody(self.service.now(), read_event(row).recommender, row.seq)
        leave = NewRow(event_id("leave", row.seq), "leave", row.user, None, events.encode(body))
        return Entry(leave, body, b"", key=leave.id)
