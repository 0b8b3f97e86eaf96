"""The writing side of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from lcb.serve.errors import Problem
from lcb.serve.web.wire.headers import NO_STORE, NOSNIFF

_CONTINUE = b"HTTP/1.1 100 "


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


def encode_problem(problem: Problem, more: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a whole answer with the problem, after which the connection is closed; `more` are further headers."""
    body = problem.to_json()
    headers = [
        *more,
        (b"content-type", b"application/problem+json"),
        NOSNIFF,
        (b"cache-control", NO_STORE),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if problem.retry_after is not None:
        headers.append((b"retry-after", b"%d" % problem.retry_after))
    status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()
    return b"\r\n".join([status, *(name + b": " + value for name, value in headers), b"", body])
