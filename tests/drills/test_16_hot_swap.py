"""Drill 16: versions are switched under load; no request fails, no decision mixes two versions, users keep theirs."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, start, wait_until

SWAPS = 100
CLIENTS = 8 if LONG else 4
ROUNDS = 10 if LONG else 1  # a round has some of the swaps and, in the long form, an equal time without swaps


class Seen:
    """What all clients saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bad: list[str] = []
        self.models: dict[str, set[int]] = defaultdict(set)  # by user
        self.named: dict[str, int] = {}  # by decision
        self.seconds: list[float] = []


def client(server: Server, seed: int, seen: Seen, stop: threading.Event) -> None:
    """Decide and reward, for new users whom several clients request at the same time, and for existing users."""
    chance, offers = random.Random(seed), [arms(np.random.default_rng(i)) for i in range(10)]
    with server.client() as http:
        while not stop.is_set():
            newest = len(seen.named) // 8  # the same number for all clients at the same time
            user = f"u{newest - (0 if chance.random() < 0.5 else chance.randrange(20))}"
            began = time.monotonic()
            answer = http.post("/v1/decisions", json={"user": user, "arms": chance.choice(offers)})
            took = time.monotonic() - began
            if answer.status_code != 200:
                seen.bad.append(answer.text)
                continue
            made = answer.json()
            paid = http.post("/v1/rewards", json={"decision_id": made["decision_id"], "reward": chance.random()})
            with seen.lock:
                seen.seconds.append(took)
                seen.models[user].add(made["model"])
                seen.named[made["decision_id"]] = made["model"]
                if paid.status_code != 200:
                    seen.bad.append(paid.text)


def drill(folder: Path, without: tuple[str, ...] = (), swaps: int = SWAPS, *, newest: bool = False) -> None:
    """Switch versions; users keep theirs, or with `newest` are served by the newest."""
    still: dict[str, Any] = {"pages": False, "learning": {"retrain_every": None, "pin": not newest}}
    first = start(folder, models=models_folder(folder, 0), **still)
    first.stop()
    server = start(folder, models=models_folder(folder, 1), without=without, **still)  # now there are two
    before, seen = Seen(), Seen()
    try:
        for _ in range(ROUNDS):  # alternating, so that other load on the machine affects both alike
            began = time.monotonic()
            load(server, seen, lambda: swap(server, seen, swaps // ROUNDS))
            took = time.monotonic() - began
            if LONG:
                load(server, before, lambda took=took: time.sleep(took))
    finally:
        server.kill()
    assert seen.bad == [], seen.bad[:3]
    assert set().union(*seen.models.values()) == {1, 2}, "newcomers did not get both versions"
    several = {user: models for user, models in seen.models.items() if len(models) > 1}
    if newest:
        assert several, "no user was served by both versions"
    else:
        assert not several, f"users who were pinned have several versions: {list(several.items())[:3]}"
    store = open_store(str(folder / "lcb.db"), create=False)
    assert verify(store).differences == []
    store.close()
    logged = in_the_log(folder / "lcb.db", pinned=not newest)
    assert all(logged[id] == model for id, model in seen.named.items())
    if LONG:
        assert p99(seen) <= 2 * p99(before), (p99(seen), p99(before))


def load(server: Server, seen: Seen, work: Callable[[], object]) -> None:
    """Run clients while `work` runs."""
    stop = threading.Event()
    threads = [threading.Thread(target=client, args=(server, i, seen, stop)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def swap(server: Server, seen: Seen, swaps: int) -> None:
    with server.client() as http:
        for i in range(swaps):
            answer = http.post(f"/v1/models/{1 + i % 2}/activate", json={"reason": f"swap {i}"})
            if answer.status_code != 200:
                seen.bad.append(answer.text)
            told = len(seen.named)  # each version serves somebody
            wait_until(lambda told=told: len(seen.named) >= told + CLIENTS or seen.bad, "nobody is served")


def p99(seen: Seen) -> float:
    return float(np.quantile(seen.seconds, 0.99))


def in_the_log(path: Path, *, pinned: bool) -> dict[str, int]:
    """Return the version of every decision in the log, and check that no pinned user has two."""
    connection = sqlite3.connect(path)
    rows = connection.execute("select id, user, model, body from event where kind = 'decision'").fetchall()
    connection.close()
    of_user: dict[str, set[int]] = defaultdict(set)
    for _, user, model, body in rows:
        of_user[user].add(model)
        assert len(events.decode("decision", body).taken) == 1
    assert not pinned or all(len(models) == 1 for models in of_user.values())
    return {id: model for id, _, model, _ in rows}


def test_versions_are_switched_under_load_without_a_failed_request(tmp_path: Path) -> None:
    drill(tmp_path)


def test_users_of_statistics_are_served_by_the_newest_version_and_every_decision_recomputes(tmp_path: Path) -> None:
    drill(tmp_path, swaps=20, newest=True)


def test_a_service_that_does_not_pin_its_users_fails_this(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="several versions"):
        drill(tmp_path, without=("pinning",), swaps=20)
