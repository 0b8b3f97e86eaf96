"""Both clients bound what an attempt takes, and refuse what the service cannot have sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from lcb.client import AsyncClient, Client, ServiceError, Unreachable

DECISION = {
    "decision_id": "d", "arm": "a", "propensity": 0.5, "distribution": [0.5, 0.5], "model": 1, "policy": "thompson",
    "recommender": "lcb",
}  # fmt: skip
OK = b"HTTP/1.1 200 OK\r\n"
FINE = OK + b'Content-Length: 15\r\n\r\n{"status":"ok"}'
Send = Callable[[socket.socket], None]
Ask = Callable[..., Any]


@pytest.fixture(params=[Client, AsyncClient])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Connect, ask one question and close."""

    def ask_client(url: str, verb: str, *given: Any, most_bytes: int | None = None, **named: Any) -> Any:
        client = request.param(url, **named)
        if most_bytes is not None:
            client.most_bytes = most_bytes
        if isinstance(client, Client):
            with client:
                return getattr(client, verb)(*given)

        async def ask_in_loop() -> Any:
            async with client:
                return await getattr(client, verb)(*given)

        return asyncio.run(ask_in_loop())

    return ask_client


@contextlib.contextmanager
def serving(*sends: Send) -> Iterator[tuple[str, list[bytes]]]:
    """Listen and answer request n by `sends[n]`, further ones by the last; yield the url and what was received."""
    requests, stop = list[bytes](), threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while not stop.is_set() and (got := connection.recv(65536)):
                requests.append(got)
                sends[min(len(requests), len(sends)) - 1](connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=answer, args=(connection,)))
                threads[-1].start()

    connections, threads = list[socket.socket](), list[threading.Thread]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in connections:
                with contextlib.suppress(OSError):  # closed by its thread
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def drip(head: bytes, piece: bytes, seconds: float = 4.0) -> Send:
    """Send `head`, then `piece` every 0.05 s for so many seconds."""

    def send(connection: socket.socket) -> None:
        connection.sendall(head)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(piece)
            time.sleep(0.05)

    return send


def say(answer: bytes) -> Send:
    return lambda connection: connection.sendall(answer)


DRIPS = {
    "a body by bytes": drip(OK + b"Content-Length: 1000\r\n\r\n", b" "),
    "a header by bytes": drip(OK + b"X-Long: ", b"x"),
    "a status line by bytes": drip(b"HTTP/1.1 200 ", b"O"),
    "100 Continue without end": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunks without end": drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize("send", DRIPS.values(), ids=DRIPS)
def test_an_attempt_ends_when_its_time_is_over(ask: Ask, send: Send) -> None:
    with serving(send) as (url, requests):
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"in 1 attempt .*no answer within 0\.3 s"):
            ask(url, "health", timeout=0.3, retries=0)
        assert time.monotonic() - began < 2
    assert len(requests) == 1


def test_all_attempts_end_with_the_deadline(ask: Ask) -> None:
    with serving(DRIPS["a body by bytes"]) as (url, requests):
        began = time.monotonic()
        with pytest.raises(Unreachable):
            ask(url, "health", timeout=0.3, deadline=1.0)
        assert time.monotonic() - began < 3
    assert len(requests) >= 3


def test_a_connection_that_was_used_before_is_bounded_by_the_new_attempt() -> None:
    with serving(say(FINE), DRIPS["a header by bytes"]) as (url, _), Client(url, timeout=0.5, retries=0) as client:
        assert client.health().status == "ok"
        time.sleep(0.6)  # the time of the first attempt is over
        began = time.monotonic()
        with pytest.raises(Unreachable, match="no answer within"):
            client.health()
        assert 0.4 < time.monotonic() - began < 2


def test_a_server_that_reads_nothing_ends_the_attempt(ask: Ask) -> None:
    with serving(lambda connection: time.sleep(2)) as (url, _):
        began = time.monotonic()
        arms = {f"a{i}": [0.5] * 300 for i in range(10_000)}  # some 15 MB
        with pytest.raises(Unreachable, match="no answer within"):
            ask(url, "decide", "ann", arms, timeout=0.5, retries=0)
        assert time.monotonic() - began < 5


def test_a_compressed_answer_is_not_asked_for_and_not_unpacked(ask: Ask) -> None:
    packed = gzip.compress(b'{"status": "ok"}' + b" " * 1_000_000)
    send = say(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)
    words = r"GET /readyz got .*Content-Encoding 'gzip', asked for identity; check"
    with serving(send) as (url, requests), pytest.raises(ServiceError, match=words):
        ask(url, "health")
    assert len(requests) == 1
    assert b"accept-encoding: identity\r\n" in requests[0].lower()


def test_an_answer_is_read_up_to_a_limit(ask: Ask) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: 1000000000\r\n\r\n")
        while True:  # until the client closes the connection
            connection.sendall(b" " * 65536)

    words = "GET /readyz got an answer of more than 1 MB, the most that is read"
    with serving(flood) as (url, requests), pytest.raises(ServiceError, match=words):
        ask(url, "health", timeout=5.0, most_bytes=2**20)
    assert len(requests) == 1
    assert Client.most_bytes == AsyncClient.most_bytes == 64 * 2**20


def test_a_busy_proxy_that_packs_its_answer_is_asked_again(ask: Ask) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx"
    with serving(say(busy), say(FINE)) as (url, requests):
        with pytest.raises(ServiceError, match="status 503 came with an answer with Content-Encoding 'br'"):
            ask(url, "models", retries=0)
        requests.clear()
        with pytest.raises(ServiceError, match="not lcb's"):  # the answer to the second attempt is one about health
            ask(url, "models")
        assert len(requests) == 2


def test_a_redirect_is_not_followed(ask: Ask) -> None:
    seen = list[httpx.Request]()

    def redirect(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"location": "http://elsewhere/v1/decisions"})

    with pytest.raises(ServiceError, match="302 points to 'http://elsewhere/v1/decisions', and redirects are not foll"):
        ask("http://service", "decide", "ann", transport=httpx.MockTransport(redirect))
    assert len(seen) == 1


def answer_with(answer: Any, status: int = 200) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(status, json=answer))


def test_the_answer_of_another_request_is_refused(ask: Ask) -> None:
    words = (
        r"POST /v1/decisions got the answer of another request \(decision_id 'd', asked for 'mine'\); check the proxy"
    )
    with pytest.raises(ServiceError, match=words):
        ask("http://service", "decide", "ann", ["a"], transport=answer_with(DECISION), new_id=lambda: "mine")
    with pytest.raises(ServiceError, match=r"POST /v1/rewards got .*decision_id 'd', asked for 'd/0'"):
        ask("http://service", "reward", "d/0", 1, transport=answer_with({"decision_id": "d", "reward": 1.0}))


def outcome(id: str) -> dict[str, Any]:
    return {"status": 200, "answer": DECISION | {"decision_id": id, "reward": 1.0}}


BATCHES = {
    "swapped": ([outcome("b"), outcome("a")], r"decision_id 'b', asked for 'a'"),
    "of another": ([outcome("a"), outcome("c")], r"decision_id 'c', asked for 'b'"),
    "without an answer": ([outcome("a"), {"status": 200}], r"no answer for 'b' in an outcome with status 200"),
    "null": ([outcome("a"), None], "not lcb's"),
}


@pytest.mark.parametrize("outcomes, words", BATCHES.values(), ids=BATCHES)
def test_outcomes_of_other_elements_are_refused(ask: Ask, outcomes: list[Any], words: str) -> None:
    given = {
        "decide_batch": [{"user": "ann", "decision_id": "a"}, {"user": "ben", "decision_id": "b"}],
        "reward_batch": {"a": 1, "b": 1},
    }
    for verb, elements in given.items():
        with pytest.raises(ServiceError, match=words) as caught:
            ask("http://service", verb, elements, transport=answer_with({"outcomes": outcomes}))
        assert [(one.status, one.decision_id) for one in caught.value.outcomes] == [(502, "a"), (502, "b")]


def test_a_refusal_that_nests_without_end_is_an_error_of_the_client(ask: Ask) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(400, content=b"[" * 200_000))
    with pytest.raises(ServiceError, match="status 400 without problem"):
        ask("http://service", "models", transport=transport)
