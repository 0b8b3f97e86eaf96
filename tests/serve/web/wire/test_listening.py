"""Who comes at once is let in at once, and a process without descriptors looks again later."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack

import pytest
import uvloop

from lcb.errors import OutputError
from lcb.serve.web.wire import listening
from lcb.serve.web.wire.lines import AT_ONCE
from lcb.serve.web.wire.listening import Acceptor, listen
from lcb.serve.web.wire.places import Sweep

N = 64


class Greeting(asyncio.Protocol):
    def __init__(self, came: list[asyncio.BaseTransport]) -> None:
        self.came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.came.append(transport)

    def shutdown(self) -> None:
        self.came[-1].close()


class Short(socket.socket):
    """A socket of a process that has no descriptor left."""

    n_refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.n_refused:
            self.n_refused -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def make_acceptor(at_socket: socket.socket, came: list[asyncio.BaseTransport]) -> Acceptor:
    sweep = Sweep(asyncio.get_running_loop(), 1.0, 1000, 1000, ())
    return Acceptor(at_socket, lambda: Greeting(came), sweep)  # type: ignore[arg-type,return-value]


async def turns_until(came: list[asyncio.BaseTransport], n: int) -> int:
    turns = 0
    async with asyncio.timeout(10):
        while len(came) < n:
            turns += 1
            await asyncio.sleep(0)
    for transport in came:
        transport.close()
    return turns


def test_many_who_come_at_once_are_let_in_within_a_few_turns():
    async def run(at_socket: socket.socket) -> int:
        came: list[asyncio.BaseTransport] = []
        with ExitStack() as stack:
            for _ in range(N):
                stack.enter_context(socket.create_connection(at_socket.getsockname()))
            accepting = make_acceptor(at_socket, came)
            turns = await turns_until(came, N)
            accepting.close()
        return turns

    with listen("127.0.0.1", 0) as at_socket:
        assert uvloop.run(run(at_socket)) < N / 2


def test_who_comes_after_very_many_of_one_address_is_let_in_before_most_of_them():
    async def run(at_socket: socket.socket) -> int:
        came: list[asyncio.BaseTransport] = []
        with ExitStack() as stack:
            for address in ["127.0.0.2"] * (8 * AT_ONCE) + ["127.0.0.3"]:
                client = socket.create_connection(at_socket.getsockname(), source_address=(address, 0))
                stack.enter_context(client)
            accepting = make_acceptor(at_socket, came)
            await turns_until(came, 8 * AT_ONCE + 1)
            accepting.close()
        return [one.get_extra_info("peername")[0] for one in came].index("127.0.0.3")

    with listen("127.0.0.1", 0) as at_socket:
        assert uvloop.run(run(at_socket)) <= 4 * AT_ONCE


def test_who_waits_in_line_when_it_closes_is_told_too():
    async def run(at_socket: socket.socket) -> bytes:
        came: list[asyncio.BaseTransport] = []
        with socket.create_connection(at_socket.getsockname()) as client:
            accepting = make_acceptor(at_socket, came)
            for _ in range(AT_ONCE):
                accepting._sweep.lines.spend()
            accepting._accept()
            accepting.close()
            await accepting.wait_closed()
            client.settimeout(5)
            return await asyncio.to_thread(client.recv, 1)

    with listen("127.0.0.1", 0) as at_socket:
        assert uvloop.run(run(at_socket)) == b""


def test_without_descriptors_it_looks_again_later(monkeypatch):
    monkeypatch.setattr(listening, "_PAUSE", 0.05)

    async def run(at_socket: Short) -> None:
        came: list[asyncio.BaseTransport] = []
        at_socket.n_refused = 2
        accepting = make_acceptor(at_socket, came)
        with socket.create_connection(at_socket.getsockname()):
            await turns_until(came, 1)
        assert at_socket.n_refused == 0
        accepting.close()

    with Short(socket.AF_INET, socket.SOCK_STREAM) as at_socket:
        at_socket.bind(("127.0.0.1", 0))
        at_socket.listen()
        uvloop.run(run(at_socket))


def test_who_is_on_the_way_in_when_it_closes_is_told_too():
    async def run(at_socket: socket.socket) -> bytes:
        came: list[asyncio.BaseTransport] = []
        with socket.create_connection(at_socket.getsockname()) as client:
            accepting = make_acceptor(at_socket, came)
            accepting._accept()
            accepting.close()
            await accepting.wait_closed()
            client.settimeout(5)
            return await asyncio.to_thread(client.recv, 1)

    with listen("127.0.0.1", 0) as at_socket:
        assert uvloop.run(run(at_socket)) == b""


def test_a_place_that_is_taken_is_told():
    with listen("127.0.0.1", 0) as taken, pytest.raises(OutputError, match="give another --port or --host"):
        listen(*taken.getsockname())
