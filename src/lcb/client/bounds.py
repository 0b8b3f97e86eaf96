"""Bounds of one attempt: the seconds it may take as a whole, and the bytes of its answer.

httpx counts its timeouts anew for each read and each write.  A server that sends a byte per second, or `100 Continue`
without end, would hold a thread for ever.  Therefore `watch` sees each new connection (by httpcore's extension `trace`)
and gives its reads and writes only the time that is left of the attempt in whose thread they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx

from lcb.client.calls import Reply

MOST_BYTES = 64 * 2**20  # of an answer
_PIECE = 2**14  # bytes of a request that are written before the time is looked at again
_CONNECTED = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_end: ContextVar[float] = ContextVar("the end of the attempt of this thread")


class Left(dict[str, float]):
    """httpx's timeouts, where each begins with what is left of the attempt."""

    def get(self, key: str, default: Any = None) -> Any:
        return max(_end.get() - time.monotonic(), 0.001)


@contextmanager
def limit(seconds: float) -> Iterator[dict[str, Any]]:
    """End what is sent and read in the block after `seconds`; yield the extensions that the request needs."""
    before = _end.set(time.monotonic() + seconds)
    try:
        yield {"timeout": Left(), "trace": watch}
    finally:
        _end.reset(before)


def left() -> float:
    """Return the seconds that the attempt of this thread has left, more than 0; raise httpx.ReadTimeout if none."""
    seconds = _end.get() - time.monotonic()
    if seconds <= 0:
        raise httpx.ReadTimeout("the time of the attempt is over")
    return seconds


def watch(event: str, info: Mapping[str, Any]) -> None:
    """Give the reads and writes of a connection that was just made the time that is left."""
    if event.endswith(_CONNECTED):
        stream = info["return_value"]
        stream.read, stream.write = _bound_read(stream.read), _bound_write(stream.write)


def _bound_read(read: Callable[[int, float], bytes]) -> Callable[[int, float | None], bytes]:
    def read_some(max_bytes: int, timeout: float | None = None) -> bytes:
        return read(max_bytes, left())

    return read_some


def _bound_write(write: Callable[[bytes, float], None]) -> Callable[[bytes, float | None], None]:
    def write_pieces(buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            write(buffer[start : start + _PIECE], left())

    return write_pieces


class Body:
    """The answer of one attempt, as its pieces come; `full` once no more may be read."""

    def __init__(self, response: httpx.Response, most: int) -> None:
        self._most, self._response, self._pieces, self._size = most, response, list[bytes](), 0
        self._wrong: str | None = None
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            self._wrong = f"an answer with Content-Encoding {coding!r:.60}, asked for identity"

    @property
    def full(self) -> bool:
        return self._wrong is not None

    def add(self, piece: bytes) -> None:
        """Add a piece; what exceeds the limit is dropped with all that came before it."""
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > self._most:
            self._pieces.clear()
            self._wrong = f"an answer of more than {self._most / 2**20:g} MB, the most that is read"

    def build_reply(self) -> Reply:
        response = self._response
        body = b"" if self._wrong else b"".join(self._pieces)
        headers = response.headers
        return Reply(response.status_code, body, headers.get("retry-after"), headers.get("location"), self._wrong)
