"""uvicorn's HTTP protocol with limits on slow clients, large requests and the number of connections.

    no complete request within `deadline` s   408, closed      (closed without an answer if nothing arrived)
    headers above `max_header` bytes          431, closed
    a body above `max_body` bytes             413, closed      (by Content-Length at once, chunked as it grows)
    connections above `max_connections`       the one that has been idle longest is closed; if none is idle
                                              503, closed      Retry-After: 1
    an answer not read for `deadline` s       closed           (a client that reads a stream slowly is not closed)

One sweep per server checks all connections every tenth of the deadline; a request costs five short calls.  A refusal is
written at once; what the client still sends is discarded for up to `LINGER` seconds, because closing a socket with
unread bytes makes the kernel drop the answer.  The sweep also closes connections that are idle for longer than
uvicorn's `timeout_keep_alive`, which saves two timers per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lcb.serve.errors import Problem

LINGER = 1.0
MAX_PIPELINED = 32  # requests sent ahead of their answers on one connection
_IDLE, _HEADERS, _BODY, _REFUSED = range(4)
_CONTINUE = b"HTTP/1.1 100 "
_SEARCH_EVERY = 0.05  # seconds between two searches for idle connections


def protocol(
    *,
    deadline: float = 10.0,
    max_body: int = 1_048_576,
    max_connections: int = 1000,
    max_header: int = 16_384,
    on_refusal: Callable[[int], None] | None = None,
) -> type[GuardedProtocol]:
    """Return a class for `uvicorn.Config(http=...)`; `on_refusal` gets the status of each refusal, 0 if none was sent.

    >>> guarded = protocol(deadline=5, max_body=100)
    >>> guarded.deadline, guarded.max_body, guarded.max_connections
    (5, 100, 1000)
    """

    class Guarded(GuardedProtocol):
        __slots__ = ()

    Guarded.deadline, Guarded.max_body, Guarded.max_header = deadline, max_body, max_header
    Guarded.max_connections = max_connections
    Guarded.on_refusal = staticmethod(on_refusal) if on_refusal else None
    return Guarded


class _Sweep:
    """Checks all connections of one server; runs only while there are any, so there is nothing to cancel at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        self.loop, self.every = loop, every
        self.admitted: set[GuardedProtocol] = set()
        self.turned_away: set[GuardedProtocol] = set()
        self.running = False
        self._idle: list[tuple[float, GuardedProtocol]] = []  # found idle by the last search, the longest idle last
        self._searched = 0.0

    def start(self) -> None:
        if not self.running:
            self.running = True
            self.loop.call_later(self.every, self.run)

    def run(self) -> None:
        now = self.loop.time()
        for connection in [*self.admitted, *self.turned_away]:
            connection.check_times(now)
        self.running = False
        if self.admitted or self.turned_away:
            self.start()

    def make_room(self) -> bool:
        """Close the connection that has been idle longest; False if none is.  A search finds many, for later calls."""
        now = self.loop.time()
        if not self._idle and now - self._searched >= _SEARCH_EVERY:
            self._searched = now
            found = ((since, one) for one in self.admitted if (since := one.idle_since) is not None)
            self._idle = sorted(found, key=lambda pair: -pair[0])
        while self._idle:
            since, one = self._idle.pop()
            if one in self.admitted and one.idle_since == since:
                self.admitted.discard(one)
                one.transport.close()
                return True
        return False


_SWEEPS: WeakKeyDictionary[ServerState, _Sweep] = WeakKeyDictionary()


class Outgoing:
    """A transport that sends the head of an answer together with the first part of its body, and counts bytes.

    uvicorn writes them separately, which costs two system calls and two packets.  `at_head` means that the next write
    is the head of an answer.  All other attributes are those of the transport.
    """

    __slots__ = ("_head", "_transport", "_write", "at_head", "is_closing", "written")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.written = 0
        self.at_head = True
        self._head = b""
        self._transport, self._write = transport, transport.write
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if not self.at_head:
            head, self._head = self._head, b""
            self._write(head + data if head else data)
        elif data.startswith(_CONTINUE):
            self._write(data)
        else:
            self._head = data
            self.at_head = False

    def end_answer(self) -> None:
        """End an answer; sends the head now if there was no body."""
        self.at_head = True
        if self._head:
            head, self._head = self._head, b""
            self._write(head)

    def close(self) -> None:
        self.end_answer()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """One connection; `protocol` builds the class with its limits.

    It has slots, because CPython's attribute access is slower for instances with more than 30 attributes, and calls its
    parent by name, because `super()` costs twice as much in the five calls that every request makes.
    """

    __slots__ = ("answered_at", "body", "came", "chunk", "outgoing", "sent", "sent_at", "since", "stage", "sweep")

    deadline: float
    max_body: int
    max_header: int
    max_connections: int
    on_refusal: Callable[[int], None] | None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        sweep = _SWEEPS.get(server_state)
        if sweep is None:
            sweep = _SWEEPS[server_state] = _Sweep(self.loop, min(1.0, self.deadline / 10))
        self.sweep = sweep
        self.stage = _IDLE
        self.since: float | None = None  # when the current request began; None between requests
        self.came = 0  # bytes received since the first chunk of an unfinished request; -1: it began in this chunk
        self.chunk = 0
        self.body = 0
        self.sent, self.sent_at = -1, 0.0
        self.answered_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = self.outgoing = Outgoing(transport)  # type: ignore[assignment]
        self.since = self.loop.time()
        self.sweep.start()
        if len(self.sweep.admitted) < self.max_connections or self.sweep.make_room():
            self.sweep.admitted.add(self)
            return
        self.connections.discard(self)
        self.sweep.turned_away.add(self)
        few = len(self.sweep.turned_away) <= self.max_connections
        detail = f"{self.max_connections} connections are already open; try again in a second"
        self._refuse(Problem(503, detail, retry_after=1), answer=few)

    def connection_lost(self, exc: Exception | None) -> None:
        self.sweep.admitted.discard(self)
        self.sweep.turned_away.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.stage == _REFUSED:
            if self in self.sweep.turned_away:
                self.transport.close()
            return
        self.chunk = len(data)
        HttpToolsProtocol.data_received(self, data)
        stage = self.stage
        if _IDLE < stage < _REFUSED:
            self.came = 0 if self.came < 0 else self.came + self.chunk
            if stage == _HEADERS:
                if self.came > self.max_header:
                    self._refuse_header()
            elif self.came > 2 * self.max_body + self.max_header:  # includes chunk sizes, extensions and trailers
                self._refuse_body()
        elif stage == _IDLE and self.since is None and self.cycle is not None and self.cycle.response_complete:
            self.since = self.loop.time()  # line ends before a request that may never arrive

    def on_message_begin(self) -> None:
        if self.stage == _REFUSED:
            return
        self.stage = _HEADERS
        self.since = self.loop.time()
        self.came = -1
        self.body = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        if self.stage == _REFUSED:
            return
        if self.chunk > self.max_header or self.came > 0:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.max_header:
                return self._refuse_header()
        for name, value in self.headers:
            if name == b"content-length" and int(value) > self.max_body:
                return self._refuse_body(int(value))
        if len(self.pipeline) >= MAX_PIPELINED:
            return self._refuse(Problem(429, "too many pipelined requests; wait for the answers"), answer=False)
        self.stage = _BODY
        HttpToolsProtocol.on_headers_complete(self)

    def on_body(self, body: bytes) -> None:
        if self.stage == _REFUSED:
            return
        self.body += len(body)
        if self.body > self.max_body:
            return self._refuse_body()
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        if self.stage == _REFUSED:
            return
        self.stage = _IDLE
        self.since = None
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        self.outgoing.end_answer()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.answered_at = self.loop.time()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing; a request to upgrade is answered in HTTP/1.1."""

    def handle_websocket_upgrade(self) -> None:
        self.sweep.admitted.discard(self)  # another protocol takes over
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self.stage != _REFUSED:
            self._refuse(Problem(400, "this is not valid HTTP/1.1; send a well-formed request"))

    @property
    def idle_since(self) -> float | None:
        """When the connection was opened or last answered, if nothing has arrived since; None if it is in use."""
        if self.stage != _IDLE or self.pipeline:
            return None
        if self.since is None and self.cycle is not None and self.cycle.response_complete:
            return self.answered_at
        return self.since  # None while a request is answered

    def check_times(self, now: float) -> None:
        """Called by the sweep: close the connection if it has waited too long."""
        since = self.since
        if self.stage == _REFUSED:
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
            self._refuse(Problem(408, detail), answer=self.stage != _IDLE)
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0:
            self.sent = -1
        elif self.outgoing.written - waiting != self.sent:
            self.sent, self.sent_at = self.outgoing.written - waiting, now
        elif now - self.sent_at >= self.deadline:
            self._refuse(Problem(408, "the answer was not read"), answer=False)

    def _refuse_header(self) -> None:
        self._refuse(Problem(431, f"the headers are larger than {self.max_header} bytes; send fewer or shorter ones"))

    def _refuse_body(self, size: int | None = None) -> None:
        came = "" if size is None else f" of {size} bytes"
        detail = f"the body{came} is larger than the {self.max_body} bytes allowed; send less at a time"
        self._refuse(Problem(413, detail))

    def _refuse(self, problem: Problem, *, answer: bool = True) -> None:
        """Send the problem if the client is waiting for this answer next, then close the connection."""
        cycle = self.cycle
        if self.stage == _BODY:
            answer = answer and not self.pipeline and not cycle.response_started
        else:
            answer = answer and (cycle is None or cycle.response_complete)
        self.stage = _REFUSED
        self.since = self.loop.time()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application notices when it awaits the body, and writes nothing more
            cycle.message_event.set()
        if self.on_refusal is not None:
            self.on_refusal(problem.status if answer else 0)
        if not answer:
            self.transport.abort()
            return
        self.transport.write(self._build_response(problem))
        self.outgoing.end_answer()
        if self.transport.can_write_eof():
            self.flow.resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()

    def _build_response(self, problem: Problem) -> bytes:
        body = problem.to_json()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if problem.retry_after is not None:
            headers.append((b"retry-after", b"%d" % problem.retry_after))
        status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()
        return b"\r\n".join([status, *(name + b": " + value for name, value in headers), b"", body])
