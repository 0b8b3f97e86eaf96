"""How a connection refuses a request: the answer, the end of the connection, the memory of requests, their time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.server import ServerState

from lcb.serve.errors import Problem
from lcb.serve.web.wire.cycle import Cycle
from lcb.serve.web.wire.lines import Flow
from lcb.serve.web.wire.outgoing import Outgoing, encode_problem
from lcb.serve.web.wire.places import Places, Sweep

IDLE, HEADERS, BODY, REFUSED, REFUSING = range(5)  # REFUSING: earlier requests are still answered
MAX_FIELDS = 256  # of the headers of a request
MOST_HELD = 64_000_000  # bytes of memory that requests of all connections may take until they are answered
MOST_AHEAD = 262_144  # bytes of memory that requests on a connection may take that were sent ahead of answers
MOST_AHEAD_OF_ALL = 32_000_000  # on all connections
SMALL_BODY = 8192  # bytes of a body that is not counted
LINGER = 1.0  # seconds in which a client may read a refusal
_REST = 0.05  # seconds in which a client that was turned away sends the rest of its request
UNREAD = Problem(408, "the answer was not read")
FIELD_BYTES = 200  # of memory that a header takes, however short it is


class Refusing:
    """Part of a connection; the protocol has its attributes."""

    answered_at: float
    ahead: int
    answering: Cycle | None
    body: int
    closing: bool
    cycle: Any  # the last request, a Cycle; mypy knows the attribute of uvicorn
    deadline: float
    flow: Flow
    headers: list[tuple[bytes, bytes]]
    held: int
    loop: asyncio.AbstractEventLoop
    max_body: int
    max_connections: int
    max_header: int
    on_refusal: Callable[[int], None] | None
    outgoing: Outgoing
    paused_at: float
    pipeline: deque[Any]
    places: tuple[Places, ...]
    refusal: Problem | None
    sent: int
    sent_at: float
    server_state: ServerState
    since: float | None
    stage: int
    sweep: Sweep
    timeout_keep_alive: int
    transport: asyncio.Transport
    url: bytes

    def _has_large_headers(self) -> bool:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.max_header

    def _refuse_header(self) -> None:
        n, most = len(self.headers), f"{self.max_header} bytes"
        words = f"there are more than {MAX_FIELDS} headers" if n > MAX_FIELDS else f"the headers are larger than {most}"
        self.headers.clear()  # they take twenty times the bytes that came
        self._refuse(Problem(431, f"{words}; send fewer or shorter ones"))

    def _refuse_body(self, size: int | None = None) -> None:
        came = "" if size is None else f" of {size} bytes"
        detail = f"the body{came} is larger than the {self.max_body} bytes allowed; send less at a time"
        self._refuse(Problem(413, detail))

    def _refuse(self, problem: Problem, *, answer: bool = True) -> None:
        """Send the problem after the answers to the requests before, then close the connection."""
        cycle = self.cycle
        self._hold(0)
        if answer and (self.pipeline if self.stage == BODY else cycle is not None and not cycle.response_complete):
            if self.stage == BODY:
                self._forget(self.pipeline.popleft()[0])  # the refused request itself
            self.refusal, self.stage, self.since = problem, REFUSING, None
            return
        if self.stage == BODY:
            answer = answer and not cycle.response_started
        self.stage = REFUSED
        self.since = self.loop.time()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application notices when it awaits the body, and writes nothing more
            cycle.message_event.set()
        if self.on_refusal is not None:
            self.on_refusal(problem.status if answer else 0)
        if not answer:
            self.transport.abort()
            return
        self.transport.write(encode_problem(problem, self.server_state.default_headers))
        self.outgoing.end_answer()
        if self.transport.can_write_eof():
            self.flow.resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()

    def _turn_away(self, problem: Problem) -> None:
        """Refuse a request for which there is no place; beyond as many as there are places, without an answer."""
        self.sweep.turned_away.add(self)
        self._refuse(problem, answer=len(self.sweep.turned_away) <= self.max_connections)

    def give_way(self) -> None:
        self.sweep.release(self)
        answering = self.answering
        if answering is not None and not answering.response_complete and self.flow.write_paused:
            self._refuse(UNREAD, answer=False)
        elif self.stage == IDLE:
            self.sweep.turned_away.add(self)  # its deadline holds on: it may have an answer that is not read
            if len(self.sweep.turned_away) <= self.max_connections:
                self.transport.close()
            else:
                self.transport.abort()
        else:
            detail = "the request was not complete when its connection was needed for another; send it again, faster"
            self._turn_away(Problem(503, detail, retry_after=1))

    def give_up(self) -> None:
        self.sweep.release(self)
        if self.on_refusal is not None:
            self.on_refusal(0)
        self.transport.abort()

    def _close_soon(self) -> None:
        """Close when the rest of a refused request has come: unread bytes make the kernel drop the answer."""
        if not self.closing:
            self.closing = True
            self.loop.call_later(_REST, self.transport.close)

    def drop_request(self) -> None:
        words = "not complete when the memory for the requests of all connections was used up"
        if self.stage == BODY:
            self._refuse(Problem(503, f"the body was {words}; send it again, faster or in parts", retry_after=1))
        else:
            self.headers.clear()
            self._refuse(Problem(431, f"the headers were {words}; send fewer or shorter ones, at once"))

    def _put_ahead(self, n_bytes: int) -> bool:
        """Count memory of a request that was sent ahead of answers; if it is too much, refuse it and return False."""
        self.cycle.ahead += n_bytes
        self.ahead += n_bytes
        self.sweep.n_ahead += n_bytes
        if self.ahead <= MOST_AHEAD and self.sweep.n_ahead <= MOST_AHEAD_OF_ALL:
            return True
        where = "this connection" if self.ahead > MOST_AHEAD else "all connections"
        words = f"too many bytes were sent ahead of answers on {where}; wait for some answers, then go on"
        self._refuse(Problem(429, words, retry_after=1))
        return False

    def _forget(self, cycle: Cycle) -> None:
        """Free the memory of a request that was answered or refused: its connection goes on to refer to it."""
        self.ahead -= cycle.ahead
        self.sweep.n_ahead -= cycle.ahead
        cycle.ahead, cycle.body = 0, bytearray()

    def _hold_body(self) -> None:
        kept = self.body > SMALL_BODY and not self.cycle.response_complete
        self._hold(self.body if kept else 0)

    def _hold(self, n_bytes: int) -> None:
        """Count the memory of the request: its unfinished headers, or a large body until it is answered."""
        self.sweep.n_held += n_bytes - self.held
        self.held = n_bytes

    @property
    def waiting_since(self) -> float | None:
        """When the connection was opened or last answered, or its unfinished request began; None while it answers.

        If an answer is not read, when writing it was paused.
        """
        if self.flow.in_line:
            return None
        if self.since is None and not self.pipeline and self.cycle is not None and self.cycle.response_complete:
            return self.answered_at
        answering = self.answering
        if answering is not None and not answering.response_complete and (self.pipeline or self.stage != BODY):
            return self.paused_at if self.flow.write_paused else None  # an earlier request is being answered
        return None if self.stage == REFUSED else self.since

    def check_times(self, now: float) -> None:
        """Called by the sweep: close the connection if it has waited too long."""
        since = self.since
        if self.stage == REFUSED:
            if now - (since or 0.0) >= LINGER:
                self.transport.abort()
            return
        if since is None:
            answered = not self.pipeline and self.cycle is not None and self.cycle.response_complete
            if answered and now - self.answered_at >= self.timeout_keep_alive:
                self.transport.close()
        elif self.flow.read_paused:  # the service has paused reading
            self.since = now
        elif now - since >= self.deadline:
            detail = f"no complete request arrived within {self.deadline:g} s; send it faster"
            self._refuse(Problem(408, detail), answer=self.stage != IDLE)
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0:
            self.sent = -1
        elif self.outgoing.written - waiting != self.sent:
            self.sent, self.sent_at = self.outgoing.written - waiting, now
        elif now - self.sent_at >= self.deadline:
            self._refuse(UNREAD, answer=False)
