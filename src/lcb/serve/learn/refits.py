"""Refits the mixtures of a service in a child process while the service goes on.

A refit is due when enough users have left since the last one (`ServedMixture.is_refit_due`).  Its begin is an event,
and its result another one; users who leave or come back in between are applied to the result.  Only one replica refits,
one mixture at a time.  If it fails, the mixture that is served goes on, and the next try waits a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import structlog

from lcb.errors import LCBError
from lcb.serve import events
from lcb.serve.decide.entry import Entry
from lcb.serve.event_ids import event_id
from lcb.serve.learn.job import Job, JobResult
from lcb.serve.learn.process import Failed, NotYet, run_job, worker_command
from lcb.serve.observe.metrics import Metrics
from lcb.serve.service import Service
from lcb.serve.state.packed_mixture import unpack_mixture
from lcb.storage.store.base import NewRow, Row

_PAUSE = 60.0  # seconds until the next try after a failure
_ELSEWHERE = 5.0  # seconds before looking again whether another replica refits


class Refits:
    """Watches a service and refits its mixtures; all methods are called inside the event loop."""

    def __init__(
        self, service: Service, metrics: Metrics, *, command: Callable[[], list[str]] = worker_command
    ) -> None:
        self.service, self.metrics, self.command = service, metrics, command
        self.error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._pause = 0.0  # time on the monotonic clock before which no refit begins
        service.world.mixtures.keeps_starts = True

    def start(self) -> None:
        self.service.watchers.watch_batches(self._watch, ("leave", "erased leave"), self.begin_if_due)
        self.begin_if_due()

    async def stop(self) -> None:
        """Cancel the running refit; nothing of it is kept."""
        self.service.watchers.unwatch(self._watch)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def running(self) -> bool:
        return self._task is not None

    def _watch(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        self.begin_if_due()

    def begin_if_due(self) -> None:
        if self._task is not None or time.monotonic() < self._pause:
            return
        due = (name for name, one in self.service.world.mixtures.mixtures.items() if one.is_refit_due)
        if (name := next(due, None)) is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(name))

    async def _run(self, name: str) -> None:
        release, log = None, structlog.get_logger("lcb.serve")
        try:
            release = await asyncio.to_thread(self.service.store.lead, "refit")
            if release is None:
                self._pause = time.monotonic() + _ELSEWHERE
            else:
                await self._refit(name)
                self.error = None
        except NotYet as reason:
            log.info("nothing refitted", why=str(reason))
            self._pause = time.monotonic() + _PAUSE
        except Exception as error:  # noqa: BLE001 (whatever it is, the mixture goes on as it is)
            words = str(error) if isinstance(error, LCBError) else f"{type(error).__name__}: {error}"
            self.error = self.service.places.hide(words)
            self.metrics.n_failed_trainings += 1
            log.error("a refit failed", mixture=name, error=words)
            self._pause = time.monotonic() + _PAUSE
        finally:
            self._task = None
            if release is not None:
                await asyncio.to_thread(release)
            if not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self.begin_if_due()

    async def _refit(self, name: str) -> None:
        service, learning = self.service, self.service.settings.learning
        begun = events.RefitBody(service.now(), name)
        await self._append(event_id("refit", service.new_id()), "refit", begun)
        seq, state = service.world.mixtures.starts.pop(name)
        job = Job(service.settings.store, seq, active=0, max_memory=learning.max_memory, mixture=state)
        try:
            async with asyncio.timeout(learning.max_seconds):
                result = await run_job(job, self.command(), lambda process: None, lambda step: None)
        except TimeoutError:
            words = f"a refit took more than {learning.max_seconds:g} s and was ended"
            raise Failed(f"{words}; raise learning.max_seconds") from None
        self._check(result)
        body = events.MixtureBody(service.now(), name, seq, result.tensors, result.reason)
        await self._append(event_id("mixture", seq), "mixture", body)
        structlog.get_logger("lcb.serve").info("refitted", mixture=name, reason=result.reason)

    async def _append(self, id: str, kind: str, body: Any) -> None:
        await self.service.journal.append(Entry(NewRow(id, kind, None, None, events.encode(body)), body, b"", key=id))

    def _check(self, result: JobResult) -> None:
        """Refuse a mixture that could not be served."""
        try:
            mixture = unpack_mixture(result.tensors)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise Failed(f"the result of a refit cannot be read ({error})") from None
        models = mixture.models()
        if models is None or mixture.n_features != self.service.world.state.n_features:
            raise Failed("the result of a refit has no classes, or of other features than the log")
        if not all(np.isfinite(one.sums).all() for one in mixture.samples):
            raise Failed("the result of a refit has sums that are not finite")
