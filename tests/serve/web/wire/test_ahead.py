"""Requests that are sent ahead of answers, and large bodies of many connections, take little memory and few turns."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lcb.serve.web.wire import refusing
from lcb.serve.web.wire.cycle import Cycle
from lcb.serve.web.wire.lines import AT_ONCE
from lcb.serve.web.wire.protocol import GuardedProtocol, protocol
from lcb.serve.web.wire.reading import PIECE
from lcb.serve.web.wire.refusing import MOST_AHEAD
from serve.web.wire import test_protocol
from serve.web.wire.test_protocol import Running, answer, wait_until

BODY = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n" + 60_000 * b"x"
FIELDS = b"GET / HTTP/1.1\r\nhost: a\r\n" + 240 * b"a:\r\n" + b"\r\n"  # a kilobyte, fifty in memory
HELD = b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n"
N = 3 * AT_ONCE  # connections


class Holding(test_protocol.App):
    """Answers when `may_go_on` is set; before, it has not read the bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.n_begun = 0

    async def __call__(self, scope, receive, send):
        self.n_begun += 1
        if scope["path"] == "/block":
            self.may_go_on.wait(60)
        while not self.may_go_on.is_set():
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def running() -> Iterator[Running]:
    limits = {"deadline": 60.0, "max_body": 100_000, "max_connections": 2 * N, "max_per_address": 2 * N}
    found = Running(protocol(**limits), "uvloop", timeout_keep_alive=60)
    found.app = found.server.config.loaded_app = Holding()
    yield found
    found.app.may_go_on.set()
    found.stop()


def connections(running: Running) -> list[GuardedProtocol]:
    return list(running.server.server_state.connections)  # type: ignore[arg-type]


def read_all(client: socket.socket) -> list[int]:
    """Return the statuses of all answers until the connection is closed."""
    came = b""
    while data := client.recv(65536):
        came += data
    return [int(line.split()[1]) for line in came.split(b"\r\n") if b"HTTP/1.1 " in line]


def test_what_is_sent_ahead_on_a_connection_takes_little_memory_and_the_rest_gets_429(running: Running) -> None:
    with running.connect(HELD + 12 * FIELDS) as client:
        wait_until(lambda: any(one.refusal for one in connections(running)))
        (one,) = connections(running)
        assert 0 < one.ahead == one.sweep.n_ahead <= MOST_AHEAD
        n = len(one.pipeline)
        running.app.may_go_on.set()
        assert read_all(client) == [200] * (1 + n) + [429]
        assert one.ahead == one.sweep.n_ahead == 0


def test_what_is_sent_ahead_on_all_connections_takes_little_memory(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusing, "MOST_AHEAD_OF_ALL", 300_000)
    last = FIELDS.replace(b"host: a", b"host: a\r\nconnection: close")
    with ExitStack() as stack:
        clients = [stack.enter_context(running.connect(HELD + 3 * FIELDS + last)) for _ in range(4)]
        wait_until(lambda: sum(one.refusal is not None for one in connections(running)) >= 2)
        sweep = connections(running)[0].sweep
        assert 0 < sweep.n_ahead <= 300_000
        running.app.may_go_on.set()
        found = [read_all(client) for client in clients]
        assert [one[-1] for one in found].count(429) >= 2
        assert all(status == 200 for one in found for status in one[:-1])
        assert sweep.n_ahead == 0


def test_requests_sent_ahead_on_a_connection_that_is_closed_are_freed_at_once(running: Running) -> None:
    """Not by the next collection of reference cycles, which a service does rarely."""

    def n_cycles() -> int:
        return sum(isinstance(one, Cycle) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = n_cycles()
        with running.connect(HELD + 2 * FIELDS):
            wait_until(lambda: any(len(one.pipeline) == 2 for one in connections(running)))
            (one,) = connections(running)
            sweep = one.sweep
            assert sweep.n_ahead > 2 * 240 * 100
            running.server.servers[0].get_loop().call_soon_threadsafe(one.transport.abort)
            del one
        wait_until(lambda: not connections(running))
        assert sweep.n_ahead == 0
        running.app.may_go_on.set()
        wait_until(lambda: n_cycles() <= before)
    finally:
        gc.enable()


def test_a_turn_parses_few_pieces_however_much_all_connections_have_sent(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn, most, largest = 0, 0, 0
    receive = GuardedProtocol._receive

    def end_turn() -> None:
        nonlocal in_turn
        in_turn = 0

    def counted(self: GuardedProtocol, data: bytes) -> None:
        nonlocal in_turn, most, largest
        if not in_turn:
            asyncio.get_running_loop().call_soon(end_turn)
        in_turn += 1
        most, largest = max(most, in_turn), max(largest, len(data))
        receive(self, data)

    with ExitStack() as stack:
        clients = [stack.enter_context(running.connect(source_address=("127.0.0.2", 0))) for _ in range(N)]
        wait_until(lambda: len(connections(running)) == N)
        stack.enter_context(running.connect(b"GET /block HTTP/1.1\r\nhost: a\r\n\r\n", source_address=("127.0.0.4", 0)))
        wait_until(lambda: running.app.n_begun == 1)
        for client in clients:
            client.sendall(BODY)  # the buffers of the kernel take it
        monkeypatch.setattr(GuardedProtocol, "_receive", counted)
        running.app.may_go_on.set()
        assert [answer(client)[0] for client in clients] == [200] * N
    assert largest <= PIECE
    assert most <= 2 * AT_ONCE  # those that began at once in a turn, and those whose turn it was in the next
