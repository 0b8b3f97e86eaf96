"""Events of the log become the world's, in its order, each batch after the one before.

Where one needs a user who is not in memory and the store is far, the user is read in a thread first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from msgspec import Struct

from lcb.errors import StoreUnavailable
from lcb.serve.decide.desk import Desk
from lcb.serve.errors import Problem
from lcb.serve.state.world import Brought
from lcb.storage.store.base import Row, Store

_AGAIN = 0.1  # seconds before a user is read again that could not be read


class _Settling(Struct):
    """Events of the log that are to be applied; `then` is called after, with what went wrong if anything did."""

    rows: list[Row]
    bodies: dict[str, Any]
    then: Callable[[Exception | None], None]
    at: int = 0  # how many are applied
    again: bool = False  # read a second time


class Applying:
    """Belongs to the event loop; `applied` is told of every event after it is applied."""

    def __init__(self, store: Store, desk: Desk, applied: Callable[[Row, Any], None] | None) -> None:
        self.store, self.desk = store, desk
        self.broken: str | None = None  # why nothing more can be answered
        self._applied = applied
        self._settling: deque[_Settling] = deque()
        self._bringing = ThreadPoolExecutor(1, "lcb-bring")
        self._ending = False

    @property
    def busy(self) -> bool:
        return bool(self._settling)

    def add(self, rows: list[Row], bodies: dict[str, Any], then: Callable[[Exception | None], None]) -> None:
        """Apply these after all that came before them; `then` is told what went wrong if anything did."""
        self._settling.append(_Settling(rows, bodies, then))
        if len(self._settling) == 1:
            self._proceed()

    def end(self) -> None:
        self._ending = True
        self._bringing.shutdown(wait=False)

    def _proceed(self) -> None:
        """The world moves.  If it cannot, what is in memory is not what the log says: nothing more is answered."""
        while self._settling:
            first, failed = self._settling[0], None
            try:
                if not self._applied_all(first):
                    return
            except Exception as error:  # noqa: BLE001 (whatever it is, the world stands still from here on)
                self._break(error)
            if self.broken is not None:
                failed = Problem(503, f"{self.broken}; verify the log, restart the service", retry_after=60)
            self._settling.popleft()
            first.then(failed)

    def _applied_all(self, settling: _Settling) -> bool:
        """False where a user has to be read first; `_proceed` comes back then."""
        if self.broken is not None:
            return True
        world, far = self.desk.world, not self.store.inline
        world.holding = far
        while settling.at < len(settling.rows):
            row = settling.rows[settling.at]
            if far and (not world.ready(row) or (world.erased and not settling.again)):
                self._bring(settling)  # somebody is erased: what was read before may not be what is there
                return False
            body = settling.bodies.get(row.id)
            self.desk.apply(row, body)
            if self._applied is not None:
                self._applied(row, body)
            settling.at += 1
        world.release()
        return True

    def _bring(self, settling: _Settling) -> None:
        world, rows = self.desk.world, settling.rows[settling.at :]
        names = dict.fromkeys(row.user for row in rows if row.user is not None and not world.knows(row.user))
        brought = asyncio.get_running_loop().run_in_executor(self._bringing, world.bring, rows, names)
        brought.add_done_callback(lambda done: self._receive(settling, done))

    def _receive(self, settling: _Settling, brought: asyncio.Future[Brought]) -> None:
        if brought.cancelled() or self._ending:
            return
        error = brought.exception()
        if isinstance(error, StoreUnavailable):
            asyncio.get_running_loop().call_later(_AGAIN, self._bring, settling)
            return
        if error is not None:
            self._break(error)
        else:
            found = brought.result()
            settling.rows[settling.at :] = found.rows
            settling.again = True
            self.desk.world.receive(found)
        self._proceed()

    def _break(self, error: BaseException) -> None:
        self.broken = f"event {self.desk.world.seq + 1} could not be applied ({type(error).__name__}: {error})"
        structlog.get_logger("lcb.serve").error("broken", error=self.broken, exc_info=error)
