"""The socket of a service, and who is let in from it.

libuv lets in one connection a turn of the event loop.  Under load a turn takes milliseconds: a thousand who come at
once, or are to be told at once that there are too many, would wait for seconds.  Here a turn lets in sixteen.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import structlog

from lcb.errors import OutputError
from lcb.serve.web.wire.protocol import GuardedProtocol

_BACKLOG = 2048
_AT_ONCE = 16
_PAUSE = 1.0  # seconds without looking where the process has no descriptor left
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; 0 for any port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port} ({error.strerror}); give another --port or --host") from None
    return listening


class Accepting:
    """Connections from a socket, each with a protocol of its own, until `close`; from inside the event loop."""

    def __init__(self, listening: socket.socket, make: Callable[[], GuardedProtocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening, self._make = listening, make
        self._coming: set[asyncio.Task[tuple[asyncio.Transport, GuardedProtocol]]] = set()
        self._closed = False
        self._waiting: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._look()

    def close(self) -> None:
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """Until those who were on their way in are in."""
        await asyncio.gather(*self._coming, return_exceptions=True)

    def _look(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                structlog.get_logger("lcb.serve").error("no more connections", error=error.strerror)
                self._loop.remove_reader(self._listening)
                self._waiting = self._loop.call_later(_PAUSE, self._look)
                return
            connection.setblocking(False)
            coming = self._loop.create_task(self._loop.connect_accepted_socket(self._make, connection))
            self._coming.add(coming)
            coming.add_done_callback(self._came)

    def _came(self, coming: asyncio.Task[tuple[asyncio.Transport, GuardedProtocol]]) -> None:
        self._coming.discard(coming)
        if coming.cancelled() or coming.exception() is not None:
            return  # whoever came is gone again
        if self._closed:  # the others have been told
            coming.result()[1].shutdown()
