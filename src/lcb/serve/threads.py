"""Threads for work that must not hold up the event loop, in pools that do not hold up each other.

    keys      reloading keys, so that a revoked key stops working whatever else goes on
    large     decisions over very many arms, changes of very many items
    lists     the items of a large catalogue
    heavy     stories and verification, which read the log for seconds
    reads     reads from a store that is not in this process

Callers (a key, or an address where there are no keys) take turns: one who asks for much waits for themselves.
The threads are daemons: at the end of the process nobody waits for them.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from lcb.serve.errors import Problem

T = TypeVar("T")
CALLER: ContextVar[str] = ContextVar("caller", default="")  # of the request that is being answered
_Call = tuple[asyncio.Future[Any], Callable[[], Any]]


class Abandoned(Exception):
    """Raised inside work whose caller no longer waits."""


class Threads:
    """`n_threads` daemon threads with room for `most_waiting` calls that have not begun; more are refused with 503.

    If there is no room, a caller with fewer calls gets the place of the last call of the one who has most.  A call that
    has not begun after `patience` seconds is refused too; with `while_stuck`, only if no call has ended for so long.
    Refusals name the calls (`kind`) and ask to come again after `retry_after` seconds.
    """

    def __init__(
        self, name: str, n_threads: int = 1, most_waiting: int = 8, patience: float | None = None,
        *, kind: str = "requests of this kind", retry_after: int = 5, while_stuck: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.n_threads, self.most_waiting, self.patience = name, n_threads, most_waiting, patience
        self.kind, self.retry_after, self.while_stuck = kind, retry_after, while_stuck
        self.ended = False
        self._lock, self._calls = threading.Lock(), threading.Semaphore(0)
        self._turns: OrderedDict[str, deque[_Call]] = OrderedDict()  # by caller: calls that have not begun
        self._waiting: set[asyncio.Future[Any]] = set()
        self._n_of: Counter[str] = Counter()  # by caller: calls that are waited for
        self._n_open = 0  # calls that threads are not done with
        self._n_started = 0
        self._last_end = -math.inf  # when a call ended, by the clock of the event loop

    @property
    def n_waiting(self) -> int:
        """How many calls are waited for, begun or not."""
        return len(self._waiting)

    def count_of(self, caller: str) -> int:
        """Return how many of these a caller has."""
        return self._n_of[caller]

    async def run(self, function: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Call the function in a thread; used inside the event loop."""
        return await self.run_within(self.patience, function, *arguments, **more)

    async def run_next(self, function: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Do the same before what the caller has in line, if there is room or not.

        It goes on with a call whose result takes much memory, so there are few of these at once.
        """
        return await self._run(self.patience, lambda: function(*arguments, **more), first=True)

    async def run_within(self, patience: float | None, function: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Call the function with another patience than that of all calls."""
        return await self._run(patience, lambda: function(*arguments, **more))

    async def _run(self, patience: float | None, call: Callable[[], T], *, first: bool = False) -> T:
        if self.ended:
            raise Problem(503, "the service is shutting down; try again in a moment", retry_after=1)
        caller = CALLER.get()
        if not first and self._n_open >= self.n_threads + self.most_waiting and not self._make_room(caller):
            raise self._refuse_more()
        if self._n_started < min(self.n_threads, self._n_open + 1):  # also if somebody gave up a call that still runs
            self._n_started += 1
            threading.Thread(target=self._work, name=f"lcb-{self.name}-{self._n_started}", daemon=True).start()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.add(done)
        self._n_of[caller] += 1
        done.add_done_callback(lambda done: self._note_done(caller, done))
        with self._lock:
            line = self._turns.setdefault(caller, deque())
            line.appendleft((done, call)) if first else line.append((done, call))
            self._n_open += 1
        self._calls.release()
        if patience is not None:
            self._watch(loop, caller, done, patience, patience)
        try:
            return await done
        finally:
            if done.cancelled():
                self._remove(caller, done)

    def _watch(
        self, loop: asyncio.AbstractEventLoop, caller: str, done: asyncio.Future[Any], patience: float, after: float
    ) -> None:
        """Look after some seconds whether a call has not begun."""
        timer = loop.call_later(after, self._look_after, loop, caller, done, patience)
        done.add_done_callback(lambda _: timer.cancel())

    def _look_after(
        self, loop: asyncio.AbstractEventLoop, caller: str, done: asyncio.Future[Any], patience: float
    ) -> None:
        left = self._last_end + patience - loop.time() if self.while_stuck else 0.0
        if left > 0:
            self._watch(loop, caller, done, patience, left)
        else:
            self._give_up(caller, done, patience)

    def _note_done(self, caller: str, done: asyncio.Future[Any]) -> None:
        self._last_end = done.get_loop().time()
        self._waiting.discard(done)
        self._n_of[caller] -= 1
        if not self._n_of[caller]:
            del self._n_of[caller]

    def _give_up(self, caller: str, done: asyncio.Future[Any], patience: float) -> None:
        """Refuse a call, unless it has begun."""
        if self._remove(caller, done) and not done.done():
            words = f"a thread for {self.kind} was not free for {patience:g} s"
            done.set_exception(self._refuse(words))

    def _remove(self, caller: str, done: asyncio.Future[Any]) -> bool:
        """Take a call out of its caller's line; False if it has begun.  It is mostly among the first."""
        with self._lock:
            calls = self._turns.get(caller, deque[_Call]())
            place = next((i for i, call in enumerate(calls) if call[0] is done), None)
            if place is None:
                return False
            del calls[place]
            self._n_open -= 1
            if not calls:
                del self._turns[caller]
        return True

    def _make_room(self, caller: str) -> bool:
        """Refuse the last call of the caller who has most, if that is at least two more than `caller` has."""
        with self._lock:
            most = max(self._turns, key=lambda one: len(self._turns[one]), default=caller)
            if len(self._turns.get(most, ())) < len(self._turns.get(caller, ())) + 2:
                return False
            done, _ = self._turns[most].pop()
            self._n_open -= 1
        if not done.done():
            done.set_exception(self._refuse_more())
        self._waiting.discard(done)
        return True

    def _refuse_more(self) -> Problem:
        return self._refuse(f"{self._n_open} {self.kind} are already waiting")

    def _refuse(self, words: str) -> Problem:
        return Problem(503, f"{words}; try again in {self.retry_after} s", retry_after=self.retry_after)

    def _take_call(self) -> _Call | None:
        """Return the next call: callers take turns; None if the one that was announced has been refused."""
        self._calls.acquire()
        with self._lock:
            if not self._turns:
                return None
            caller, calls = self._turns.popitem(last=False)
            call = calls.popleft()
            if calls:
                self._turns[caller] = calls  # behind the others
        return call

    def end(self) -> None:
        """Give up all calls, begun or not: those who wait get a Problem 503.  Threads end with what they are doing."""
        self.ended = True
        self._calls.release(max(self._n_started, 1))
        for done in list(self._waiting):
            if not done.done():
                done.set_exception(Problem(503, "the service is shutting down; try again in a moment", retry_after=1))

    def check_wanted(self, *_: Any) -> None:
        """Raise `Abandoned` once `end` was called; long work calls it now and then, for instance as its progress."""
        if self.ended:
            raise Abandoned

    def _work(self) -> None:
        while not self.ended:
            taken = self._take_call()
            if taken is None:
                continue
            done, call = taken
            wanted = not done.done() and not self.ended
            try:
                result, error = call() if wanted else None, None
            except BaseException as raised:  # noqa: BLE001 (raised again where the call was made)
                result, error = None, raised
            with self._lock:
                self._n_open -= 1
            if not wanted:
                continue
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, result, error)
            except RuntimeError:  # the event loop is closed: the process is ending
                return


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
