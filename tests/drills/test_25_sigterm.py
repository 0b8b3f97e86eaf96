"""Drill 25: after SIGTERM under load the service reports 503 on /readyz, answers all requests and ends in time."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from support.harness import LONG, Server, arms, models_folder, serving, start, wait_until

CLIENTS = 16
ROUNDS = 20 if LONG else 1
LIMITS = {"drain": 3.0 if LONG else 5.0}  # seconds; many times the balancer's interval: the machine may be busy


class Seen:
    """What the clients saw; `away` is set when the balancer sends no more requests."""

    def __init__(self) -> None:
        self.decisions: set[str] = set()
        self.rewards: set[str] = set()
        self.failed: list[str] = []
        self.away = threading.Event()
        self.notices: list[tuple[int, str]] = []


def client(server: Server, seed: int, seen: Seen) -> None:
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    offered = arms(rng)
    with server.client() as http:
        while not seen.away.is_set():
            try:
                answer = http.post("/v1/decisions", json={"user": f"u{chance.randrange(50)}", "arms": offered})
                if answer.status_code != 200:
                    seen.failed.append(answer.text)
                    continue
                id = answer.json()["decision_id"]
                seen.decisions.add(id)
                if http.post("/v1/rewards", json={"decision_id": id, "reward": 1.0}).status_code == 200:
                    seen.rewards.add(id)
            except httpx.HTTPError as error:
                seen.failed.append(repr(error))
                return


def balancer(server: Server, seen: Seen) -> None:
    """Ask every tenth of a second whether the service is ready, as a load balancer does."""
    with server.client() as http:
        while not seen.away.is_set():
            try:
                answer = http.get("/readyz")
                seen.notices.append((answer.status_code, answer.json()["status"]))
            except httpx.HTTPError as error:
                seen.notices.append((0, repr(error)))
            if seen.notices[-1][0] != 200:
                seen.away.set()
            time.sleep(0.1)


def drill(folder: Path, without: tuple[str, ...] = (), signals: int = 1) -> None:
    for round in range(ROUNDS):
        server, seen = start(folder, without=without, models=models_folder(folder), limits=LIMITS), Seen()
        threads = [threading.Thread(target=client, args=(server, 100 * round + i, seen)) for i in range(CLIENTS)]
        threads.append(threading.Thread(target=balancer, args=(server, seen)))
        for thread in threads:
            thread.start()
        wait_until(lambda seen=seen: len(seen.rewards) > CLIENTS and seen.notices, "nobody is served")
        began = time.monotonic()
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)  # two signals at the same time would count as one
        code = server.process.wait(60)
        took = time.monotonic() - began
        seen.away.set()
        for thread in threads:
            thread.join()
        check(folder, seen)
        assert code == 0
        assert not seen.failed or signals > 1, f"{len(seen.failed)} requests were dropped: {seen.failed[0][:200]}"
        assert seen.notices[-1] == (503, "draining") or signals > 1
        assert not LONG or took <= 10, f"it took {took:.1f} s"


def check(folder: Path, seen: Seen) -> None:
    connection = sqlite3.connect(folder / "lcb.db")
    try:
        rows = connection.execute("select kind, id from event").fetchall()
        kept = connection.execute("select seq from snapshot where name = 'world'").fetchone()
    finally:
        connection.close()
    assert seen.rewards
    assert seen.decisions <= {id for kind, id in rows if kind == "decision"}, "an acknowledged decision is lost"
    assert seen.rewards <= {id.removeprefix("r/") for kind, id in rows if kind == "reward"}, "a reward is lost"
    assert kept is None or kept[0] <= len(rows)


def test_a_service_that_is_asked_to_end_answers_until_nobody_is_sent_and_loses_nothing(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_second_signal_at_once_ends_it_cleanly_and_sooner(tmp_path: Path) -> None:
    drill(tmp_path, signals=2)


def test_a_service_that_ends_at_the_signal_drops_requests(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="dropped"):
        drill(tmp_path, without=("drain",))


# What a service leaves at its end, and finds at its start


def test_the_next_start_finds_a_snapshot_of_everything(tmp_path: Path) -> None:
    with serving(tmp_path, limits={"drain": 0.0}) as server, server.client() as http:
        http.post("/v1/decisions", json={"user": "ann", "arms": [{"id": "a", "x": [1.0]}]})
        assert server.stop() == 0
    connection = sqlite3.connect(tmp_path / "lcb.db")
    seq, last = connection.execute(
        "select s.seq, (select max(seq) from event) from snapshot s where name = 'world'"
    ).fetchone()
    connection.close()
    assert seq == last


def second_start(folder: Path, without: tuple[str, ...] = ()) -> None:
    with serving(folder, without=without):
        told = ""
        try:
            with serving(folder, without=without):
                pass
        except RuntimeError as error:
            told = str(error)
        assert "is being served by another process; stop that one" in told, "two services share a file"


def test_a_second_service_on_the_same_file_is_refused(tmp_path: Path) -> None:
    second_start(tmp_path)


def test_without_the_lock_two_services_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="two services share a file"):
        second_start(tmp_path, without=("lock",))


def test_the_file_is_free_again_when_its_service_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.kill()
    with serving(tmp_path) as server, server.client() as http:
        assert http.get("/readyz").status_code == 200


def test_a_store_that_does_not_answer_does_not_keep_the_service_from_ending(tmp_path: Path) -> None:
    """Another process holds the lock of the file: waiting requests get an answer, and the service ends."""
    limits = {"drain": 0.0, "patience": 60.0 if LONG else 1.0}
    with serving(tmp_path, limits=limits) as server:
        holder = sqlite3.connect(tmp_path / "lcb.db", isolation_level=None)
        holder.execute("begin immediate")
        told: list[object] = []
        waiting = threading.Thread(target=lambda: told.append(ask(server)))
        waiting.start()
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop(30) in (0, 1)
        assert not LONG or time.monotonic() - began <= 10
        waiting.join()
        holder.execute("rollback")
        holder.close()
        assert told[0] != 200


def ask(server: Server) -> object:
    with server.client() as http:
        try:
            body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
            return http.post("/v1/decisions", json=body).status_code
        except httpx.HTTPError as error:
            return repr(error)


@pytest.mark.parametrize("asked", [True, False])
def test_a_signal_after_the_end_changes_nothing(asked: bool) -> None:
    """A second SIGTERM between the last log line and the end of the process does not change the exit code."""
    import uvicorn

    from lcb.serve.server import _Server

    before = {sig: signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        server = _Server(uvicorn.Config(lambda: None), None, None, 0.0)  # type: ignore[arg-type]
        with server.capture_signals():
            server.asked = asked
        after = {sig: signal.getsignal(sig) for sig in before}
        assert after == (dict.fromkeys(before, signal.SIG_IGN) if asked else before)
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def test_while_the_log_is_read_the_service_is_alive_and_not_ready(tmp_path: Path, monkeypatch) -> None:
    import asyncio

    from lcb.serve.config.settings import Settings
    from lcb.serve.server import _ServiceApp
    from lcb.serve.web.keys import Keyring

    door = _ServiceApp(Settings(), None, Keyring(), "", None, None)  # type: ignore[arg-type]

    async def look() -> list[tuple[int, str]]:
        transport = httpx.ASGITransport(app=door)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return [
                ((answer := await http.get(path)).status_code, answer.headers.get("retry-after", ""))
                for path in ("/healthz", "/readyz", "/v1/items")
            ]

    assert asyncio.run(look()) == [(200, ""), (503, ""), (503, "1")]
