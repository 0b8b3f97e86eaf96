"""Large answers: many who ask for one keep nobody else waiting, whether they read it or not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import pytest
import uvicorn
import uvloop

from lcb.serve.web.wire.listening import listen
from lcb.serve.web.wire.outgoing import Outgoing
from lcb.serve.web.wire.protocol import protocol

SIZE = 6_000_000  # more than the kernel takes of an answer that nobody reads
BODY = bytes(range(250)) * (SIZE // 250)
GET = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n"
SMALL = GET.replace(b"/large", b"/small")
LIMIT = 30.0


class App:
    """/large answers BODY in one message, /small a word; `turns` are the bytes written in each turn of the loop."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.n_written, self.n_asked = 0, 0
        self.watching: asyncio.Task[None] | None = None

    async def watch(self) -> None:
        while True:
            self.n_written = 0
            await asyncio.sleep(0)
            self.turns.append(self.n_written)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.watching is None:
            self.watching = asyncio.create_task(self.watch())
        await receive()
        self.n_asked += 1
        body = BODY if scope["path"] == "/large" else b"small"
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Running:
    def __init__(self, app: App, address: tuple[str, int], state: Any) -> None:
        self.app, self.address, self.state = app, address, state

    def connect(self, sent: bytes) -> socket.socket:
        client = socket.create_connection(self.address, timeout=LIMIT)
        client.sendall(sent)
        return client


@contextmanager
def running(loop: str = "uvloop", **limits: Any) -> Iterator[Running]:
    app, listener = App(), listen("127.0.0.1", 0)
    http = protocol(**{"deadline": 60.0, "max_per_address": 1000, **limits})
    more: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_level": "critical", "access_log": False}
    server = uvicorn.Server(uvicorn.Config(app, http=http, loop=loop, timeout_graceful_shutdown=1, **more))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield Running(app, listener.getsockname(), server.server_state)
    finally:
        server.should_exit = True
        thread.join(LIMIT)
        listener.close()
        assert not thread.is_alive()


def wait_until(fact: Any) -> None:
    limit = time.monotonic() + LIMIT
    while not fact():
        assert time.monotonic() < limit
        time.sleep(0.01)


def read_answer(client: socket.socket | BinaryIO) -> tuple[bytes, bytes]:
    came = client.makefile("rb") if isinstance(client, socket.socket) else client
    head = b"".join(iter(came.readline, b"\r\n"))
    return head, came.read(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


@pytest.mark.parametrize("reading", [False, True])
def test_a_turn_of_the_loop_writes_little_however_many_ask(monkeypatch: pytest.MonkeyPatch, reading: bool) -> None:
    with running() as server, ExitStack() as stack:
        write = Outgoing.write

        def count(self: Outgoing, data: bytes) -> None:
            server.app.n_written += len(data)
            write(self, data)

        monkeypatch.setattr(Outgoing, "write", count)
        clients = [stack.enter_context(server.connect(GET)) for _ in range(25)]
        if reading:
            assert all(read_answer(client)[1] == BODY for client in clients)
        else:
            wait_until(lambda: server.app.n_asked == len(clients))
        with server.connect(SMALL) as other:
            assert read_answer(other)[1] == b"small"
        assert max(server.app.turns) < 1_000_000


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_large_answer_is_whole_and_the_connection_stays(loop: str) -> None:
    with running(loop) as server, server.connect(GET + GET + SMALL) as client, client.makefile("rb") as came:
        assert [read_answer(came)[1] for _ in range(3)] == [BODY, BODY, b"small"]
        client.sendall(GET)
        assert read_answer(came)[1] == BODY


def test_the_head_of_a_large_answer_is_all_that_head_asks_for() -> None:
    with running() as server, server.connect(GET.replace(b"GET", b"HEAD")) as client:
        client.shutdown(socket.SHUT_WR)
        came = b""
        while data := client.recv(65536):
            came += data
        assert came.startswith(b"HTTP/1.1 200 ")
        assert came.endswith(b"\r\n\r\n")


def test_who_does_not_read_gives_way_and_is_gone() -> None:
    """A connection that gave way with an unread answer kept its socket for good, counted by nobody."""
    most = 5
    with running(max_connections=most, deadline=1.0) as server, ExitStack() as stack:
        for _ in range(4 * most):
            asked = server.app.n_asked
            stack.enter_context(server.connect(GET))
            wait_until(lambda asked=asked: server.app.n_asked > asked)
        wait_until(lambda: len(server.state.connections) <= most)


def test_the_kernel_keeps_little_of_what_nobody_reads() -> None:
    """Without a limit it keeps four megabytes of each connection."""

    async def run(listener: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
            transport.write(bytes(20_000_000))
            await asyncio.sleep(0.5)
            kept = 20_000_000 - transport.get_write_buffer_size()
            transport.abort()
            assert client.recv(10)
            return kept

    with listen("127.0.0.1", 0) as listener:
        assert 0 < uvloop.run(run(listener)) < 1_000_000
