"""One request and its answer: uvicorn's cycle, with a short way for bodies and answers that are whole.

ASGI passes a body in parts and an answer as two messages, and uvicorn holds every header of every answer against two
patterns.  Most requests have arrived when they are asked for, most answers are one piece, and their headers are few and
known: this way takes a third of the time.  Everything else goes the long way, through `receive` and `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from lcb.serve.web.wire.outgoing import LARGE

if TYPE_CHECKING:
    from lcb.serve.web.wire.protocol import GuardedProtocol

Header = tuple[bytes, bytes]


class Cycle(RequestResponseCycle):
    """A request of `protocol`; what every request begins with are attributes of the class."""

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, protocol: GuardedProtocol, scope: Any, *, keep_alive: bool) -> None:
        self.scope = scope
        self.transport, self.flow = protocol.transport, protocol.flow
        self.logger, self.access_logger, self.access_log = protocol.logger, protocol.access_logger, protocol.access_log
        self.default_headers = protocol.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = protocol.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.body = bytearray()

    def take_body(self) -> bytes | None:
        """Return the body if it is there whole and the connection open; None: ask `receive` for it."""
        if self.more_body or self.disconnected or self.response_complete or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), bytearray()
        if self.flow.read_paused:
            self.flow.resume_reading()
        self.message_event.clear()
        return body

    def answer(self, status: int, head: bytes, more: Iterable[Header], body: bytes) -> bool:
        """Send a whole answer; `head` are encoded headers and `more` others.

        False if that is not possible now: send it by `send`.
        """
        if self.disconnected:
            return True
        if self.response_started or self.flow.write_paused or self.default_headers or len(body) > LARGE:
            return False
        lines = [STATUS_LINE[status], head, b"content-length: %d\r\n" % len(body)]
        lines.extend(encode_header(header) for header in more)
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.scope["method"] != "HEAD":
            lines.append(body)
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(lines))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


def encode_header(header: Header) -> bytes:
    """Return a header as a line, if it is one: a line end in it would begin another header.

    >>> encode_header((b"retry-after", b"1"))
    b'retry-after: 1\\r\\n'
    """
    name, value = header
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError(f"invalid header {name!r}")
    return b"%b: %b\r\n" % (name, value)


@lru_cache(64)
def encode_headers(*headers: Header) -> bytes:
    """Return headers that many answers have as lines."""
    return b"".join(map(encode_header, headers))
