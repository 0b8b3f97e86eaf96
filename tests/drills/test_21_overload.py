"""Drill 21: there are more requests than can be answered: the excess is refused quickly, the rest is answered."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from lcb.serve.config.settings import Limits, Settings
from lcb.serve.log.waiting_room import WaitingRoom
from lcb.serve.web.limits.rate_limits import RateLimits
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving
from support.http_inside import inside

MOST = 20
N = 200


class Slow:
    """A store whose writes are slow."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, *given: Any) -> Any:
        time.sleep(0.1)
        return self._store.append(*given)


def drill(folder: Path) -> None:
    """Send ten times as many requests as may wait: some are served, the others get 503, and the queue never exceeds
    its limit.
    """
    settings = Settings(store=str(folder / "lcb.db"), limits=Limits(max_waiting=MOST))
    offered = arms(np.random.default_rng(0), 5)

    async def rush() -> None:
        async with inside(settings, around=Slow) as (app, client):
            longest, over = 0, False

            async def watch() -> None:
                nonlocal longest
                while not over:
                    longest = max(longest, app.service.journal.n_waiting)
                    await asyncio.sleep(0)

            watching = asyncio.create_task(watch())
            bodies = [{"user": f"u{i}", "arms": offered} for i in range(N)]
            answers = await asyncio.gather(*(client.post("/v1/decisions", json=body) for body in bodies))
            over = True
            await watching
            good = [answer.json()["decision_id"] for answer in answers if answer.status_code == 200]
            refused = [answer for answer in answers if answer.status_code != 200]
            assert longest <= MOST, f"{longest} waited where {MOST} may"
            assert good
            assert refused
            for answer in refused:
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["content-type"] == "application/problem+json"
            again = await client.post("/v1/decisions", json=bodies[0])
            assert again.status_code == 200, "it did not recover"
            good.append(again.json()["decision_id"])
        store = open_store(settings.store)
        try:
            assert {row.id for row in store.events(0) if row.kind == "decision"} == set(good)
        finally:
            store.close()

    asyncio.run(rush())


def test_a_full_queue_refuses_at_once_and_what_was_taken_is_done(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_queue_without_an_end_fails(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(WaitingRoom, "n_free", property(lambda self: 10**9))
    with pytest.raises(AssertionError, match="waited where"):
        drill(tmp_path)


def limited(folder: Path) -> None:
    """Exceed the rate limit of one key: it gets 429, other keys and probes do not."""
    settings = Settings(store=str(folder / "lcb.db"), limits=Limits(rate=5))

    async def ask() -> list[int]:
        async with inside(settings) as (_, client):
            answers = [await client.get("/v1/items") for _ in range(50)]
            probes = [(await client.get("/readyz")).status_code for _ in range(50)]
            assert probes == [200] * 50
            slowed = [answer for answer in answers if answer.status_code == 429]
            assert slowed, "nobody was slowed down"
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in slowed)
            return [answer.status_code for answer in answers]

    assert asyncio.run(ask())[:5] == [200] * 5


def test_who_asks_too_often_is_told_to_wait(tmp_path: Path) -> None:
    limited(tmp_path)


def test_without_rates_nobody_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(RateLimits, "take", lambda self, who: None)
    with pytest.raises(AssertionError, match="nobody was slowed down"):
        limited(tmp_path)


# The long form: a service in its own process, under load by wrk

SECONDS = 60
SCRIPT = """
local i = 0
request = function()
  i = i + 1
  return wrk.format("POST", "/v1/decisions", {["content-type"] = "application/json"},
    '{"user": "u' .. (i * 7919 %% 10000) .. '", "arms": %s}')
end
"""


def wrk(server: Server, folder: Path, connections: int, seconds: int) -> tuple[float, int]:
    """Return answers of status 200 per second, and the number of other answers, in a closed loop of connections."""
    script = folder / "ask.lua"
    script.write_text(SCRIPT % json.dumps(arms(np.random.default_rng(0))))
    before = counted(server)
    subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script), server.address],
        check=True, capture_output=True,
    )  # fmt: skip
    after = counted(server)
    good = after.get("200", 0) - before.get("200", 0)
    return good / seconds, sum(after.values()) - sum(before.values()) - good


def counted(server: Server) -> dict[str, int]:
    with server.client() as http:
        text = http.get("/metrics").text
    found = re.findall(r'lcb_requests_total\{route="POST /v1/decisions",status="(\d+)"\} (\S+)', text)
    return {status: int(float(n)) for status, n in found}


def memory(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1000 for line in status.splitlines() if line.startswith("VmRSS"))


class Asker(asyncio.Protocol):
    """One connection that sends a request when asked to; `found` collects seconds until the answer by status."""

    def __init__(self, request: bytes, idle: list[Asker], found: dict[str, list[float]]) -> None:
        self.request, self.idle, self.found = request, idle, found
        self.began, self.came, self.transport = 0.0, b"", None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, due: float) -> None:
        self.began, self.came = due, b""
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.came += data
        head, end, body = self.came.partition(b"\r\n\r\n")
        if end and len(body) >= int(re.search(rb"content-length: (\d+)", head)[1]):
            self.note(head.split(b" ", 2)[1].decode())
            if b"connection: close" in head:
                self.transport.close()
            else:
                self.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.note("dropped")
        if self in self.idle:
            self.idle.remove(self)

    def note(self, status: str) -> None:
        if self.began:
            self.found.setdefault(status, []).append(time.perf_counter() - self.began)
            self.began = 0.0


async def open_loop(address: str, rate: float, seconds: float, request: bytes, most: int) -> dict[str, list[float]]:
    """Send requests at fixed times, even if earlier ones have no answer yet, over at most `most` connections."""
    host, port = address.removeprefix("http://").split(":")
    idle, found, opening = [], {}, set()
    loop, asked, start = asyncio.get_running_loop(), 0, time.perf_counter()

    async def connect(due: float) -> None:
        try:
            _, asker = await loop.create_connection(lambda: Asker(request, idle, found), host, int(port))
            asker.ask(due)
        except OSError:
            found.setdefault("dropped", []).append(time.perf_counter() - due)

    def answered() -> int:
        return sum(map(len, found.values()))

    while (now := time.perf_counter()) < start + seconds:
        while start + asked / rate <= now:
            due, asked = start + asked / rate, asked + 1
            if idle:
                idle.pop().ask(due)
            elif asked - answered() <= most:
                task = loop.create_task(connect(due))
                opening.add(task)
                task.add_done_callback(opening.discard)
            else:
                found.setdefault("unsent", []).append(0.0)
        await asyncio.sleep(0.001)
    while answered() < asked and time.perf_counter() < start + seconds + 30:
        await asyncio.sleep(0.01)
    for asker in idle:
        asker.transport.abort()
    return found


class Probe:
    """Sends twenty requests a second from its own thread; collects the seconds until the answer by status."""

    def __init__(self, address: str, request: bytes) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.place, self.request = (host, int(port)), request
        self.found: dict[str, list[float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.05):
            began = time.perf_counter()
            try:
                with socket.create_connection(self.place, timeout=30) as client:
                    client.sendall(self.request)
                    status = client.recv(65536).split(b" ", 2)[1].decode()
            except (OSError, IndexError):
                status = "dropped"
            self.found.setdefault(status, []).append(time.perf_counter() - began)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


if LONG:

    def test_ten_times_the_connections_and_twice_the_requests_leave_goodput_and_memory(tmp_path: Path) -> None:
        assert shutil.which("wrk"), "wrk is not installed; apt-get install wrk"
        limits = {"max_connections": 400}
        with serving(tmp_path, models=models_folder(tmp_path), limits=limits) as server:
            wrk(server, tmp_path, 32, 5)
            peak, _ = wrk(server, tmp_path, 32, 20)
            before = memory(server)
            crowded, _ = wrk(server, tmp_path, 320, SECONDS)
            assert crowded >= 0.8 * peak, f"{crowded:.0f}/s with 320 connections, {peak:.0f}/s with 32"
            body = json.dumps({"user": "u", "arms": arms(np.random.default_rng(0))}).encode()
            head = b"POST /v1/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
            with Probe(server.address, head + body) as probe:
                found = uvloop.run(open_loop(server.address, 2 * peak, SECONDS, head + body, 900))
            good, told = len(found.get("200", ())) / SECONDS, {status: len(times) for status, times in found.items()}
            sys.stdout.write(f"peak {peak:.0f}/s, 320 connections {crowded:.0f}/s; open loop of {2 * peak:.0f}/s: ")
            sys.stdout.write(f"{good:.0f}/s good, {told}; memory +{(memory(server) - before) / 1e6:.0f} MB\n")
            assert set(found) <= {"200", "503", "unsent", "dropped"}, told
            assert told.get("dropped", 0) < 0.01 * sum(told.values()), told  # connections closed without an answer
            assert good >= 0.8 * peak, f"{good:.0f}/s of twice what it can"
            waits = {status: np.quantile(times, [0.5, 0.99]).round(3).tolist() for status, times in probe.found.items()}
            sys.stdout.write(f"seconds until an answer, median and p99, for one who knocks: {waits}\n")
            assert waits.get("503", [0.0])[0] < 1.0, "a refusal is slow"
            assert memory(server) - before < 100_000_000
            until = time.monotonic() + 5
            with server.client() as http:
                while http.post("/v1/decisions", content=body).status_code != 200:
                    assert time.monotonic() < until, "it did not recover in 5 s"
