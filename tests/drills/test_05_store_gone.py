"""Drill 5: the store is slow or gone; few requests wait, others are refused, nothing acknowledged is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving, wait_until

CLIENTS = 24
RESUMES = 60.0  # seconds, on a busy machine
LIMITS = {"max_waiting": 8, "patience": 2.0}
POSTGRES = Path(__file__).parents[2] / "scripts" / "postgres"
Outage = Callable[[], AbstractContextManager[None]]


@dataclass
class Heard:
    decisions: set[str] = field(default_factory=set)
    rewards: set[str] = field(default_factory=set)
    refused: list[httpx.Response] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # seconds, of refusals at a full queue


def client(server: Server, seed: int, heard: Heard, stop: threading.Event) -> None:
    rng = np.random.default_rng(seed)
    with server.client() as http:
        while not stop.is_set():
            answer = _post(http, "/v1/decisions", {"user": f"u{rng.integers(40)}", "arms": arms(rng, 5)}, heard)
            if answer is None:
                time.sleep(0.01)  # shorter than Retry-After, to put load on the service
                continue
            id = answer["decision_id"]
            heard.decisions.add(id)
            if _post(http, "/v1/rewards", {"decision_id": id, "reward": 1.0}, heard) is not None:
                heard.rewards.add(id)


def _post(http: httpx.Client, path: str, body: dict, heard: Heard) -> dict | None:
    began = time.monotonic()
    answer = http.post(path, json=body)
    if answer.status_code == 200:
        return answer.json()
    if answer.status_code != 503:
        heard.others.append(f"{answer.status_code} {answer.text}")
        return None
    heard.refused.append(answer)
    if "requests wait" in answer.text:
        heard.times.append(time.monotonic() - began)
    return None


def watch(server: Server, waiting: list[int], stop: threading.Event) -> None:
    """Collect the number of waiting requests from /metrics while the store is gone."""
    with server.client() as http:
        while not stop.is_set():
            assert http.get("/healthz").status_code == 200
            lines = http.get("/metrics").text.splitlines()
            waiting.append(int(float(next(line for line in lines if line.startswith("lcb_waiting ")).split()[1])))
            time.sleep(0.05)


def drill(url: str, folder: Path, outage: Outage, seconds: float, without: tuple[str, ...] = ()) -> None:
    heard, waiting, stop = Heard(), [], threading.Event()
    given = {"store": url, "models": models_folder(folder), "limits": LIMITS}
    with serving(folder, without=without, **given) as server:
        threads = [threading.Thread(target=client, args=(server, seed, heard, stop)) for seed in range(CLIENTS)]
        threads.append(threading.Thread(target=watch, args=(server, waiting, stop)))
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: heard.rewards, "no reward is acknowledged")
            with outage():
                before, until = len(waiting), time.monotonic() + 20
                time.sleep(seconds)
                while time.monotonic() < until and not (heard.refused and len(waiting) > before + 3):
                    time.sleep(0.01)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        resumed(server)
    assert heard.refused, "nobody was refused"
    assert heard.others == []
    for answer in heard.refused:
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) >= 1
    assert max(waiting) <= LIMITS["max_waiting"], f"{max(waiting)} waited"
    check(url, heard)
    if LONG and heard.times:
        slow = np.quantile(heard.times, 0.99)
        assert slow < 0.1, f"refusals took {slow:.3f} s"


def resumed(server: Server) -> None:
    """Check that the service becomes ready and decides again soon after the store is back, without a restart."""
    until = time.monotonic() + RESUMES
    try:
        with server.client() as http:
            while http.get("/readyz").status_code != 200 or not _decides(http):
                assert time.monotonic() < until, "the service does not resume"
                time.sleep(0.1)
    except httpx.TransportError as error:
        raise AssertionError("the service does not resume: its process has ended") from error


def _decides(http: httpx.Client) -> bool:
    body = {"user": "afterwards", "arms": arms(np.random.default_rng(0), 5)}
    return http.post("/v1/decisions", json=body).status_code == 200


def check(url: str, heard: Heard) -> None:
    store = open_store(url)
    try:
        log = list(store.events(0))
    finally:
        store.close()
    assert [row.seq for row in log] == list(range(1, len(log) + 1))
    decisions = {row.id for row in log if row.kind == "decision"}
    rewards = {row.id.removeprefix("r/") for row in log if row.kind == "reward"}
    assert len({row.id for row in log}) == len(log)
    assert heard.decisions <= decisions, "an acknowledged decision is lost"
    assert heard.rewards <= rewards, "an acknowledged reward is lost"


# SQLite: another process holds the lock of the file


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def test_a_file_that_is_locked_for_a_while_costs_refusals_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "lcb.db"
    drill(str(file), tmp_path, lambda: locked(file), 30 if LONG else 0.8)


def test_a_service_that_lets_all_wait_fails(tmp_path: Path) -> None:
    file = tmp_path / "lcb.db"
    with pytest.raises(AssertionError, match=r"waited|nobody was refused"):
        drill(str(file), tmp_path, lambda: locked(file), 0.8, without=("bound",))


# PostgreSQL: the server is stopped and started again, or hangs


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a PostgreSQL server that these drills may stop."""
    started = subprocess.run(
        [POSTGRES, "start", "--while", str(os.getpid())], capture_output=True, text=True, check=True
    )
    url = started.stdout.strip()
    yield url
    subprocess.run([POSTGRES, "stop", url], check=True)


@pytest.fixture
def database(server: str) -> Iterator[str]:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create schema if not exists public")
    yield server
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("drop schema public cascade")


@contextmanager
def stopped(url: str) -> Iterator[None]:
    subprocess.run([POSTGRES, "halt", url], check=True)
    try:
        yield
    finally:
        subprocess.run([POSTGRES, "resume", url], check=True)


@contextmanager
def hanging(url: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        processes = connection.execute("select pid from pg_stat_activity where pid != pg_backend_pid()").fetchall()
        (folder,) = connection.execute("show data_directory").fetchone()
    pids = [int((Path(folder) / "postmaster.pid").read_text().split()[0]), *(pid for (pid,) in processes)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def hanging_then_stopped(url: str, seconds: float) -> Iterator[None]:
    with hanging(url):
        time.sleep(seconds)
    with stopped(url):
        yield


def test_a_server_that_hangs_and_is_stopped_and_started_costs_refusals_and_nothing_else(
    database: str, tmp_path: Path
) -> None:
    seconds = 30 if LONG else 0.5
    drill(database, tmp_path, lambda: hanging_then_stopped(database, seconds), seconds)


@pytest.mark.parametrize(("protection", "words"), [("reconnecting", "does not resume"), ("waiting", "lost|not resume")])
def test_a_service_that_does_not_connect_again_or_answers_before_it_writes_fails(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str, words: str
) -> None:
    """If a reward is stored and its decision is not, the log cannot be applied."""
    monkeypatch.setattr("drills.test_05_store_gone.RESUMES", 2.0)
    with pytest.raises(AssertionError, match=words):
        drill(database, tmp_path, lambda: stopped(database), 0.2, without=(protection,))
