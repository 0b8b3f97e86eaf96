"""Drill 1: the service is killed at random under load; no acknowledged event is lost, none is stored twice."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from support.harness import LONG, Server, arms, models_folder, start, wait_until
from support.tampering import check_chain

KILLS = 200 if LONG else 4
CLIENTS = 16


class Acknowledged:
    def __init__(self) -> None:
        self.decisions: set[str] = set()
        self.rewards: set[str] = set()


def client(server: Server, seed: int, known: Acknowledged, stop: threading.Event) -> None:
    """Decide, then send each reward one to three times; record the answers in `known`."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    with server.client() as http:
        while not stop.is_set():
            try:
                body = {"user": f"u{chance.randrange(50)}", "arms": arms(rng)}
                answer = http.post("/v1/decisions", json=body)
                if answer.status_code != 200:
                    continue
                id = answer.json()["decision_id"]
                known.decisions.add(id)
                for _ in range(chance.randint(1, 3)):
                    if http.post("/v1/rewards", json={"decision_id": id, "reward": 1.0}).status_code == 200:
                        known.rewards.add(id)
            except httpx.HTTPError:
                return  # killed meanwhile


def drill(folder: Path, without: tuple[str, ...] = (), kills: int = KILLS) -> None:
    chance, known = random.Random(0), Acknowledged()
    for round in range(kills):
        server, stop = start(folder, without=without, models=models_folder(folder)), threading.Event()
        threads = [threading.Thread(target=client, args=(server, 100 * round + i, known, stop)) for i in range(CLIENTS)]
        before = len(known.rewards)
        for thread in threads:
            thread.start()
        wait_until(lambda before=before: len(known.rewards) > before, "no reward is acknowledged")
        time.sleep(chance.random() * 0.5)
        server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        check(folder, known)


def check(folder: Path, known: Acknowledged) -> None:
    connection = sqlite3.connect(folder / "lcb.db")
    try:
        assert connection.execute("pragma integrity_check").fetchone()[0] == "ok"
        rows = connection.execute("select kind, id from event").fetchall()
    finally:
        connection.close()
    decisions = [id for kind, id in rows if kind == "decision"]
    rewards = [id.removeprefix("r/") for kind, id in rows if kind == "reward"]
    assert known.decisions <= set(decisions), "an acknowledged decision is lost"
    assert known.rewards <= set(rewards), "an acknowledged reward is lost"
    assert len(set(decisions)) == len(decisions)
    assert len(set(rewards)) == len(rewards), "a reward is there twice"
    check_chain(str(folder / "lcb.db"))


def test_nothing_acknowledged_is_lost_when_the_service_is_killed(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_service_that_answers_before_it_writes_loses_what_it_acknowledged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lost"):
        drill(tmp_path, without=("waiting",), kills=50)
