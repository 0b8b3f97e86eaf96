"""Drill 10: another process recomputes every decision of a log, bit for bit, from the log alone."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve import events
from support.harness import LONG, arms, models_folder, serving

DECISIONS = 5_000 if LONG else 80
RECOMMENDERS = [
    {"name": "lcb", "settings": {"gamma": 0.1}},
    {"name": "exp4", "bandit": "exp4"},
    {"name": "population", "bandit": "linucb", "scope": "everyone"},
    {"name": "sampled", "bandit": "lints"},
]


def serve(folder: Path) -> None:
    """Run a service in its own process, send requests over HTTP, kill it in the middle and stop it at the end."""
    rng = np.random.default_rng(0)
    for end in ("killed", "stopped"):
        with serving(folder, models=models_folder(folder), recommenders=RECOMMENDERS) as server:
            with server.client() as http:
                for _ in range(DECISIONS // 2):
                    body: dict[str, Any] = {"user": f"u{rng.integers(20)}", "arms": arms(rng, 6)}
                    if rng.random() < 0.2:
                        body["k"] = 3
                    answer = http.post("/v1/decisions", json=body).json()
                    id = answer["slots"][1]["reward_id"] if "k" in body else answer["decision_id"]
                    if rng.random() < 0.7:
                        reward = {"decision_id": id, "reward": float(rng.random() < 0.5)}
                        assert http.post("/v1/rewards", json=reward).status_code == 200
            if end == "stopped":
                assert server.stop() == 0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    serve(folder)
    return folder / "lcb.db"


def drill(served: Path, folder: Path, *, spoil: bool = False) -> None:
    shutil.copy(served, folder / "lcb.db")
    if spoil:
        one_bit(folder / "lcb.db")
    command = [sys.executable, "-c", "from lcb.cli.main import main; main()", "log", "verify", "lcb.db", "--json", "-"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert (done.returncode, told["differences"]) == (0, []), "a decision is another when it is made again"
    assert told["n_decisions"] == 2 * (DECISIONS // 2)
    assert told["n_rewards"] > DECISIONS / 2


def one_bit(path: Path) -> None:
    """Flip the lowest bit of one propensity in the log."""
    with sqlite3.connect(path) as connection:
        for seq, body in connection.execute(
            "select seq, body from event where kind = 'decision' order by seq"
        ).fetchall():
            decision = events.decode("decision", body)
            taken = decision.taken[0]
            if taken.propensity < 1:
                (bits,) = struct.unpack("<q", struct.pack("<d", taken.propensity))
                (taken.propensity,) = struct.unpack("<d", struct.pack("<q", bits + 1))
                connection.execute("update event set body = ? where seq = ?", (events.encode(decision), seq))
                break
    connection.close()


def test_another_process_makes_every_decision_again(served: Path, tmp_path: Path) -> None:
    drill(served, tmp_path)


def test_one_bit_of_one_propensity_is_found(served: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="made again"):
        drill(served, tmp_path, spoil=True)
