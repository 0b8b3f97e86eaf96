"""Drill 21: more than the service can do.  What is too much is refused at once, the rest is done as fast as ever."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drills.harness import LONG, Server, arms, models_folder, serving
from drills.http_inside import inside
from lcb.serve.journal import Journal
from lcb.serve.rates import Rates
from lcb.serve.settings import Limits, Settings
from lcb.storage.store import open_store

MOST = 20
N = 200


class Slow:
    """A store that takes its time."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, *given: Any) -> Any:
        time.sleep(0.1)
        return self._store.append(*given)


def drill(folder: Path) -> None:
    """Ten times as many at once as may wait: some are served, the others told so, and nobody waits in a longer row."""
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
    monkeypatch.setattr(Journal, "most_waiting", property(lambda self: 10**9, lambda self, n: None), raising=False)
    with pytest.raises(AssertionError, match="waited where"):
        drill(tmp_path)


def limited(folder: Path) -> None:
    """A key that asks too often is slowed down, others and probes are not."""
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
    monkeypatch.setattr(Rates, "take", lambda self, who: None)
    with pytest.raises(AssertionError, match="nobody was slowed down"):
        limited(tmp_path)


# The long form: a service of its own, wrk beside it

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
    """Answers of 200 a second, and how many were others, over a closed loop of connections."""
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


async def open_loop(address: str, rate: float, seconds: float, body: bytes) -> dict[str, list[float]]:
    """Requests at fixed times, answered or not: seconds until the answer, by status."""
    host, port = address.removeprefix("http://").split(":")
    head = b"POST /v1/decisions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    request = head % len(body) + body
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    found: dict[str, list[float]] = {}

    async def one() -> None:
        began = time.perf_counter()
        try:
            reader, writer = idle.pop() if idle else await asyncio.open_connection(host, int(port))
            writer.write(request)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            status = answer.split(b" ", 2)[1].decode()
            size = int(re.search(rb"content-length: (\d+)", answer)[1])
            await reader.readexactly(size)
            if b"connection: close" in answer:
                writer.close()
            else:
                idle.append((reader, writer))
        except (OSError, EOFError, TimeoutError):
            status = "dropped"
        found.setdefault(status, []).append(time.perf_counter() - began)

    tasks, start = set(), time.perf_counter()
    for i in range(int(rate * seconds)):
        wait = start + i / rate - time.perf_counter()
        if wait > 0.001:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    return found


if LONG:

    def test_ten_times_the_connections_and_twice_the_requests_leave_goodput_and_memory(tmp_path: Path) -> None:
        assert shutil.which("wrk"), "wrk is not installed; apt-get install wrk"
        limits = {"max_connections": 1000}
        with serving(tmp_path, models=models_folder(tmp_path), limits=limits) as server:
            wrk(server, tmp_path, 32, 5)
            peak, _ = wrk(server, tmp_path, 32, 20)
            before = memory(server)
            crowded, _ = wrk(server, tmp_path, 320, SECONDS)
            assert crowded >= 0.8 * peak, f"{crowded:.0f}/s with 320 connections, {peak:.0f}/s with 32"
            body = json.dumps({"user": "u", "arms": arms(np.random.default_rng(0))}).encode()
            alone = asyncio.run(open_loop(server.address, 0.2 * peak, 10, body))
            capacity = peak
            found = asyncio.run(open_loop(server.address, 2 * capacity, SECONDS, body))
            good = len(found.get("200", ())) / SECONDS
            told = {status: len(times) for status, times in found.items()}
            sys.stdout.write(f"peak {peak:.0f}/s, 320 connections {crowded:.0f}/s; open loop of {2 * capacity:.0f}/s: ")
            sys.stdout.write(f"{good:.0f}/s good, {told}; memory +{(memory(server) - before) / 1e6:.0f} MB\n")
            assert set(alone) == {"200"}
            refused = sorted(time for status in ("429", "503") for time in found.get(status, ()))
            if refused:
                assert refused[int(0.99 * (len(refused) - 1))] < 1.0
            assert memory(server) - before < 300_000_000
            until = time.monotonic() + 5
            with server.client() as http:
                while http.post("/v1/decisions", content=body).status_code != 200:
                    assert time.monotonic() < until, "it did not recover in 5 s"
