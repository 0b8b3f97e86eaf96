"""The listening socket of a service, and how connections are accepted from it.

libuv accepts one connection per iteration of the event loop.  Under load an iteration takes milliseconds, so a thousand
simultaneous connections would wait for seconds.  Here an iteration accepts hundreds, because the kernel's queue is one
for all; those that cannot be set up at once wait in the line of their address.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Callable
from functools import partial

import structlog

from lcb.errors import OutputError
from lcb.serve.web.wire.places import Sweep, unmap_address
from lcb.serve.web.wire.protocol import GuardedProtocol

_BACKLOG = 2048
_AT_ONCE, _AT_LEAST = 256, 16
_PAUSE = 1.0  # seconds before accepting again when the process has no file descriptors left
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNSENT = 131_072  # bytes that the kernel keeps of an answer beyond what the client has room for; else 4 MB of each
_OTHERS = 128  # file descriptors for everything but connections


def provide_descriptors(most: int) -> int:
    """Raise the limit of open files, so that `most` connections fit; return how many fit under the hard limit.

    Twice as many are needed, because a connection that is turned away is open until it has its answer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * most + _OTHERS
    if hard != resource.RLIM_INFINITY and wanted > hard:
        wanted = hard
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    fits = max((wanted - _OTHERS) // 2, 1)
    if fits < most:
        words = "the limit of open files is too low for limits.max_connections; raise it (ulimit -Hn, LimitNOFILE)"
        structlog.get_logger("lcb.serve").warning(words, files=hard, max_connections=most, used=fits)
    return fits


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket at this address; port 0 means any free port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)  # connections inherit it
            listening.bind((host, port))
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port} ({error.strerror}); give another --port or --host") from None
    return listening


class Acceptor:
    """Accepts connections until `close` and gives each a protocol; used inside the event loop."""

    def __init__(self, listening: socket.socket, make: Callable[[], GuardedProtocol], sweep: Sweep) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening, self._make, self._sweep = listening, make, sweep
        self._n_in_line = 0
        self._connecting: set[asyncio.Task[tuple[asyncio.Transport, GuardedProtocol]]] = set()
        self._closed = False
        self._waiting: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """Wait until connections that are being accepted have their protocol."""
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        # those in line take descriptors of connections; fewer than are set up in a turn always find one
        room = 2 * self._sweep.admitted.most - self._sweep.n_open - self._n_in_line
        for _ in range(min(_AT_ONCE, max(_AT_LEAST, room))):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                structlog.get_logger("lcb.serve").error("no more connections", error=error.strerror)
                self._loop.remove_reader(self._listening)
                self._waiting = self._loop.call_later(_PAUSE, self._resume)
                return
            connection.setblocking(False)
            line = self._sweep.find_line(unmap_address(address[0]), address[1])
            if self._sweep.lines.may_begin(line):
                self._connect(connection)
            else:
                self._n_in_line += 1
                self._sweep.lines.wait(line, partial(self._connect_late, connection))

    def _connect_late(self, connection: socket.socket) -> None:
        self._n_in_line -= 1
        if self._closed:
            connection.close()
        else:
            self._connect(connection)

    def _connect(self, connection: socket.socket) -> None:
        coming = self._loop.create_task(self._loop.connect_accepted_socket(self._make, connection))
        self._connecting.add(coming)
        coming.add_done_callback(self._end_connecting)

    def _end_connecting(self, coming: asyncio.Task[tuple[asyncio.Transport, GuardedProtocol]]) -> None:
        self._connecting.discard(coming)
        if coming.cancelled() or coming.exception() is not None:
            return  # the client has disconnected already
        if self._closed:  # connections accepted earlier have been shut down already
            coming.result()[1].shutdown()
