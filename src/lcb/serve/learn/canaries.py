"""Carries out the verdict on a canary: promotes its version, or withdraws it, by an event of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.storage.store.base import Row


class Canaries:
    """Watches a service whose settings ask for canaries, or whose log has an open one."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start inside the event loop; the verdict may have been reached before a crash."""
        if self.service.settings.learning.canary or self.service.world.state.canary is not None:
            self.service.watchers.watch_batches(self._watch, events.KINDS, self._end_if_due)
            self._end_if_due()

    async def stop(self) -> None:
        self.service.watchers.unwatch(self._watch)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _watch(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        self._end_if_due()

    def _end_if_due(self) -> None:
        if self._task is None and self.service.world.canary.verdict is not None:
            self._task = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        verdict, log = self.service.world.canary.verdict, structlog.get_logger("lcb.serve")
        try:
            if verdict is not None and await self.service.end_canary(verdict):
                what = "a canary was promoted" if verdict.promoted else "a canary was withdrawn"
                log.info(what, version=verdict.version, reason=verdict.reason)
        except Problem as problem:  # the store does not answer; tried again with the next event
            log.warning("the verdict on a canary could not be stored", error=str(problem))
        finally:
            self._task = None
