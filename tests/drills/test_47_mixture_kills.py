"""Drill 42: a service with a mixture is killed while users leave and while it refits; after each kill the state is the
fold of the log, and every decision recomputes.  A service that leaves users who have left unseated fails it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.state.world import World
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, serving, wait_until
from support.inside import fold_log

KILLED_REFITS = 20 if LONG else 1
MIXTURE = {"name": "mix", "bandit": "mixture", "settings": {"n_samples": 2, "n_sweeps": 4}, "uniform": 0.05}
SETTINGS: dict[str, Any] = {
    "recommenders": [MIXTURE],
    "learning": {"idle": 0.2},
    "pages": False,
    "reward_range": [-10.0, 10.0],
}
BETA = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.3]])


def visit(server: Server, users: list[int], rng: np.random.Generator) -> None:
    """Let users decide twice and get rewards of a world of two classes."""
    with server.client() as http:
        for user in users * 2:
            x = rng.normal(size=(4, 3))
            arms = [{"id": f"{i}", "x": one.tolist()} for i, one in enumerate(x)]
            made = http.post("/v1/decisions", json={"user": f"u{user}", "arms": arms}).raise_for_status().json()
            reward = float(x[int(made["arm"])] @ BETA[user % 2] + 0.1 * rng.normal())
            http.post("/v1/rewards", json={"decision_id": made["decision_id"], "reward": reward}).raise_for_status()


def read_kinds(folder: Path) -> list[str]:
    """Return the kinds of all events, also while the service runs."""
    if not (folder / "lcb.db").exists():
        return []
    connection = sqlite3.connect(folder / "lcb.db")
    try:
        return [kind for (kind,) in connection.execute("select kind from event order by seq")]
    finally:
        connection.close()


def run_until(folder: Path, users: list[int], rng: np.random.Generator, kind: str, without: tuple[str, ...]) -> None:
    """Serve users, and kill the service as soon as there is a new event of this kind."""
    known = read_kinds(folder).count(kind)
    with serving(folder, without=without, **SETTINGS) as server:
        visit(server, users, rng)
        wait_until(lambda: read_kinds(folder).count(kind) > known, f"no event {kind!r}")
        server.kill()


def check(folder: Path) -> None:
    """What a start loads is the fold of the whole log, and every decision recomputes."""
    store = open_store(str(folder / "lcb.db"), create=False)
    try:
        again = World(store)
        again.load()
        assert compare_worlds(again, fold_log(store)) == [], "the state is not the fold of the log"
        assert verify(store).differences == [], "a decision does not recompute"
    finally:
        store.close()


def drill(folder: Path, without: tuple[str, ...] = ()) -> None:
    rng, killed, first = np.random.default_rng(0), 0, 0
    for users in ([0, 1, 2], [3, 4, 1]):  # the last one comes back
        run_until(folder, users, rng, "leave", without)
        check(folder)
    while killed < KILLED_REFITS:
        first += 5
        run_until(folder, [*range(first, first + 4), 1], rng, "refit", without)
        killed += [kind for kind in read_kinds(folder) if kind in ("refit", "mixture")][-1] == "refit"
        check(folder)
    n_ended = read_kinds(folder).count("mixture")
    with serving(folder, without=without, **SETTINGS) as server:
        visit(server, [2, 3], rng)
        wait_until(lambda: read_kinds(folder).count("mixture") > n_ended, "no refit ends")
        assert server.stop() == 0  # with snapshots, from which the next start goes on
    run_until(folder, [4, 5], rng, "leave", without)
    check(folder)


def test_kills_while_users_leave_and_refits_run_change_nothing(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_service_that_does_not_seat_who_has_left_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="does not recompute"):
        drill(tmp_path, without=("seats",))
