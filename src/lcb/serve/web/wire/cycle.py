"""One request and its answer: uvicorn's cycle, with a short way for bodies and answers that are whole.

ASGI passes a body in parts and an answer as two messages, and uvicorn holds every header of every answer against two
patterns.  Most requests have arrived when they are asked for, most answers are one piece, and their headers are few and
known: this way takes a third of the time.  Everything else goes the long way, through `receive` and `send`.

A large answer is written in parts, each when the client has read most of those before, and few of all connections in
one turn of the event loop: copying megabytes to the kernel takes milliseconds, and two hundred clients who ask for a
large list at once would keep all others waiting for seconds.  The parts are views: answers that nobody reads share
their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from lcb.serve.web.wire.protocol import GuardedProtocol

Header = tuple[bytes, bytes]
PART = 65_536  # bytes of a large answer that are written at once


class Cycle(RequestResponseCycle):
    """A request of `protocol`; what every request begins with are attributes of the class."""

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    ahead = 0  # bytes of memory that are counted while it was sent ahead of other answers

    def __init__(self, protocol: GuardedProtocol, scope: Any, *, keep_alive: bool) -> None:
        self.scope = scope
        self.transport, self.flow = protocol.transport, protocol.flow
        self.logger, self.access_logger, self.access_log = protocol.logger, protocol.access_logger, protocol.access_log
        self.default_headers = protocol.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = protocol.on_response_complete
        self.turns = protocol.sweep.turns
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
        if self.response_started or self.flow.write_paused or self.default_headers or len(body) > PART:
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

    async def send(self, message: Any) -> None:
        body = message.get("body", b"")
        if len(body) <= PART or self.scope["method"] == "HEAD":
            return await super().send(message)
        view, more = memoryview(body), message.get("more_body", False)
        for at in range(0, len(body), PART):
            if self.flow.write_paused and not self.disconnected:
                await self.flow.drain()  # before it takes its turn: others do not wait for a client that does not read
            if self.disconnected:
                return None
            async with self.turns:
                is_last = at + PART >= len(body)
                part: Any = {"type": message["type"], "body": view[at : at + PART], "more_body": more or not is_last}
                await super().send(part)
                await asyncio.sleep(0)  # the turn ends with this turn of the event loop
        return None


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
