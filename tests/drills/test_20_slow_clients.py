"""Drill 20: clients that send or read too slowly, or endlessly, are disconnected; other clients are not affected."""

from __future__ import annotations

import select
import socket
import statistics
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support.harness import LONG, Server, arms, models_folder, serving

EACH = 500 if LONG else 40
DEADLINE = 5.0 if LONG else 1.0
MOST = 4_000_000
HEADER = b"POST /v1/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HALVES = {
    "half a header": HEADER,
    "half a body": HEADER + b'content-length: 1000\r\n\r\n{"user": "ann", ',
    "half a chunk": HEADER + b"transfer-encoding: chunked\r\n\r\n400\r\n{",
}


def connect(server: Server, sent: bytes = b"") -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=30)
    found.sendall(sent)
    return found


def memory(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1000 for line in status.splitlines() if line.startswith("VmRSS"))


def closed(client: socket.socket, seconds: float) -> bool:
    """Whether the service closes the connection within so many seconds, with or without an answer."""
    client.settimeout(seconds)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


class Normal:
    """A well-behaved client that sends requests the whole time."""

    def __init__(self, server: Server) -> None:
        self.times: list[float] = []
        self.bad: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server,))

    def _run(self, server: Server) -> None:
        offered = arms(np.random.default_rng(0))
        with server.client() as http:
            while not self._stop.is_set():
                began = time.perf_counter()
                answer = http.post("/v1/decisions", json={"user": "bob", "arms": offered})
                self.times.append(time.perf_counter() - began)
                if answer.status_code != 200:
                    self.bad.append(answer.text)

    def __enter__(self) -> Normal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100)[98]


def drill(folder: Path, *, without: tuple[str, ...] = (), each: int = EACH, patience: float = 60.0) -> None:
    limits = {
        "deadline": DEADLINE,
        "max_body": MOST,
        "max_connections": 3 * each + 50,
        "max_per_address": 4 * each + 50,
    }
    with serving(folder, without=without, models=models_folder(folder), limits=limits) as server, ExitStack() as stack:
        with Normal(server) as alone:
            time.sleep(5 if LONG else 0.5)
        before = memory(server)
        with Normal(server) as among:
            slow = [stack.enter_context(connect(server, sent)) for sent in HALVES.values() for _ in range(each)]
            began = time.monotonic()
            for client in slow:
                left = max(began + patience - time.monotonic(), 0.01)
                assert closed(client, left), f"a slow client is still there after {patience:g} s"
            took = time.monotonic() - began
        assert not among.bad, f"somebody who behaves was refused: {among.bad[0]}"
        assert memory(server) - before < 20_000_000, "memory grew with slow clients"
        before = memory(server)
        too_large(server)
        assert memory(server) - before < 20_000_000, "memory grew with large bodies"
        if LONG:
            assert took <= 10, f"it took {took:.1f} s to let go of them"
            assert among.p99 < 2 * alone.p99 + 0.005, f"p99 {among.p99:.4f} s among them, {alone.p99:.4f} s alone"
        with server.client() as http:
            assert "lcb_refused_connections_total" in http.get("/metrics").text


def too_large(server: Server) -> None:
    """Announce 100 MB, and send endless chunks: both are refused without being read."""
    with connect(server, HEADER + b"content-length: 100000000\r\n\r\n") as client:
        assert b" 413 " in client.recv(65536).partition(b"\r\n")[0], "100 MB were not refused"
    with connect(server, HEADER + b"transfer-encoding: chunked\r\n\r\n") as client:
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(1500):
            if select.select([client], [], [], 0)[0]:
                break
            try:
                client.sendall(chunk)
            except OSError:
                break
        else:
            raise AssertionError("a body without end was read on and on")
        assert b" 413 " in client.recv(65536).partition(b"\r\n")[0], "a body without end was not refused"


def test_slow_and_greedy_clients_are_let_go_and_others_are_served(tmp_path: Path) -> None:
    drill(tmp_path)


def test_plain_uvicorn_keeps_them(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is still there"):
        drill(tmp_path, without=("guard",), each=2, patience=2 * DEADLINE)
