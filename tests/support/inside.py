"""A service inside this process without threads or sockets, with a simulated clock, so that everything is determined by
a seed.  The journal writes when the test calls `write`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lcb import messages
from lcb.serve.config.settings import Settings
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Store
from lcb.storage.store.sqlite.store import SQLite

T = TypeVar("T")
MONDAY = 1_750_000_000.0


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time the test sets."""

    moment = 0.0

    def time(self) -> float:
        return self.moment


class Unsynced(SQLite):
    """A store without fsync, for drills in which only this process crashes."""

    def _connect(self) -> Any:
        connection = super()._connect()
        connection.execute("pragma synchronous = off")
        return connection


class Inside:
    """A service and its event loop; `crash` drops everything but the store."""

    def __init__(
        self, store: Callable[[], Store], settings: Settings, *, broken: Callable[[Service], None] | None = None
    ) -> None:
        self.open, self.settings, self.broken = store, settings, broken
        self.loop = Loop()
        self.wall = MONDAY
        self._ids = itertools.count()
        self.service: Service
        try:
            self.start()
        except BaseException:
            self.loop.close()
            raise

    def start(self) -> None:
        self.store = self.open()
        self.service = Service(
            self.settings, self.store, now=lambda: self.wall, new_id=lambda: f"id{next(self._ids):08d}",
            seed=lambda: b"a seed of a drill", monotonic=self.loop.time, sleep=self.pass_time,
        )  # fmt: skip
        # time stands still here, so a share of it would never come again
        self.service.rewards.limit.take = lambda *given: None  # type: ignore[method-assign]
        if self.broken is not None:
            self.broken(self.service)
        self.run(self._start())

    async def _start(self) -> None:
        self.service.start(alone=True)

    def pass_time(self, seconds: float) -> None:
        self.loop.moment += seconds
        self.wall += seconds

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def turn(self, n: int = 4) -> None:
        """Let every task that can continue do so."""
        self.run(turns(n))

    def write(self, most: int = 512) -> None:
        """Commit the queued events."""
        self.turn()
        while self.service.journal.step(most=most, wait=False):
            self.turn()

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a request; `write` completes it."""
        task = self.loop.create_task(coroutine)
        task.add_done_callback(_retrieve_exception)
        self.turn(2)
        return task

    def done(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self.ask(coroutine)
        for _ in range(10):
            self.write()
            if task.done():
                return task.result()
        raise AssertionError("a request does not end")

    # What clients send

    def begin_decide(self, user: str, **more: Any) -> asyncio.Task[bytes]:
        return self.ask(self.service.decide(msgspec.convert({"user": user, **more}, messages.DecisionRequest)))

    def begin_reward(self, id: str, reward: float, **more: Any) -> asyncio.Task[bytes]:
        given = {"decision_id": id, "reward": float(reward), **more}
        return self.ask(self.service.reward(msgspec.convert(given, messages.RewardRequest)))

    def decide(self, user: str, **more: Any) -> dict[str, Any]:
        return json.loads(self.ended(self.begin_decide(user, **more)))

    def reward(self, id: str, reward: float, **more: Any) -> dict[str, Any]:
        return json.loads(self.ended(self.begin_reward(id, reward, **more)))

    def ended(self, task: asyncio.Task[T]) -> T:
        for _ in range(10):
            if task.done():
                return task.result()
            self.write()
        raise AssertionError("a request does not end")

    def items(self, *items: dict[str, Any], **more: Any) -> None:
        self.done(self.service.put_items(msgspec.convert({"items": list(items), **more}, messages.ItemsRequest)))

    def erase(self, user: str) -> int:
        return self.done(self.service.erase(user))

    def status(self, task: asyncio.Task[Any]) -> int:
        """200, or the status of the refusal."""
        try:
            self.ended(task)
        except Problem as problem:
            return problem.status
        return 200

    # Its end

    def crash(self) -> None:
        """Lose the process and start again from the last commit."""
        self.abandon()
        self.start()

    def abandon(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        if self.service.journal._timer is not None:
            self.service.journal._timer.cancel()
        self.turn(2)
        self.store.close()

    def stop(self) -> None:
        """Stop in order: everything is written, with snapshots."""
        self.write()
        self.store.append([], self.service.world.seq, self.service.build_snapshots())
        self.abandon()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.abandon()
            self.loop.close()

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a request that no test awaits."""
    if not task.cancelled():
        task.exception()


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def sqlite(path: Path) -> Callable[[], Store]:
    return lambda: Unsynced(path)


class WithoutSnapshots:
    """A store that returns no snapshots, so that states are folded from the log alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, name: str) -> None:
        return None


def fold_log(store: Store) -> World:
    """Return the world folded from the log without snapshots, each event alone: no fold is put off."""
    world = World(WithoutSnapshots(store))  # type: ignore[arg-type]
    if (base := read_base(store)) is not None:
        world.begin_at(base)
    for row in store.events(world.seq):
        world.apply(row)
    return world


def pack_cached_users(world: World) -> dict[str, bytes]:
    """The users in memory as bytes, by name."""
    return {name: world.cache.peek(name).pack() for name in world.cache}  # type: ignore[union-attr]


def log_sha256(store: Store) -> str:
    digest = hashlib.sha256()
    for row in store.events(0):
        digest.update(repr(row).encode())
    return digest.hexdigest()
