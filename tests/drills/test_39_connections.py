"""Drill 39: what a client does with its connections harms nobody else: unfinished requests, streams, aborts.

Each part has a control, in which its protection is removed and it must fail.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from drills.test_20_slow_clients import HALVES, connect, memory
from drills.test_36_starvation import PATIENCE, create_keys, decide, wait_until
from support.harness import LONG, Server, models_folder, serving, start

MOST = 2000 if LONG else 20
OTHER = "127.0.0.2"  # another address of this machine
EVENTS = "GET /page/dashboard/events HTTP/1.1\r\nhost: localhost\r\n{}\r\n"
DOWNLOAD = b"GET /static/vega.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def connect_from(server: Server, address: str, sent: bytes) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=30, source_address=(address, 0))
    found.sendall(sent)
    return found


def drill_unfinished(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """More unfinished requests than there may be connections: others are served at once."""
    limits = {"max_connections": MOST, "max_per_address": MOST, "deadline": 300.0}
    with (
        serving(folder, without=without, models=models_folder(folder), limits=limits) as server,
        ExitStack() as stack,
    ):
        for i in range(MOST + 50):
            stack.enter_context(connect(server, list(HALVES.values())[i % 3]))
        for _ in range(3):
            with server.client() as http:
                try:
                    status = decide(http).status_code
                except httpx.TransportError:  # closed without an answer: too many were turned away at once
                    status = None
                assert status == 200, "unfinished requests lock out others"


def drill_one_address(folder: Path, *, most: int = MOST // 4, without: tuple[str, ...] = ()) -> None:
    """Many connections of one address: those of another address stay."""
    limits = {"max_connections": MOST, "max_per_address": most, "deadline": 300.0}
    with serving(folder, without=without, models=models_folder(folder), limits=limits) as server, ExitStack() as stack:
        other = stack.enter_context(connect_from(server, OTHER, HEALTH))
        assert b" 200 " in other.recv(65536)
        for i in range(MOST + 50):
            stack.enter_context(connect(server, list(HALVES.values())[i % 3]))
        with server.client() as http:
            wait_until(lambda: is_healthy(http), PATIENCE, "the address itself is locked out")
        try:
            other.sendall(HEALTH)
            assert b" 200 " in other.recv(65536), "one address pushes out another"
        except ConnectionError:
            raise AssertionError("one address pushes out another") from None


def is_healthy(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:  # closed without an answer: too many are being turned away
        return False


def drill_streams(folder: Path, *, most: int = 3) -> None:
    """A key opens stream after stream: beyond the limit it gets 429, other keys do not; a closed one does not count."""
    headers = create_keys(folder, curious="reader", other="reader")

    def open_stream(name: str) -> bytes:
        sent = EVENTS.format(f"authorization: {headers[name]['authorization']}\r\n").encode()
        opened.append(stack.enter_context(connect(server, sent)))
        return opened[-1].recv(65536)

    with (
        serving(folder, models=models_folder(folder), limits={"streams": most}) as server,
        ExitStack() as stack,
    ):
        opened: list[socket.socket] = []
        assert all(b" 200 " in open_stream("curious") for _ in range(3))
        refused = open_stream("curious")
        assert b" 429 " in refused, "a key may open any number of streams"
        assert b"close a dashboard, or raise limits.streams" in refused
        assert b" 200 " in open_stream("other")
        opened[0].close()
        wait_until(lambda: b" 200 " in open_stream("curious"), PATIENCE, "a closed stream still counts")


def drill_descriptors(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """A shell that allows 64 open files: the service serves as many connections as its settings say."""
    within = ("sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh")
    server = start(folder, without=without, within=within, models=models_folder(folder), limits={"max_connections": 90})
    try:
        with ExitStack() as stack:
            for _ in range(90):
                opened = stack.enter_context(connect(server, HEALTH))
                opened.settimeout(PATIENCE if not without else 1.0)
                try:
                    assert b" 200 " in opened.recv(65536)
                except TimeoutError:
                    raise AssertionError("a connection finds no file descriptor") from None
    finally:
        server.kill()


def drill_head(folder: Path) -> None:
    """HEAD of the event stream: the headers at once, and the connection is free for the next request."""
    head = EVENTS.format("").replace("GET", "HEAD").encode()
    with serving(folder, models=models_folder(folder)) as server, connect(server, head) as client:
        client.settimeout(PATIENCE)
        answered = client.recv(65536)
        assert answered.startswith(b"HTTP/1.1 200 ")
        assert b"content-type: text/event-stream\r\n" in answered
        assert answered.endswith(b"\r\n\r\n")
        client.sendall(HEALTH)
        assert b'"status":"ok"' in client.recv(65536)


def drill_aborts(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """Downloads and streams aborted with more requests behind them: no error is logged, each is counted."""
    n = 20 if LONG else 4

    def count_aborted() -> int:
        found = http.get("/metrics").text.partition("\nlcb_aborted_connections_total ")[2]
        return int(float(found.partition("\n")[0]))

    with serving(folder, without=without, models=models_folder(folder)) as server, server.client() as http:
        assert http.get("/static/vega.js").status_code == 200  # built on the first request
        for i in range(n):
            with connect(server, DOWNLOAD * 20 if i % 2 else EVENTS.format("").encode() + HEALTH) as client:
                assert client.recv(10)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        if not without:
            wait_until(lambda: count_aborted() == n, PATIENCE, "aborted connections are not counted")
        until = time.monotonic() + (PATIENCE if without else 1.5)  # a stream writes once a second
        while time.monotonic() < until and "Traceback" not in server.output.read_text():
            time.sleep(0.05)
        assert "Traceback" not in server.output.read_text(), "an aborted connection is logged as an error"


def drill_unread(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """Clients that ask for a large file again and again and do not read it: the memory of the service does not grow."""
    n = 300 if LONG else 60
    with serving(folder, without=without, models=models_folder(folder)) as server, ExitStack() as stack:
        http = stack.enter_context(server.client())

        def count_sent() -> str:
            route = 'lcb_requests_total{route="GET /static/vega.js",status="200"} '
            return http.get("/metrics").text.partition(route)[2].partition("\n")[0]

        def has_settled() -> bool:
            before = count_sent()
            time.sleep(0.5)
            return bool(before) and count_sent() == before

        assert http.get("/static/vega.js").status_code == 200
        before = memory(server)
        for _ in range(n):
            stack.enter_context(connect(server, DOWNLOAD * 12))
        wait_until(has_settled, 3 * PATIENCE, "the files are not sent")
        assert memory(server) - before < 200_000 * n, "memory grew with files that nobody reads"


def drill_half_a_body(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """A client that disconnects within the body: nothing is decided, even if what arrived would be a whole request."""
    body = json.dumps({"user": "ann", "arms": [{"id": "a", "x": [1.0] * 6}]}).encode()
    head = b"POST /v1/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (len(body) + 10)
    with serving(folder, without=without, models=models_folder(folder)) as server, server.client() as http:
        with connect(server, head + body):
            time.sleep(0.2)
        time.sleep(0.5)
        assert decide(http).status_code == 200
        until = time.monotonic() + (PATIENCE if without else 0.0)
        while (n_decisions := http.get("/v1/users/ann").json()["n_decisions"]) == 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert n_decisions == 1, "an unfinished request was carried out"


def drill_headers(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """Every answer forbids guessing its type, and all but those of static files forbid keeping it."""
    with serving(folder, without=without, models=models_folder(folder)) as server, server.client() as http:
        paths = [
            path.replace("{user}", "ann").replace("{recommender}", "lcb").replace("{name}", "dashboard.css")
            for path, methods in http.get("/openapi.json").json()["paths"].items()
            if "get" in methods
        ]
        assert "/page/study/results.csv" in paths
        assert len(paths) > 15
        statuses = set()
        for path in [*paths, "/nothing", "/page/login", "/static/nothing", "/v1/items%ff", "/v1/users/ann%0A"]:
            answered = http.head(path)  # the stream of events has no end
            statuses.add(answered.status_code)
            assert answered.headers.get("x-content-type-options") == "nosniff", f"{path} lets browsers guess"
            kept = answered.headers.get("cache-control")
            is_file = path.startswith("/static/") or "text/html" in answered.headers["content-type"]
            assert kept == "no-store" or (is_file and kept in ("no-cache", "max-age=86400")), (path, kept)
        assert statuses == {200, 400, 404, 405, 422}
        with connect(server, b"not http\r\n\r\n") as client:
            answered = client.recv(65536)
        assert b" 400 " in answered
        assert b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n" in answered


def test_unfinished_requests_lock_out_nobody(tmp_path: Path) -> None:
    drill_unfinished(tmp_path)


def test_control_unfinished_requests_stay(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lock out others"):
        drill_unfinished(tmp_path, without=("giving way",))


def test_one_address_cannot_push_out_others(tmp_path: Path) -> None:
    drill_one_address(tmp_path)


def test_control_no_limit_per_address(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="pushes out another"):
        drill_one_address(tmp_path, most=MOST, without=("shares",))


def test_a_key_has_few_streams(tmp_path: Path) -> None:
    drill_streams(tmp_path)


def test_control_any_number_of_streams(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="any number of streams"):
        drill_streams(tmp_path, most=1000)


def test_descriptors_are_enough_for_all_connections(tmp_path: Path) -> None:
    drill_descriptors(tmp_path)


def test_control_descriptors_as_the_shell_left_them(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="finds no file descriptor"):
        drill_descriptors(tmp_path, without=("descriptors",))


def test_a_hard_limit_of_open_files_lowers_the_number_of_connections(tmp_path: Path) -> None:
    within = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh")
    server = start(tmp_path, within=within, models=models_folder(tmp_path))
    try:
        said = [json.loads(line) for line in server.output.read_text().splitlines() if "limit of open files" in line]
        assert [(one["files"], one["max_connections"], one["used"]) for one in said] == [(300, 2000, 86)]
        with ExitStack() as stack:
            for _ in range(200):
                opened = stack.enter_context(connect(server, HEALTH))
                assert b" 200 " in opened.recv(65536)
    finally:
        server.kill()


def test_head_of_the_stream_is_answered_at_once(tmp_path: Path) -> None:
    drill_head(tmp_path)


def test_aborted_connections_are_no_errors(tmp_path: Path) -> None:
    drill_aborts(tmp_path)


def test_control_only_the_last_request_of_a_connection_learns_of_its_end(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="logged as an error"):
        drill_aborts(tmp_path, without=("noticed aborts",))


def test_files_that_nobody_reads_share_their_memory(tmp_path: Path) -> None:
    drill_unread(tmp_path)


def test_control_files_that_nobody_reads_are_copied(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="memory grew"):
        drill_unread(tmp_path, without=("shared memory",))


def test_half_a_body_is_not_carried_out(tmp_path: Path) -> None:
    drill_half_a_body(tmp_path)


def test_control_half_a_body_is_taken_for_a_whole_one(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was carried out"):
        drill_half_a_body(tmp_path, without=("whole bodies",))


def test_every_answer_has_the_headers_that_browsers_need(tmp_path: Path) -> None:
    drill_headers(tmp_path)


def test_control_answers_without_these_headers(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lets browsers guess"):
        drill_headers(tmp_path, without=("headers",))
