"""uvicorn's HTTP protocol with limits on slow clients, large requests and the number of connections.

    no complete request within `deadline` s   408, closed      (closed without an answer if nothing arrived)
    headers above `max_header` bytes,
    or more than `MAX_FIELDS` of them         431, closed      (fields after a chunked body too; they are ignored)
    unfinished headers and large bodies of
    all connections above `MOST_HELD` bytes   the largest request that is not complete: 431 or 503, closed
    no header Host in HTTP/1.1, or several    400, closed
    Transfer-Encoding not chunked, or several 400, closed
    a body above `max_body` bytes             413, closed      (by Content-Length at once, chunked as it grows)
    a body of very many small pieces          400, closed      (each piece is a call)
    connections above `max_connections`       the one that has waited longest for its client is closed; if none waits
                                              503, closed      Retry-After: 1
    connections of an address above
    `max_per_address`                         the same among those of this address; if none waits
                                              429, closed      Retry-After: 1
    requests sent ahead of their answers
    above `MAX_PIPELINED`                     429, closed      (after the answers to those before)
    an answer not read for `deadline` s       closed           (a client that reads a stream slowly is not closed)

A refusal waits until the requests before it on the connection are answered; nothing is read meanwhile.
One sweep per server checks all connections every tenth of the deadline; a request costs five short calls.  A refusal is
written at once; what the client still sends is discarded for up to `LINGER` seconds, because closing a socket with
unread bytes makes the kernel drop the answer.  The sweep also closes connections that are idle for longer than
uvicorn's `timeout_keep_alive`, which saves two timers per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lcb.serve.errors import Problem
from lcb.serve.web.wire.cycle import Cycle
from lcb.serve.web.wire.headers import check_upgrade, count_headers, read_target
from lcb.serve.web.wire.lines import Flow
from lcb.serve.web.wire.outgoing import Outgoing
from lcb.serve.web.wire.places import Places, Sweep, unmap_address
from lcb.serve.web.wire.reading import PieceReader
from lcb.serve.web.wire.refusing import (
    BODY,
    FIELD_BYTES,
    HEADERS,
    IDLE,
    MAX_FIELDS,
    MOST_HELD,
    REFUSED,
    Refusing,
)

MAX_PIPELINED = 32  # requests sent ahead of their answers on one connection
MOST_SMALL, _SMALL = 1000, 64  # pieces of a body that have less than so many bytes
_MANY_PIECES = f"the body came in more than {MOST_SMALL:,} pieces of less than {_SMALL} bytes; send larger ones"
_PIECE = 8192  # bytes that are parsed at once: those before an unfinished request are not counted with it
_CODINGS = "the header Transfer-Encoding comes twice or is not chunked; send Content-Length, or chunked alone and once"


def protocol(
    *,
    deadline: float = 10.0,
    max_body: int = 1_048_576,
    max_connections: int = 1000,
    max_per_address: int = 250,
    proxies: tuple[str, ...] = (),
    max_header: int = 16_384,
    on_refusal: Callable[[int], None] | None = None,
    on_abort: Callable[[], None] | None = None,
) -> type[GuardedProtocol]:
    """Return a class for `uvicorn.Config(http=...)`.

    `on_refusal` gets the status of each refusal, 0 if none was sent.  `on_abort` is called when a client disconnects
    before its request has arrived or its answer is complete.

    >>> guarded = protocol(deadline=5, max_body=100)
    >>> guarded.deadline, guarded.max_body, guarded.max_connections
    (5, 100, 1000)
    """

    class Guarded(GuardedProtocol):
        __slots__ = ()

    Guarded.deadline, Guarded.max_body, Guarded.max_header = deadline, max_body, max_header
    Guarded.max_connections, Guarded.max_per_address, Guarded.proxies = max_connections, max_per_address, proxies
    Guarded.on_refusal = staticmethod(on_refusal) if on_refusal else None
    Guarded.on_abort = staticmethod(on_abort) if on_abort else None
    return Guarded


_SWEEPS: WeakKeyDictionary[ServerState, Sweep] = WeakKeyDictionary()


class GuardedProtocol(Refusing, HttpToolsProtocol):
    """One connection; `protocol` builds the class with its limits.

    It has slots, because CPython's attribute access is slower for instances with more than 30 attributes, and calls its
    parent by name, because `super()` costs twice as much in the five calls that every request makes.
    """

    __slots__ = (
        "ahead",
        "answered_at",
        "answering",
        "body",
        "came",
        "chunk",
        "closing",
        "held",
        "line",
        "outgoing",
        "paused_at",
        "places",
        "refusal",
        "sent",
        "sent_at",
        "since",
        "small",
        "stage",
        "sweep",
    )

    flow: Flow
    deadline: float
    max_body: int
    max_header: int
    max_connections: int
    max_per_address: int
    proxies: tuple[str, ...]
    on_refusal: Callable[[int], None] | None
    on_abort: Callable[[], None] | None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.sweep = self.find_sweep(server_state, self.loop)
        self.line = ""  # in which the connection waits for its turn
        self.places: tuple[Places, ...] = ()
        self.stage = IDLE
        self.since: float | None = None  # when the current request began; None between requests
        self.came = 0  # bytes received since the first chunk of an unfinished request; -1: it began in this chunk
        self.chunk = 0
        self.held = 0  # bytes of memory that unfinished headers take, or a large body until it is answered
        self.ahead = 0  # bytes of memory of requests that were sent ahead of answers, until they are answered
        self.body = self.small = 0  # bytes of the body, small pieces of it
        self.sent, self.sent_at = -1, 0.0
        self.paused_at = 0.0  # when writing was last paused, because the client does not read
        self.answered_at = 0.0
        self.closing = False  # a refused connection will be closed shortly
        self.refusal: Problem | None = None  # sent after the answers to the requests before
        self.answering: Cycle | None = None  # `cycle` is the last request, which may be queued

    @classmethod
    def find_sweep(cls, server_state: ServerState, loop: asyncio.AbstractEventLoop) -> Sweep:
        """Return the sweep of a server, which is made when it is first asked for."""
        sweep = _SWEEPS.get(server_state)
        if sweep is None:
            every = min(1.0, cls.deadline / 10)
            sweep = Sweep(loop, every, cls.max_connections, cls.max_per_address, cls.proxies)
            _SWEEPS[server_state] = sweep
        return sweep

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        if self.client is not None:
            self.client = (unmap_address(self.client[0]), self.client[1])
            self.line = self.sweep.find_line(*self.client)
        transport.set_protocol(PieceReader(self))
        self.transport = self.outgoing = Outgoing(transport)  # type: ignore[assignment]
        self.since = self.loop.time()
        problem = self.sweep.admit(self, self.client[0] if self.client else "")
        if problem is not None:
            self.connections.discard(self)
            self._turn_away(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self.sweep.release(self)
        self._hold(0)
        self.sweep.turned_away.discard(self)
        answering, unanswered = self.answering, bool(self.pipeline) or self.stage in (HEADERS, BODY)
        if answering is not None and not answering.response_complete:  # `cycle` may be a request queued after it
            unanswered = answering.disconnected = True
            answering.message_event.set()
        if unanswered and self.stage != REFUSED and self.on_abort is not None:
            self.on_abort()
        super().connection_lost(exc)
        self.sweep.n_ahead -= self.ahead
        self.ahead = 0
        self.pipeline.clear()
        self.cycle = self.answering = None  # else they keep each other until a collection

    def data_received(self, data: bytes) -> None:
        if self.stage >= REFUSED:
            if self in self.sweep.turned_away:
                self._close_soon()
        elif self.sweep.lines.may_begin(self.line):
            self._receive(data)
        else:
            self.flow.stand_in_line()
            self.sweep.lines.wait(self.line, partial(self._receive_late, data))

    def _receive_late(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.flow.leave_line()
            if self.stage < REFUSED:
                self._receive(data)

    def _receive(self, data: bytes) -> None:
        if len(data) <= _PIECE:
            self._feed(data)
            return
        at = 0
        while at < len(data) and self.stage < REFUSED:
            n = 2 * _PIECE if self.stage == BODY else _PIECE  # bodies are joined piece by piece
            if not self._feed(data[at : at + n]):
                return
            at += n

    def _feed(self, data: bytes) -> bool:
        """Parse what came; False if no more can follow."""
        self.chunk = len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserError:
            self.send_400_response("")
            return False
        except HttpParserUpgrade:  # else it is answered in HTTP/1.1, and its connection closed
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            return False
        stage = self.stage
        if IDLE < stage < REFUSED:
            self.came = 0 if self.came < 0 else self.came + self.chunk
            if stage == HEADERS:
                if self.came > self.max_header or len(self.headers) > MAX_FIELDS:
                    self._refuse_header()
                else:
                    self._hold(self.came + _PIECE + FIELD_BYTES * len(self.headers))
                    self.sweep.limit_held(MOST_HELD)
            elif self.came > 2 * (self.body + self.max_header):  # includes chunk sizes, extensions and trailers
                self._refuse_body()
            elif self.headers and self._has_large_headers():
                self._refuse_header()
            else:
                self._hold_body()
                self.sweep.limit_held(MOST_HELD)
        elif stage == IDLE and self.held:
            self._hold_body()
        elif stage == IDLE and self.since is None and self.cycle is not None and self.cycle.response_complete:
            self.since = self.loop.time()  # line ends before a request that may never arrive
        return True

    def on_message_begin(self) -> None:
        if self.stage >= REFUSED:
            return
        self.stage = HEADERS
        self.since = self.loop.time()
        self.came = -1
        self.body = self.small = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        if self.stage >= REFUSED:
            return
        large = (self.chunk > self.max_header or self.came >= 0) and self._has_large_headers()
        if large or len(self.headers) > MAX_FIELDS:
            return self._refuse_header()
        n_hosts, n_codings, size = count_headers(self.headers)
        if n_codings:
            return self._refuse(Problem(400, _CODINGS))
        if size > self.max_body:
            return self._refuse_body(size)
        if len(self.pipeline) >= MAX_PIPELINED:
            words = f"more than {MAX_PIPELINED} requests were sent ahead of their answers; wait for some, then go on"
            return self._refuse(Problem(429, words, retry_after=1))
        upgrade = self.parser.should_upgrade()
        if upgrade and (problem := check_upgrade(self.parser.get_method(), self.headers)):
            return self._refuse(problem)
        if n_hosts != 1 and (n_hosts or self.parser.get_http_version() != "1.0"):
            came = f"{n_hosts} headers Host" if n_hosts else "no header Host"
            return self._refuse(Problem(400, f"a request of HTTP/1.1 with {came}; send it once, as RFC 9112 wants it"))
        self.stage = BODY
        if upgrade and self._should_upgrade():
            return
        self._begin_request(upgrade)
        if self.stage >= REFUSED:
            return
        self.headers = []  # the request keeps its own: the parser adds fields that come after the body
        if not self.pipeline:
            self.answering = self.cycle

    def _begin_request(self, upgrade: bool) -> None:
        """Do what uvicorn does when the headers are complete, with a `Cycle`."""
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"], scope["raw_path"], scope["query_string"] = read_target(self.url, self.headers)
        before = self.cycle
        # after a request to upgrade, the parser discards the rest of the chunk
        keep_alive = version != "1.0" and not upgrade and parser.should_keep_alive()
        self.cycle = Cycle(self, scope, keep_alive=keep_alive)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
            self.sweep.lines.spend()
            self._put_ahead(FIELD_BYTES * len(self.headers))

    def on_body(self, body: bytes) -> None:
        if self.stage >= REFUSED:
            return
        self.body += len(body)
        if self.body > self.max_body:
            return self._refuse_body()
        if len(body) < _SMALL:
            self.small += 1
            if self.small > MOST_SMALL:
                return self._refuse(Problem(400, _MANY_PIECES))
        if self.pipeline and not self._put_ahead(len(body)):
            return
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.stage >= REFUSED:
            return
        if self.headers and self._has_large_headers():
            return self._refuse_header()
        self.stage = IDLE
        self.since = None
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        self.outgoing.end_answer()
        self.server_state.total_requests += 1
        answered = self.answering
        if answered is not None and (answered.body or answered.ahead):
            self._forget(answered)
        if self.held and self.stage == IDLE:
            self._hold(0)
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self.answering, app = self.pipeline.pop()
            if self.sweep.lines.may_begin(self.line):
                self._start_asgi_task(self.answering, app)
            else:
                self.sweep.lines.wait(self.line, partial(self._start_late, self.answering, app))
        elif self.refusal is not None:
            assert self.answering is not None  # the last request before it
            problem, self.refusal, self.stage, self.cycle = self.refusal, None, IDLE, self.answering
            self._refuse(problem)
        else:
            self.answered_at = self.loop.time()

    def _start_late(self, cycle: Cycle, app: Any) -> None:
        if not cycle.disconnected:
            self._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        self.paused_at = self.loop.time()
        HttpToolsProtocol.pause_writing(self)

    def handle_websocket_upgrade(self) -> None:
        self.sweep.release(self)  # another protocol takes over
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self.stage < REFUSED:
            self._refuse(Problem(400, "this is not valid HTTP/1.1; send a well-formed request"))
