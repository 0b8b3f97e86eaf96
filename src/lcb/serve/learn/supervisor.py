"""Learns while the service runs: starts a job when it is due, checks the result and writes it into the log.

Only one replica runs a job, one at a time, in a child process.  The result is verified by its checksum and tried with
every recommender before it becomes a version; new users get it from then on.  If anything fails, the version served
before is still served, the failure is counted, and the next try waits (`schedule`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import structlog

from lcb import messages
from lcb.errors import InputError, LCBError, ModelError
from lcb.serve.errors import Problem
from lcb.serve.event_ids import event_id
from lcb.serve.events import Actor
from lcb.serve.learn.job import Job, JobResult, JobStep
from lcb.serve.learn.process import Failed, NotYet, run_job, worker_command
from lcb.serve.learn.schedule import next_training_at, retry_at
from lcb.serve.observe.metrics import Metrics
from lcb.serve.service import Service
from lcb.serve.state.users import WARMUP
from lcb.storage.models.folder import unpack_models
from lcb.storage.store.base import Row

_PAUSE = 5.0  # seconds before looking again whether another replica still learns


class Retraining:
    """Watches a service and learns when it is due; all methods are called inside the event loop."""

    def __init__(
        self,
        service: Service,
        metrics: Metrics,
        *,
        command: Callable[[], list[str]] = worker_command,
        has_keys: Callable[[], bool] = lambda: False,
    ) -> None:
        self.service, self.metrics, self.command, self.has_keys = service, metrics, command, has_keys
        self.settings = service.settings.learning
        self.step: JobStep | None = None
        self.began: float | None = None  # seconds since 1970
        self.error: str | None = None
        self.note: str | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.log = structlog.get_logger("lcb.serve")
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0  # number of users below which no job starts automatically, set after a failure
        self._pause = 0.0  # time on the monotonic clock before which no job starts automatically

    def start(self) -> None:
        self.service.watchers.watch_batches(self._watch, ("decision", "reward"), self._begin_if_free)
        self._begin_if_due()

    async def stop(self) -> None:
        """Cancel the running job; nothing of it is kept."""
        self.service.watchers.unwatch(self._watch)
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def running(self) -> bool:
        return self._task is not None

    @property
    def next_at(self) -> int | None:
        """The number of users at which learning starts automatically; None: it does not."""
        return next_training_at(self.service.world, self.service.settings, self.settings, self._not_before)

    def answer(self) -> messages.RetrainingAnswer:
        step = self.step or JobStep("", 0, 0)
        return messages.RetrainingAnswer(
            running=self.running,
            phase=step.phase,
            done=step.done,
            total=step.total or 0,
            started=None if self.began is None else format_time(self.began),
            error=self.error,
            n_failed=self.metrics.n_failed_trainings,
            note=self.note,
            n_started=self.service.world.n_started,
            next_at=self.next_at,
        )

    async def ask(self, by: Actor) -> None:
        """Start a job now, and record who asked for it.

        Problem 409 if one is running here or on another replica, or if there are no rewards yet.
        """
        if self.running:
            raise Problem(409, "learning is already running; wait for it (GET /v1/models), then ask again")
        if not any(one.n_rewards for one in self.service.world.tallies.values()):
            raise Problem(409, "no user has given a reward yet, so there is nothing to learn from; ask again later")
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._begin(begun)
        if not await begun:
            raise Problem(409, "another replica is learning; wait for it (GET /v1/models), then ask again")
        await self.service.record("asked for learning", by)

    def list_closed(self) -> list[str]:
        """List the recommenders that visitors of the pages do not teach.

        A log written before there was the setting `teach` learns from everyone.
        """
        given = {spec.name: spec.teach for spec in self.service.settings.all_recommenders}
        known = self.service.world.state.recommenders
        rules = {name: given.get(name) or spec.teach or "everyone" for name, spec in known.items()}
        closed = ("callers", "auto") if self.has_keys() else ("callers",)
        return [name for name, rule in rules.items() if rule in closed]

    def _watch(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        self._begin_if_free()

    def _begin_if_free(self) -> None:
        if self._task is None:
            self._begin_if_due()

    def _begin_if_due(self) -> None:
        if self._is_due() and time.monotonic() >= self._pause:
            self._begin()

    def _is_due(self) -> bool:
        next_at = self.next_at
        return next_at is not None and self.service.world.n_started >= next_at

    def _begin(self, begun: asyncio.Future[bool] | None = None) -> None:
        self.began, self.step = self.service.now(), None
        self._task = asyncio.get_running_loop().create_task(self._run(begun))

    async def _run(self, begun: asyncio.Future[bool] | None) -> None:
        """Run a job unless another replica does; `begun` is set to True if the job runs here, else to False."""
        release = None
        try:
            release = await asyncio.to_thread(self.service.store.lead, "retrain")
            leads = release is not None and not await self._is_done_elsewhere()
            if begun is None and not self._is_due():  # while it waited for the lead, it heard of another's version
                leads = False
            if begun is not None:
                begun.set_result(leads)
            if leads:
                await self._learn()
            else:
                self._pause = time.monotonic() + _PAUSE
        except NotYet as reason:
            self.note = str(reason)
            self.log.info("nothing learned yet", why=self.note)
            self._not_before = retry_at(self.service.world, self.settings)
        except Exception as error:  # noqa: BLE001 (whatever it is, the version served before is still served)
            if begun is not None and not begun.done():
                begun.set_exception(error)
            words = str(error) if isinstance(error, LCBError) else f"{type(error).__name__}: {error}"
            self.error = self.service.places.hide(words)
            self.metrics.n_failed_trainings += 1
            self.log.error("learning failed", error=words)
            self._not_before = retry_at(self.service.world, self.settings)
        finally:
            if begun is not None:
                begun.cancel()
            self._task, self.step = None, None
            if release is not None:
                await asyncio.to_thread(release)

    async def _is_done_elsewhere(self) -> bool:
        """Whether another replica has written a version that has not been read here yet."""
        version = max(self.service.world.state.versions, default=0) + 1
        return await asyncio.to_thread(self.service.store.event, event_id("model", version)) is not None

    async def _learn(self) -> None:
        world, learning, settings = self.service.world, self.settings, self.service.settings
        over_classes = [one for one in world.state.recommenders.values() if one.over_classes]
        item_effects = bool(over_classes) and all(one.item_effects for one in over_classes)
        seq, n_started = await self.service.begin_learning() if item_effects else (world.seq, world.n_started)
        job = Job(
            store=settings.store,
            seq=seq,
            active=world.state.active,
            learner=settings.learner,
            n_classes=learning.n_classes,
            held_out=learning.held_out,
            covariance=any(one.bandit in ("mmts", "personal-classes") for one in settings.recommenders),
            max_memory=learning.max_memory,
            closed=tuple(self.list_closed()),
            item_effects=item_effects,
            archive=None if self.service.archive is None else str(self.service.archive),
            shadow=settings.shadow,
        )
        self.log.info("learning", seq=job.seq, users=n_started)
        try:
            async with asyncio.timeout(learning.max_seconds):
                result = await run_job(job, self.command(), self._note_process, self._note_step)
        except TimeoutError:
            words = f"learning took more than {learning.max_seconds:g} s and was ended"
            raise Failed(f"{words}; raise learning.max_seconds") from None
        finally:
            self.process = None
        self._check(result)
        first = result.better and learning.canary > 0 and world.state.active != WARMUP
        version = await self.service.add_model(
            result.manifest,
            result.tensors,
            active=result.better and not first,
            reason=result.reason,
            n_users=result.n_users,
            score=result.score,
            baseline=result.baseline,
            n_started=n_started,
            seen=job.seq,
            canary=learning.canary if first else None,
            canary_users=learning.canary_users if first else 0,
        )
        self.error = self.note = None
        served = {"canary": learning.canary} if first else {"active": result.better}
        self.log.info("learned", version=version, reason=result.reason, **served)

    def _note_process(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def _note_step(self, step: JobStep) -> None:
        self.step = step

    def _check(self, result: JobResult) -> None:
        """Refuse models that could not be served: damaged, of the wrong size, or unusable by a recommender."""
        state = self.service.world.state
        assert state.settings is not None
        models, _ = unpack_models(result.manifest, result.tensors, "the learned models")
        if models.n_features != state.n_features:
            raise ModelError(f"the learned models have {models.n_features} features, the log has {state.n_features}")
        for number in (result.score, result.baseline):
            if number is not None and not np.isfinite(number):
                raise Failed(f"held-out users score {number}, so the learned models cannot be compared")
        for spec in state.recommenders.values():
            if spec.over_classes:
                try:
                    bandit = spec.make(models, models.n_features, state.settings.reward_range)
                except InputError as error:
                    raise Failed(f"recommender {spec.name} cannot use the learned models: {error}") from None
                if not np.isfinite(bandit.start()).all():
                    raise Failed(f"recommender {spec.name} cannot start from the learned models")


def format_time(at: float) -> str:
    """
    >>> format_time(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
