"""Algorithm 1 while serving: when to learn, a process that learns, what becomes of what it learned.

    first       once `n_warmup_users` have given a reward and there are no models
    again       after every `retrain_every` new users, or on demand

One at a time, in a process of its own (`learning`), on one replica.  What comes back is checked bit for bit and tried
with every recommender before it is written into the log; newcomers get it from there on.  If anything goes wrong the
version served before is served on, the failure is counted, and the next try waits for as many new users again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import structlog

from lcb import messages
from lcb.errors import InputError, LCBError, ModelError
from lcb.serve.errors import Problem
from lcb.serve.event_ids import model_id
from lcb.serve.learn.worker import DONE, FAIL, HEADER, STEP, WAIT, Job, Learned, Step, opened
from lcb.serve.observe.metrics import Metrics
from lcb.serve.service import Service
from lcb.storage.models.folder import unpack_models
from lcb.storage.store.base import Row

_MOST = 1 << 30  # bytes of one frame
_TAIL = 2000  # characters of the child's last words that are kept
_PAUSE = 5.0  # seconds before another replica's learning is looked at again


def command() -> list[str]:
    """What runs the learning process."""
    return [sys.executable, "-P", "-m", "lcb.serve.learn.worker"]


class NotYet(LCBError):
    """There is too little to learn from."""


class Failed(LCBError):
    """Nothing came of it."""


class Retraining:
    """Watches a service and learns when it is due; `start` and all else from inside the event loop."""

    def __init__(self, service: Service, metrics: Metrics, *, command: Callable[[], list[str]] = command) -> None:
        self.service, self.metrics, self.command = service, metrics, command
        self.settings = service.settings.learning
        self.step: Step | None = None
        self.began: float | None = None  # seconds since 1970
        self.error: str | None = None
        self.note: str | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.log = structlog.get_logger("lcb.serve")
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0  # users
        self._pause = 0.0  # on the monotonic clock

    def start(self) -> None:
        self.service.watchers.append(self._watch)
        self._consider()

    async def stop(self) -> None:
        """End what runs; what it had learned is lost, and learned again when it is next due."""
        if self._watch in self.service.watchers:
            self.service.watchers.remove(self._watch)
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def running(self) -> bool:
        return self._task is not None

    @property
    def next_at(self) -> int | None:
        """Users met when learning begins by itself; None where it does not, or waits for rewards."""
        world, settings = self.service.world, self.settings
        if not any(one.over_classes for one in self.service.settings.recommenders):
            return None
        if not world.versions:
            return max(world.n_started + settings.n_warmup_users - world.n_rewarded, self._not_before)
        if settings.retrain_every is None:
            return None
        return max(world.started_at_training + settings.retrain_every, self._not_before)

    def answer(self) -> messages.RetrainingAnswer:
        step = self.step or Step("", 0, 0)
        began = None if self.began is None else told_time(self.began)
        return messages.RetrainingAnswer(
            self.running, step.phase, step.done, step.total or 0, began, self.error, self.metrics.n_failed_trainings,
            self.note, self.service.world.n_started, self.next_at,
        )  # fmt: skip

    async def ask(self) -> None:
        """Begin now; a Problem where one runs already, here or elsewhere, or there is nothing to learn from."""
        if self.running:
            raise Problem(409, "learning is under way; wait for it (GET /v1/models), then ask again")
        if self.service.world.n_rewarded == 0:
            raise Problem(409, "no user has given a reward yet, there is nothing to learn from; ask again later")
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._begin(begun)
        if not await begun:
            raise Problem(409, "another replica is learning; wait for it (GET /v1/models), then ask again")

    # When

    def _watch(self, row: Row, body: Any) -> None:
        if self._task is None and row.kind in ("decision", "reward"):
            self._consider()

    def _consider(self) -> None:
        next_at = self.next_at
        if next_at is not None and self.service.world.n_started >= next_at and time.monotonic() >= self._pause:
            self._begin()

    def _begin(self, begun: asyncio.Future[bool] | None = None) -> None:
        self.began, self.step = self.service.now(), None
        self._task = asyncio.get_running_loop().create_task(self._run(begun))

    async def _run(self, begun: asyncio.Future[bool] | None) -> None:
        release = None
        try:
            release = await asyncio.to_thread(self.service.store.lead, "retrain")
            leads = release is not None and not await self._done_elsewhere()
            if begun is not None:
                begun.set_result(leads)
            if leads:
                await self._learn()
            else:
                self._pause = time.monotonic() + _PAUSE
        except NotYet as words:
            self.note = str(words)
            self.log.info("nothing learned yet", why=self.note)
            self._wait()
        except Exception as error:  # noqa: BLE001 (whatever it is, the version served before is served on)
            if begun is not None and not begun.done():
                begun.set_exception(error)
            self.error = str(error) if isinstance(error, LCBError) else f"{type(error).__name__}: {error}"
            self.metrics.n_failed_trainings += 1
            self.log.error("learning failed", error=self.error)
            self._wait()
        finally:
            if begun is not None:
                begun.cancel()
            self._task, self.step = None, None
            if release is not None:
                await asyncio.to_thread(release)

    def _wait(self) -> None:
        self._not_before = self.service.world.n_started + (self.settings.retrain_every or self.settings.n_warmup_users)

    async def _done_elsewhere(self) -> bool:
        """Whether another replica has written a version that has not come here yet."""
        version = max(self.service.world.versions, default=0) + 1
        return await asyncio.to_thread(self.service.store.event, model_id(version)) is not None

    # The process

    async def _learn(self) -> None:
        world, settings, service = self.service.world, self.settings, self.service.settings
        wants = any(one.bandit == "mmts" for one in service.recommenders)
        job = Job(
            service.store, world.seq, world.active, settings.learner, settings.n_classes, settings.held_out, wants,
            settings.max_memory,
        )  # fmt: skip
        n_started = world.n_started
        self.log.info("learning", seq=job.seq, users=n_started)
        try:
            async with asyncio.timeout(settings.max_seconds):
                learned = await self._learned(job)
        except TimeoutError:
            raise Failed(
                f"learning took more than {settings.max_seconds:g} s and was ended; raise max_seconds"
            ) from None
        self._check(learned)
        version = await self.service.add_model(
            learned.manifest, learned.tensors, active=learned.better, reason=learned.reason, n_users=learned.n_users,
            score=learned.score, baseline=learned.baseline, n_started=n_started,
            seen=job.seq,
        )  # fmt: skip
        self.error = self.note = None
        self.log.info("learned", version=version, active=learned.better, reason=learned.reason)

    async def _learned(self, job: Job) -> Learned:
        """What the process sends; it has ended when this returns or raises."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.command(), stdin=pipe, stdout=pipe, stderr=pipe, env=_environment(), start_new_session=True
        )
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        words = asyncio.create_task(_last_words(process.stderr))
        try:
            with suppress(ConnectionError):
                process.stdin.write(msgspec.json.encode(job) + b"\n")
                await process.stdin.drain()
            return await self._frames(process.stdout)
        except asyncio.IncompleteReadError:
            await _ended_by(process, await words)
        except ValueError as error:  # of msgspec too
            raise Failed(f"{error}; the version served before is served on") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.stdin.close()
            await process.wait()
            words.cancel()
            self.process = None

    async def _frames(self, answers: asyncio.StreamReader) -> Learned:
        while True:
            kind, length, sha256 = opened(await answers.readexactly(HEADER))
            if length > _MOST:
                raise ValueError(f"a frame of {length:,} bytes came back, at most {_MOST:,} are read")
            payload = await answers.readexactly(length)
            check_sha256(payload, sha256)
            if kind == STEP:
                self.step = msgspec.json.decode(payload, type=Step)
            elif kind == WAIT:
                raise NotYet(payload.decode())
            elif kind == FAIL:
                raise Failed(payload.decode())
            else:
                assert kind == DONE
                return msgspec.msgpack.decode(payload, type=Learned)

    def _check(self, learned: Learned) -> None:
        """Refuse what could not be served: damaged, of another size, or not to be used by a recommender."""
        world = self.service.world
        assert world.service is not None
        models, _ = unpack_models(learned.manifest, learned.tensors, "what was learned")
        if models.n_features != world.n_features:
            raise ModelError(f"models of {models.n_features} features were learned for {world.n_features}")
        for number in (learned.score, learned.baseline):
            if number is not None and not np.isfinite(number):
                raise Failed(f"held-out users score {number}; nothing that can be compared was learned")
        for spec in world.recommenders.values():
            if spec.over_classes:
                try:
                    bandit = spec.make(models, models.n_features, world.service.reward_range)
                except InputError as error:
                    raise Failed(f"recommender {spec.name} cannot use what was learned: {error}") from None
                if not np.isfinite(bandit.start()).all():
                    raise Failed(f"recommender {spec.name} cannot start from what was learned")


def check_sha256(payload: bytes, sha256: bytes) -> None:
    if hashlib.sha256(payload).digest() != sha256:
        raise ValueError("what came back was damaged on its way (SHA-256)")


def told_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _environment() -> dict[str, str]:
    """One thread for linear algebra, and the same lcb as this process."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, **threads, "PYTHONPATH": path}


async def _last_words(errors: asyncio.StreamReader) -> str:
    said = ""
    while part := await errors.read(65_536):
        said = (said + part.decode(errors="replace"))[-_TAIL:]
    return said


async def _ended_by(process: asyncio.subprocess.Process, words: str) -> NoReturn:
    """The process is gone without an answer."""
    code = await process.wait()
    last = words.strip().splitlines()[-1:] or ["without a word"]
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; out of memory, perhaps" if -code == signal.SIGKILL else ""
        raise Failed(f"the learning process was ended by {name}{hint} ({last[0]})")
    raise Failed(f"the learning process ended with {code} and no models ({last[0]})")
