"""Over real sockets: however much one address sends at once, a turn of the event loop begins little of it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest

from lcb.serve.web.wire.lines import AT_ONCE
from lcb.serve.web.wire.protocol import protocol
from serve.web.wire.test_protocol import Running, wait_until

N = 5 * AT_ONCE  # connections of one address
FEW = 2 * AT_ONCE  # those that began at once in a turn, and those whose turn it was in the next
GET = b"GET /%b HTTP/1.1\r\nhost: a\r\n\r\n"


class App:
    """Counts the requests that begin in one turn of the event loop; /held waits, /block stops the loop meanwhile."""

    def __init__(self) -> None:
        self.n, self.n_held, self.n_in_turn, self.most_in_turn = 0, 0, 0, 0
        self.may_go_on = threading.Event()
        self.order: list[bytes] = []

    async def __call__(self, scope, receive, send):
        if not self.n_in_turn:
            asyncio.get_running_loop().call_soon(self.end_turn)
        self.n_in_turn += 1
        self.most_in_turn = max(self.most_in_turn, self.n_in_turn)
        self.n += 1
        self.order.append(scope["path"])
        if scope["path"] == "/block":
            self.may_go_on.wait(60)
        if scope["path"] == "/held":
            self.n_held += 1
            while not self.may_go_on.is_set():
                await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def end_turn(self) -> None:
        self.n_in_turn = 0


@pytest.fixture
def running():
    limits = {"deadline": 60.0, "max_body": 1000, "max_connections": 2 * N, "max_per_address": 2 * N}
    found = Running(protocol(**limits), "uvloop", timeout_keep_alive=60)
    found.app = found.server.config.loaded_app = App()
    yield found
    found.app.may_go_on.set()
    found.stop()


def connect_many(running: Running, stack: ExitStack, sent: bytes, n: int = N) -> list:
    return [stack.enter_context(running.connect(sent, source_address=("127.0.0.2", 0))) for _ in range(n)]


def test_requests_that_were_sent_ahead_take_turns(running):
    app, n_ahead = running.app, 4
    with ExitStack() as stack:
        clients = connect_many(running, stack, GET % b"held" + n_ahead * (GET % b"next"))
        wait_until(lambda: app.n_held == N)
        app.most_in_turn = 0
        app.may_go_on.set()
        for client in clients:
            for _ in range(1 + n_ahead):
                assert read_one(client) == 200
    assert app.n == N * (1 + n_ahead)
    assert app.most_in_turn <= FEW


def test_requests_that_come_at_once_take_turns_and_that_of_another_address_is_among_the_first(running):
    app = running.app
    with ExitStack() as stack:
        clients = connect_many(running, stack, GET % b"warm")
        assert [read_one(client) for client in clients] == [200] * N
        other = stack.enter_context(running.connect(GET % b"warm", source_address=("127.0.0.3", 0)))
        assert read_one(other) == 200
        app.order.clear()
        app.most_in_turn = 0
        stack.enter_context(running.connect(GET % b"block", source_address=("127.0.0.4", 0)))
        wait_until(lambda: "/block" in app.order)
        for client in clients:
            client.sendall(GET % b"many")
        other.sendall(GET % b"other")
        time.sleep(0.1)  # all of it has come
        app.may_go_on.set()
        assert [read_one(client) for client in [*clients, other]] == [200] * (N + 1)
    assert app.most_in_turn <= FEW
    assert app.order.index("/other") <= 2 * FEW


def test_who_disconnects_while_they_wait_are_forgotten(running):
    app = running.app
    with ExitStack() as stack:
        gone = connect_many(running, stack, GET % b"held" + 4 * (GET % b"next"))
        wait_until(lambda: app.n_held == N)
        stack.enter_context(running.connect(GET % b"block", source_address=("127.0.0.4", 0)))
        wait_until(lambda: "/block" in app.order)
        for client in gone[: N // 2]:
            client.close()
        app.may_go_on.set()
        for client in gone[N // 2 :]:
            assert [read_one(client) for _ in range(5)] == [200] * 5
    wait_until(lambda: not running.server.server_state.connections)
    assert running.ask(GET % b"after")[0] == 200


def read_one(client) -> int:
    """Read one answer, byte by byte, so that the next one stays where it is."""
    came = b""
    while not came.endswith(b"\r\n\r\nok"):
        data = client.recv(1)
        if not data:
            return 0
        came += data
    return int(came.split()[1])
