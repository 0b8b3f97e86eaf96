"""Erasures of a running service, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.log.journal import Journal
from lcb.serve.log.waiting import WorldBehindLog
from lcb.serve.retain.erase import Compacted, Erasure
from lcb.storage.store.base import Appended, Row

_MOST = 64  # that wait for each other


class Erasures:
    """Erases users in log and archive; used inside the event loop.

    One at a time: an erasure waits in a thread for the files of the archive, and needs another thread to go on, which
    it would not get while others wait in all of them.
    """

    def __init__(
        self, journal: Journal, archive: Path | None, now: Callable[[], float], new_id: Callable[[], str]
    ) -> None:
        self.journal, self.world, self.store = journal, journal.world, journal.store
        self.archive, self.now, self.new_id = archive, now, new_id
        self._turn, self._n = asyncio.Lock(), 0

    async def erase(self, user: str, by: events.Actor | None) -> int:
        """Erase a user; returns the number of events.  Problem 404 if there is none, 503 if too many wait."""
        if self._n >= _MOST:
            raise Problem(503, f"{self._n} erasures are under way; try again in 5 s", retry_after=5)
        self._n += 1
        try:
            async with self._turn:
                return await self._erase_next(user, by)
        finally:
            self._n -= 1

    async def _erase_next(self, user: str, by: events.Actor | None) -> int:
        self.world.begin_erasing(user)
        try:
            while True:
                erasure = Erasure(self.world, user, self.archive, self.now(), self.new_id, by)
                has_archive = self.archive is not None and self.archive.is_dir()
                large = not self.store.inline or self.world.loader.is_large(user, self.world.seq)
                if large or has_archive or self.world.state.compacted is not None:
                    await asyncio.to_thread(erasure.begin, self.store)
                try:
                    return await self._store(erasure)
                except Compacted:
                    erasure.abandon()
                    await self.journal.run(lambda store, seen: Appended(list(store.events(seen)), frozenset()))
                except BaseException:
                    erasure.abandon()
                    raise
        finally:
            self.world.cache.end_erasing(user)

    async def _store(self, erasure: Erasure) -> int:
        found = 0

        def rewrite(rows: list[Row]) -> Any:
            nonlocal found
            if not rows:
                raise Problem(404, f"no user {erasure.user!r}; check the id", field="user")
            if not self.store.inline and rows[-1].seq > self.world.seq:
                raise WorldBehindLog
            rewrites, event = erasure.rewrite(self.store, rows)
            found = len({*(one.seq for one in rewrites), *(row.seq for row, _ in erasure.archived)})
            return rewrites, event

        await self.journal.run(lambda store, seen: store.erase(erasure.user, rewrite, seen, erasure.archived_ids))
        if erasure.base is not None:
            await asyncio.to_thread(erasure.finish)
        return found
