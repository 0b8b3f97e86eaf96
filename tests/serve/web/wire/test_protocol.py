"""Slow, greedy and too many clients, over real sockets; plain uvicorn is the negative control."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lcb.serve.web.wire import protocol as wire
from lcb.serve.web.wire import refusing
from lcb.serve.web.wire.outgoing import Outgoing
from lcb.serve.web.wire.protocol import MAX_PIPELINED, MOST_SMALL, protocol

DEADLINE = 0.6
LONG = 30.0  # far above the deadline, far below never: machines are noisy
MAX_BODY = 300_000
GET = b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n"
HELD = GET.replace(b"/echo", b"/held")


class App:
    """/echo says how much came, /late reads after a pause, /slow answers after one, /large and /stream write.

    /held is answered once `may_go_on` is set; /events sends nothing until the client disconnects.
    """

    def __init__(self) -> None:
        self.n_disconnected, self.received, self.n_requests, self.n_held = 0, 0, 0, 0
        self.may_go_on = threading.Event()
        self.host: bytes | None = None
        self.headers: list[tuple[bytes, bytes]] = []  # of the last request, when its body had come

    async def __call__(self, scope, receive, send):
        self.n_requests += 1
        self.host = dict(scope["headers"]).get(b"host")
        if scope["path"] in ("/late", "/slow"):
            await asyncio.sleep(2 * DEADLINE)
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.n_disconnected += 1
                return
            size, more = size + len(message["body"]), message["more_body"]
            self.received = size
        self.headers = list(scope["headers"])
        if scope["path"] == "/held":
            self.n_held += 1
            while not self.may_go_on.is_set():
                await asyncio.sleep(0.01)
        if scope["path"] == "/events":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            assert (await receive())["type"] == "http.disconnect"
            self.n_disconnected += 1
            return
        chunks = {"/large": [b"x" * 65536] * 400, "/stream": [b"y" * 8192] * 60}.get(scope["path"], [b"%d" % size])
        headers = [(b"content-length", b"%d" % sum(map(len, chunks)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if scope["path"] == "/stream":
                await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b""})


class Running:
    def __init__(self, http, loop: str, **settings) -> None:
        self.app = App()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # what is unread shows in the service
        self.address = self.listener.getsockname()
        config = uvicorn.Config(
            self.app,
            http=http,
            loop=loop,
            ws="none",
            lifespan="off",
            log_level="critical",
            access_log=False,
            **settings,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def connect(self, sent: bytes = b"", **settings) -> socket.socket:
        client = socket.create_connection(self.address, timeout=10, **settings)
        client.sendall(sent)
        return client

    def ask(self, sent: bytes = GET) -> tuple[int, dict[str, str], bytes]:
        with self.connect(sent) as client:
            return answer(client)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.listener.close()


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer: its status (0 if the connection ends without one), headers and body."""
    came = b""
    try:
        while b"\r\n\r\n" not in came:
            if not (data := client.recv(65536)):
                return 0, {}, b""
            came += data
        head, _, body = came.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        while len(body) < int(headers["content-length"]):
            body += client.recv(65536)
    except ConnectionResetError:
        return 0, {}, b""
    return int(lines[0].split()[1]), headers, body


def closes(client: socket.socket, within: float) -> bool:
    client.settimeout(within)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def wait_until(fact: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < limit
        time.sleep(0.01)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_grows_by_less_than(bytes_: int):
    gc.collect()
    before, highest, stop = resident(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
    assert highest[0] - before < bytes_


def post(path: str, size: int, body: bytes = b"", more: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n{more}\r\n".encode() + body


both_loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


@pytest.fixture
def loop() -> str:
    return "uvloop"


@pytest.fixture
def start(loop):
    running = []

    def start(*, plain: bool = False, keep_alive: int = 5, **limits) -> Running:
        limits = {"deadline": DEADLINE, "max_body": MAX_BODY, "max_connections": 400, "max_per_address": 400} | limits
        http = HttpToolsProtocol if plain else protocol(**limits)
        running.append(Running(http, loop, timeout_keep_alive=keep_alive))
        return running[-1]

    yield start
    for server in running:
        server.stop()


HALVES = {"header": b"POST /echo HTTP/1.1\r\nhost: a\r\nx-half: ", "body": post("/echo", 1000, b"half")}


@both_loops
@pytest.mark.parametrize("half", HALVES)
def test_two_hundred_halves_of_a_request_are_refused_while_others_are_answered(start, half):
    server = start()
    with ExitStack() as stack, memory_grows_by_less_than(20_000_000):
        begun = time.monotonic()
        clients = [stack.enter_context(server.connect(HALVES[half])) for _ in range(200)]
        while time.monotonic() < begun + DEADLINE * 0.8:
            assert server.ask()[0] == 200
        for client in clients:
            status, headers, body = answer(client)
            assert status == 408
            assert headers["content-type"] == "application/problem+json"
            assert json.loads(body)["status"] == 408
        assert DEADLINE * 0.8 < time.monotonic() - begun < LONG
        assert all(closes(client, LONG) for client in clients)
    wait_until(lambda: server.app.n_disconnected == (200 if half == "body" else 0))


@pytest.mark.parametrize("half", HALVES)
def test_plain_uvicorn_keeps_them(start, half):
    server = start(plain=True)
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect(HALVES[half])) for _ in range(20)]
        time.sleep(DEADLINE * 2)
        assert not any(closes(client, 0.01) for client in clients)


def test_a_connection_that_says_nothing_is_closed_without_a_word(start):
    server = start()
    with server.connect() as client:
        assert answer(client)[0] == 0


def test_dripping_one_byte_at_a_time_does_not_help(start):
    server = start()
    with server.connect() as client:
        begun = time.monotonic()
        client.settimeout(0.05)
        dripped = b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000
        for i in range(len(dripped)):
            client.sendall(dripped[i : i + 1])
            try:
                came = client.recv(100)
                break
            except TimeoutError:
                assert time.monotonic() - begun < LONG
        assert came.startswith(b"HTTP/1.1 408 Request Timeout")


def test_line_ends_before_a_request_that_never_comes_do_not_keep_the_connection(start):
    for before in [b"", GET]:
        server = start(keep_alive=60)
        with server.connect(before) as client:
            if before:
                assert answer(client)[0] == 200
            begun, closed = time.monotonic(), False
            while not closed:
                assert time.monotonic() - begun < LONG
                closed = send_all(client, b"\r\n", 1) == 0 or closes(client, 0.1)


def test_a_large_body_is_refused_before_it_is_read(start):
    server = start()
    with memory_grows_by_less_than(20_000_000), server.connect(post("/echo", 100_000_000)) as client:
        status, headers, body = answer(client)
        assert status == 413
        assert headers["connection"] == "close"
        assert "100000000 bytes" in json.loads(body)["detail"]
    assert server.app.n_requests == 0


def send_all(client: socket.socket, chunk: bytes, n: int) -> int:
    """Up to n chunks, until the other side ends; how many went out."""
    for i in range(n):
        try:
            client.sendall(chunk)
        except (ConnectionError, TimeoutError):
            return i
    return n


@both_loops
def test_the_refusal_reaches_a_client_that_sends_its_whole_body_first(start):
    server = start()
    with server.connect(post("/echo", 20_000_000)) as client:
        assert send_all(client, b"x" * 100_000, 200) == 200
        assert answer(client)[0] == 413


CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


@both_loops
def test_a_chunked_body_is_cut_where_it_passes_the_limit(start):
    server = start()
    with memory_grows_by_less_than(20_000_000):
        with server.connect(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n") as client:
            client.sendall(CHUNK * (MAX_BODY // 65536 + 1))
            assert answer(client)[0] == 413
        with server.connect(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n") as client:
            send_all(client, CHUNK, 1600)  # 100 MB
            assert answer(client)[0] in (413, 0)  # 0: still sending when the service stopped listening
    assert server.app.received <= MAX_BODY
    assert server.ask()[0] == 200


def test_plain_uvicorn_takes_it_all(start):
    server = start(plain=True)
    with server.connect(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n") as client:
        assert send_all(client, CHUNK, 160) == 160
        client.sendall(b"0\r\n\r\n")
        assert answer(client)[2] == b"10485760"


@pytest.mark.parametrize("size", [0, 1, 65_537, MAX_BODY])
def test_a_body_within_the_limit_is_read_whole(start, size):
    server = start()
    assert server.ask(post("/echo", size, b"x" * size))[2] == b"%d" % size
    chunks = b"".join(b"%x\r\n%b\r\n" % (1 + i % 999, b"y" * (1 + i % 999)) for i in range(500))
    chunked = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    assert server.ask(chunked)[2] == b"%d" % sum(1 + i % 999 for i in range(500))


@both_loops
def test_a_body_of_very_many_small_pieces_is_refused(start):
    """A piece is a call, so bodies of single bytes over some connections would hold up the event loop for seconds."""
    server = start()
    with server.connect(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n") as client:
        send_all(client, b"1\r\nx\r\n" * 2000, 20)
        assert answer(client)[0] in (400, 0)  # 0: still sending when the service stopped listening
    assert server.app.received <= MOST_SMALL
    chunked = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    status, _, body = server.ask(chunked + b"1\r\nx\r\n" * (MOST_SMALL + 1) + b"0\r\n\r\n")
    assert (status, b"send larger ones" in body) == (400, True)
    assert server.ask(chunked + b"1\r\nx\r\n" * MOST_SMALL + b"0\r\n\r\n")[2] == b"%d" % MOST_SMALL


def test_one_byte_above_the_limit_is_too_much(start):
    assert start().ask(post("/echo", MAX_BODY + 1, b"x" * (MAX_BODY + 1)))[0] == 413


@pytest.mark.parametrize(
    "begin, chunk",
    [
        (b"GET / HTTP/1.1\r\nx-endless: ", b"x" * 65536),
        (b"GET / HTTP/1.1\r\n", b"a: bbbbbbbbbb\r\n" * 4096),
        (b"GET /", b"x" * 65536),
    ],
    ids=["one header", "many headers", "the path"],
)
def test_an_endless_header_is_refused(start, begin, chunk):
    server = start()
    with memory_grows_by_less_than(20_000_000), server.connect(begin) as client:
        client.sendall(chunk)
        time.sleep(0.05)
        client.sendall(chunk)
        assert answer(client)[0] == 431


def test_a_finished_header_is_held_to_the_same_limit(start):
    server = start(max_header=16_384)
    assert server.ask(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 15_000 + b"\r\n\r\n")[0] == 200
    assert server.ask(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 17_000 + b"\r\n\r\n")[0] == 431
    body = post("/echo", 40_000, b"x" * 40_000)
    with server.connect(body + GET[:10]) as client:  # a large body before them does not count as headers
        assert answer(client)[2] == b"40000"
        client.sendall(GET[10:])
        assert answer(client)[0] == 200


@pytest.mark.parametrize(
    "filler", [b"1;" + b"e" * 65536, b"0\r\nx-trailer: " + b"t" * 65536], ids=["sizes", "trailers"]
)
def test_what_is_around_a_chunked_body_is_limited_too(start, filler):
    server = start(max_body=100_000, deadline=30)
    with (
        memory_grows_by_less_than(20_000_000),
        server.connect(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + filler) as client,
    ):
        for _ in range(20):
            client.sendall(b"z" * 65536)
        assert answer(client)[0] == 413


CHUNKED = (
    b"POST /echo HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 1.1.1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nxx\r\n0\r\n"
)


@pytest.mark.parametrize("n", [1, 2])  # at once, and the fields after the body alone
def test_fields_after_a_body_are_no_headers(start, n):
    server = start()
    trailer = b"x-forwarded-for: 2.2.2.2\r\nauthorization: Bearer stolen\r\n\r\n"
    with server.connect(CHUNKED + trailer if n == 1 else CHUNKED) as client:
        if n == 2:
            wait_until(lambda: server.app.n_requests == 1)
            client.sendall(trailer)
        assert answer(client)[2] == b"2"
        names = [name for name, _ in server.app.headers]
        assert names == [b"host", b"x-forwarded-for", b"transfer-encoding"]
        assert dict(server.app.headers)[b"x-forwarded-for"] == b"1.1.1.1"
        client.sendall(GET)  # they are of no later request either
        assert answer(client)[0] == 200
        assert [name for name, _ in server.app.headers] == [b"host"]


@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["complete", "more to come"])
def test_fields_after_a_body_may_be_as_large_as_headers(start, end):
    server = start(deadline=30)
    assert server.ask(CHUNKED + b"a: b\r\n" * 1500 + b"\r\n")[2] == b"2"
    with server.connect(CHUNKED + b"a: b\r\n" * 4000 + end) as client:
        assert answer(client)[0] == 431
    assert server.ask()[0] == 200


def test_many_fields_after_a_body_take_no_memory(start):
    server = start(deadline=30)
    with memory_grows_by_less_than(20_000_000), ExitStack() as clients:
        for _ in range(10):
            client = clients.enter_context(server.connect(CHUNKED))
            send_all(client, b"a1:\r\n" * 50_000, 4)
            assert answer(client)[0] in (431, 0)  # 0: still sending when the service stopped listening


@both_loops
def test_a_client_that_does_not_read_is_closed(start):
    server = start()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(GET.replace(b"/echo", b"/large"))
        wait_until(lambda: server.app.n_requests == 1)
        wait_until(lambda: not server.server.server_state.connections)
        assert closes(client, LONG)


def test_plain_uvicorn_waits_for_it(start):
    server = start(plain=True)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(GET.replace(b"/echo", b"/large"))
        time.sleep(DEADLINE * 2.5)
        assert len(server.server.server_state.connections) == 1


@both_loops
def test_a_client_that_reads_slowly_but_reads_keeps_its_stream(start):
    server = start(deadline=DEADLINE)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.settimeout(10)
        client.sendall(GET.replace(b"/echo", b"/stream"))
        came, begun = 0, time.monotonic()
        while came < 60 * 8192 and (data := client.recv(4096)):
            came += len(data)
            time.sleep(0.015)  # three quarters of the stream's pace: the service's buffer grows, and yet bytes move
        assert came >= 60 * 8192
        assert time.monotonic() - begun > 2 * DEADLINE


def test_a_quiet_answer_is_the_services_own_business(start):
    server = start()
    assert server.ask(GET.replace(b"/echo", b"/slow"))[0] == 200
    assert server.ask(post("/late", 250_000, b"x" * 250_000))[2] == b"250000"  # reading was paused past the deadline


@both_loops
def test_connections_beyond_the_limit_are_turned_away_until_one_ends(start):
    server = start(max_connections=3, deadline=5)
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect(HELD)) for _ in range(3)]
        wait_until(lambda: server.app.n_held == 3)
        for _ in range(20):
            status, headers, body = server.ask()
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body)["title"] == "Service Unavailable"
        server.app.may_go_on.set()
        assert [answer(client)[0] for client in clients] == [200] * 3
        clients[0].close()
        wait_until(lambda: server.ask()[0] == 200)


@both_loops
def test_who_is_turned_away_reads_why_after_sending_all_of_the_request(start, monkeypatch):
    monkeypatch.setattr(refusing, "_REST", 5.0)
    server = start(max_connections=1, deadline=60)
    with ExitStack() as stack:
        stack.enter_context(server.connect(HELD))
        wait_until(lambda: server.app.n_held == 1)
        client = stack.enter_context(server.connect(b""))
        for part in (b"POST /echo HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 4\r\n\r\n", b"body"):
            client.sendall(part)  # a closed connection would answer the second with a reset, and the third would fail
            time.sleep(0.1)
        assert wire._SWEEPS[server.server.server_state].n_open == 2  # it still counts, and has a deadline
        assert answer(client)[0] == 503
        server.app.may_go_on.set()


@both_loops
def test_the_connection_that_has_been_idle_longest_gives_way(start):
    server = start(max_connections=3, deadline=5)
    with ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(server.connect(GET)))
            assert answer(clients[-1])[0] == 200
            time.sleep(0.01)  # the clock of the event loop counts milliseconds
        clients[0].sendall(GET)  # now the second is the one that has been idle longest
        assert answer(clients[0])[0] == 200
        newcomer = stack.enter_context(server.connect(GET[:-2]))
        newcomer.sendall(GET[-2:])
        assert answer(newcomer)[0] == 200
        assert answer(clients[1])[0] == 0
        for client in (clients[0], clients[2], newcomer):
            client.sendall(GET)
            assert answer(client)[0] == 200


@both_loops
@pytest.mark.parametrize("half", HALVES)
def test_unfinished_requests_give_way_the_oldest_first(start, half):
    server = start(max_connections=3, deadline=60)
    with ExitStack() as stack:
        held = stack.enter_context(server.connect(HELD))
        wait_until(lambda: server.app.n_held == 1)
        halves = []
        for _ in range(2):
            halves.append(stack.enter_context(server.connect(HALVES[half])))
            wait_until(lambda: len(server.server.server_state.connections) == 1 + len(halves))
            time.sleep(0.1)  # until it is read
        newcomer = stack.enter_context(server.connect(GET))
        assert answer(newcomer)[0] == 200
        status, headers, body = answer(halves[0])
        assert (status, headers["retry-after"]) == (503, "1")
        assert "send it again" in json.loads(body)["detail"]
        assert not closes(halves[1], 0.2)
        server.app.may_go_on.set()
        assert answer(held)[0] == 200


def test_an_unfinished_request_goes_before_a_connection_that_has_been_idle_for_less_time(start):
    server = start(max_connections=2, deadline=60)
    with server.connect(HALVES["header"]) as half:
        wait_until(lambda: server.server.server_state.connections)
        time.sleep(0.1)  # until it is read
        with server.connect(GET) as idle:
            assert answer(idle)[0] == 200
            assert server.ask()[0] == 200
            assert answer(half)[0] == 503
            idle.sendall(GET)
            assert answer(idle)[0] == 200


def test_an_address_takes_no_more_than_its_share(start):
    server = start(max_connections=4, max_per_address=2, deadline=60)
    with ExitStack() as stack:
        other = stack.enter_context(server.connect(GET, source_address=("127.0.0.2", 0)))
        assert answer(other)[0] == 200
        for n in (1, 2):
            stack.enter_context(server.connect(HELD))
            wait_until(lambda n=n: server.app.n_held == n)
        status, headers, body = server.ask()
        assert (status, headers["retry-after"]) == (429, "1")
        assert "limits.max_per_address" in json.loads(body)["detail"]
        other.sendall(GET)  # though it is the one that has been idle longest
        assert answer(other)[0] == 200
        server.app.may_go_on.set()


def test_at_the_limit_of_its_address_the_oldest_of_that_address_gives_way(start):
    server = start(max_connections=100, max_per_address=2, deadline=60)
    with ExitStack() as stack:
        other = stack.enter_context(server.connect(HALVES["header"], source_address=("127.0.0.2", 0)))
        halves = [stack.enter_context(server.connect(HALVES["body"])) for _ in range(2)]
        wait_until(lambda: len(server.server.server_state.connections) == 3)
        time.sleep(0.1)  # until all are read
        assert server.ask()[0] == 200
        went = select.select(halves, [], [], 60)[0]
        assert [answer(half)[0] for half in went] == [503]
        assert not closes(other, 0.1)


def test_a_proxy_has_no_limit_of_its_own(start):
    server = start(max_connections=10, max_per_address=1, proxies=("127.0.0.0/30",))
    with ExitStack() as stack:
        held = [stack.enter_context(server.connect(HELD)) for _ in range(3)]
        wait_until(lambda: server.app.n_held == 3)
        stack.enter_context(server.connect(HELD, source_address=("127.0.0.9", 0)))
        wait_until(lambda: server.app.n_held == 4)
        with server.connect(GET, source_address=("127.0.0.9", 0)) as client:
            assert answer(client)[0] == 429
        server.app.may_go_on.set()
        assert [answer(client)[0] for client in held] == [200] * 3


@pytest.mark.parametrize("behind", [b"", GET, GET * 10])
def test_whoever_is_answered_learns_that_the_client_is_gone_also_if_requests_are_queued(start, behind):
    n_aborted = []
    server = start(on_abort=lambda: n_aborted.append(1))
    with server.connect(GET.replace(b"/echo", b"/events") + behind) as client:
        assert client.recv(1000)
    wait_until(lambda: server.app.n_disconnected == 1)
    assert len(n_aborted) == 1


@both_loops
def test_aborted_downloads_are_no_errors(start, caplog, monkeypatch):
    n_aborted = []
    server = start(on_abort=lambda: n_aborted.append(1))
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])
    with caplog.at_level("ERROR", "uvicorn.error"):
        for n in range(1, 6):
            with server.connect(GET.replace(b"/echo", b"/large") * 20) as client:
                assert client.recv(10)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
            wait_until(lambda n=n: len(n_aborted) == n)
        with server.connect(GET.replace(b"/echo", b"/stream") * 2) as client:
            assert client.recv(10)
        assert server.ask()[0] == 200
        wait_until(lambda: not server.server.server_state.tasks)
    assert not caplog.records, caplog.text


def test_more_turned_away_than_admitted_are_dropped_at_once(start):
    server = start(max_connections=3, deadline=5)
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect(HELD)) for _ in range(3)]
        wait_until(lambda: server.app.n_held == 3)
        clients += [stack.enter_context(server.connect()) for _ in range(7)]
        assert [answer(client)[0] for client in clients[3:]] == [503] * 3 + [0] * 4
        server.app.may_go_on.set()


def test_an_idle_connection_is_kept_as_long_as_uvicorn_keeps_it(start):
    server = start(keep_alive=60)
    with server.connect(GET) as client:
        assert answer(client)[0] == 200
        time.sleep(DEADLINE * 2)
        client.sendall(GET)
        assert answer(client)[0] == 200


def read_all(client: socket.socket) -> list[bytes]:
    """Read until the service closes the connection; return the answers."""
    came = b""
    while part := client.recv(65536):
        came += part
    return re.split(rb"HTTP/1\.1 (?=\d)", came)[1:]


def test_requests_sent_ahead_are_answered_in_order_and_too_many_are_refused_after_them(start):
    server = start()
    with server.connect(post("/echo", 1, b"x") + post("/echo", 2, b"xx") + post("/echo", 3, b"xxx")) as client:
        came = b""
        while came.count(b"\r\n\r\n") < 3 or not came.endswith(b"3"):
            came += client.recv(65536)
        assert [part[:1] for part in came.split(b"\r\n\r\n")[1:]] == [b"1", b"2", b"3"]
    for first in (GET, HELD):
        with memory_grows_by_less_than(20_000_000), server.connect(first + GET * 2_000) as client:
            server.app.may_go_on.set()
            *answers, last = read_all(client)
            assert [one[:3] for one in answers] == [b"200"] * (MAX_PIPELINED + 1)
            assert last.startswith(b"429 ")
            assert b"32 requests were sent ahead of their answers" in last
    assert server.ask()[0] == 200


@pytest.mark.parametrize(
    ("wrong", "status"),
    [(post("/echo", MAX_BODY + 1), b"413"), (b"not http\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\n\r\n", b"400")],
)
def test_a_refusal_comes_after_the_answers_to_the_requests_before_it(start, wrong, status):
    for before in (HELD, GET, HELD + GET):
        server = start()
        with server.connect(before + wrong) as client:
            server.app.may_go_on.set()
            assert [one[:3] for one in read_all(client)] == [b"200"] * before.count(b"HTTP") + [status]


def test_a_body_that_grows_too_large_behind_another_request_is_refused_after_its_answer(start):
    server = start()
    chunked = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    with server.connect(HELD + GET + chunked + b"%x\r\n" % (MAX_BODY + 1) + b"x" * (MAX_BODY + 1)) as client:
        wait_until(lambda: server.app.n_held == 1)
        server.app.may_go_on.set()
        assert [one[:3] for one in read_all(client)] == [b"200", b"200", b"413"]
    assert server.ask()[0] == 200


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://other/echo", "other"),
        ("http://other:81/echo", "other:81"),
        ("http://[::1]:8/echo", "[::1]:8"),
        ("/echo", "a"),
    ],
)
def test_the_host_of_a_whole_target_counts_before_the_header(start, target, host):
    server = start()
    assert server.ask(f"GET {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode())[0] == 200
    assert server.app.host == host.encode()
    assert server.ask(f"GET {target} HTTP/1.0\r\n\r\n".encode())[0] == 200
    assert server.app.host == (host.encode() if target != "/echo" else None)


def test_what_is_not_http_is_a_problem_too(start):
    status, headers, body = start().ask(b"\x16\x03\x01 hello\r\n\r\n")
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert "well-formed" in json.loads(body)["detail"]


def test_a_large_body_is_not_asked_for(start):
    status, _, _ = start().ask(post("/echo", MAX_BODY + 1, more="expect: 100-continue\r\n"))
    assert status == 413  # and no 100 before it


def test_an_upgrade_that_is_not_offered_is_an_ordinary_request(start):
    server = start()
    upgrade = b"GET /echo HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\r\n"
    status, headers, _ = server.ask(upgrade)
    assert (status, headers["connection"]) == (200, "close")


@pytest.mark.parametrize("framing", ["content-length: 1", "transfer-encoding: chunked"])
def test_the_body_of_an_upgrade_is_never_taken_for_a_request(start, framing):
    """httptools skips the body of such a request: a proxy would send the next caller's request after the hidden one."""
    server = start()
    head = f"POST /echo HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n{framing}\r\n\r\n"
    with server.connect(head.encode()) as client:
        status, headers, body = answer(client)
        assert (status, headers["connection"]) == (400, "close")
        assert "Upgrade" in json.loads(body)["detail"]
        client.sendall(GET)
        assert client.recv(1000) == b""


def test_connect_is_refused(start):
    status, _, body = start().ask(b"CONNECT a HTTP/1.1\r\n\r\n")
    assert status == 400
    assert "CONNECT is for proxies" in json.loads(body)["detail"]


@pytest.mark.parametrize(
    ("head", "status"),
    [("1.1", 400), ("1.1\r\nhost: a\r\nHost: a", 400), ("1.0\r\nhost: a\r\nhost: b", 400),
     ("1.0", 200), ("1.1\r\nHOST: a", 200), ("1.1\r\nhost:", 200)],
)  # fmt: skip
def test_http_1_1_has_one_host(start, head, status):
    """RFC 9112, section 3.2."""
    got, _, body = start().ask(f"GET /echo HTTP/{head}\r\n\r\n".encode())
    assert got == status
    assert status == 200 or "header Host" in body.decode() or "headers Host" in body.decode()


@pytest.mark.parametrize(
    ("codings", "status"),
    [(["identity", "chunked"], 400), (["chunked", "chunked"], 400), (["gzip, chunked"], 400), (["identity"], 400),
     (["chunked, chunked"], 400), ([""], 400), (["Chunked"], 200), (["chunked"], 200)],
)  # fmt: skip
def test_a_body_is_chunked_and_nothing_else(start, codings, status):
    """A proxy that reads another of the headers would see the next request elsewhere."""
    server = start()
    headers = "".join(f"transfer-encoding: {coding}\r\n" for coding in codings)
    with server.connect(f"POST /echo HTTP/1.1\r\nhost: a\r\n{headers}\r\n5\r\nhello\r\n0\r\n\r\n".encode()) as client:
        got, _, body = answer(client)
    assert got == status
    assert server.app.n_requests == (status == 200)
    assert status == 400 or body == b"5"


def test_refusals_are_counted(start):
    seen = []
    server = start(on_refusal=seen.append, max_connections=1)
    with server.connect(HELD) as client:
        wait_until(lambda: server.app.n_held == 1)
        assert server.ask()[0] == 503
        server.app.may_go_on.set()
        assert answer(client)[0] == 200
        client.sendall(GET[:5])
        assert answer(client)[0] == 408
    assert server.ask(post("/echo", MAX_BODY + 1))[0] == 413
    assert seen == [503, 408, 413]


@both_loops
def test_half_requests_do_not_keep_the_server_from_stopping(start):
    server = start()
    with server.connect(HALVES["body"]), server.connect(HALVES["header"]):
        time.sleep(0.1)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < LONG


def test_an_idle_connection_is_closed_when_uvicorn_would(start):
    server = start(keep_alive=2)
    with server.connect(GET) as client:
        assert answer(client)[0] == 200
        assert not closes(client, 0.5)
        assert closes(client, LONG)


class Wire:
    """A transport that keeps what is written to it, call by call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.calls.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_an_answer_is_one_packet_and_nothing_is_kept_back():
    wire = Wire()
    outgoing = Outgoing(wire)
    outgoing.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    outgoing.write(b"HTTP/1.1 200 OK\r\n\r\n")
    outgoing.write(b"body")
    outgoing.write(b"more")
    outgoing.end_answer()
    outgoing.write(b"HTTP/1.1 304 Not Modified\r\n\r\n")  # no body
    outgoing.end_answer()
    outgoing.write(b"HTTP/1.1 200 OK\r\n\r\n")
    outgoing.close()
    assert wire.calls == [
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nbody", b"more",
        b"HTTP/1.1 304 Not Modified\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
    ]  # fmt: skip
    assert wire.closed
    assert outgoing.written == sum(map(len, wire.calls))


def test_unfinished_headers_are_counted_from_their_first_byte(start):
    server = start(deadline=60.0)
    began = b"GET /echo HTTP/1.1\r\nhost: a\r\n"
    for head in (began + b"x: " + b"x" * 40_000, began + b"a:b\r\n" * 300, b"GET /" + b"a" * 40_000):
        for before in (b"", GET):  # the request before is answered, and not counted
            with server.connect() as client:
                client.sendall(before + head)
                came = b""
                while b" 431 " not in came and (data := client.recv(65536)):
                    came += data
                assert re.findall(rb"HTTP/1.1 (\d+)", came) == [b"200", b"431"][not before :]


def test_many_short_headers_are_refused_also_when_complete(start):
    server = start()
    for n, status in ((wire.MAX_FIELDS - 1, 200), (wire.MAX_FIELDS, 431)):  # one more is Host
        assert server.ask(b"GET /echo HTTP/1.1\r\nhost: a\r\n" + b"a:b\r\n" * n + b"\r\n")[0] == status


def test_unfinished_headers_of_all_connections_have_a_limit(start, monkeypatch):
    """The connection with most of them is refused, a request with few is answered, and nothing stays counted."""
    monkeypatch.setattr(wire, "MOST_HELD", 160_000)
    server = start(deadline=60.0)
    with ExitStack() as stack:
        few = stack.enter_context(server.connect())
        few.sendall(b"GET /echo HTTP/1.1\r\nhost: a\r\n")
        many = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in many:
            client.sendall(b"GET /echo HTTP/1.1\r\nhost: a\r\n" + b"a:b\r\n" * 200)
        refused = select.select(many, [], [], LONG)[0]
        assert [answer(client)[0] for client in refused] == [431]
        few.sendall(b"\r\n")
        assert answer(few)[0] == 200
        for client in many:
            if client not in refused:
                client.sendall(b"\r\n")
                assert answer(client)[0] == 200
        (sweep,) = (one for one in wire._SWEEPS.values() if one.admitted.open)
        wait_until(lambda: sweep.n_held == 0)


def test_large_bodies_of_all_connections_have_a_limit_until_they_are_answered(start, monkeypatch):
    """The largest that is not complete is refused; one that is complete is answered, and counts until then."""
    monkeypatch.setattr(wire, "MOST_HELD", 350_000)
    server = start(deadline=60.0)
    post = b"POST /%s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
    with ExitStack() as stack:
        complete = stack.enter_context(server.connect(post % (b"held", 100_000) + b"x" * 100_000))
        wait_until(lambda: server.app.n_held == 1)
        halves = [
            stack.enter_context(server.connect(post % (b"echo", n) + b"x" * (n - 50_000))) for n in (100_000, 300_000)
        ]
        refused = select.select(halves, [], [], LONG)[0]
        assert refused == halves[1:]
        status, headers, body = answer(halves[1])
        assert (status, headers["retry-after"]) == (503, "1")
        assert "memory for the requests of all" in json.loads(body)["detail"]
        halves[0].sendall(b"x" * 50_000)
        assert answer(halves[0])[0] == 200
        server.app.may_go_on.set()
        assert answer(complete)[0] == 200
        (sweep,) = (one for one in wire._SWEEPS.values() if one.admitted.open)
        wait_until(lambda: sweep.n_held == 0)
