"""`ray job submit`, as docs/cluster.md has it; drill 46 runs this file in a network of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.storage.models.folder import load_models
from support.harness import wait_until

DOCS = Path(__file__).parents[2] / "docs" / "cluster.md"
BIN = Path(sys.executable).parent


@pytest.fixture
def head():
    """A head with its dashboard, which takes jobs; it and all that it started end with the test."""
    command = [
        BIN / "ray",
        "start",
        "--head",
        "--port",
        "6379",
        "--include-dashboard",
        "true",
        "--num-cpus",
        "2",
        "--block",
    ]
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: subprocess.run([BIN / "ray", "job", "list"], capture_output=True).returncode == 0, "no head", 120
        )
        yield
    finally:
        process.send_signal(signal.SIGTERM)  # ends the processes that it started
        process.wait(60)


def test_a_job_that_is_sent_to_the_cluster_learns_the_classes_of_one_machine(head, tmp_path):
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(200), 10), rng.normal(size=(2000, 2))
    reward = (x * np.eye(2)[user % 2]).sum(axis=1) + 0.1 * rng.normal(size=2000)
    (tmp_path / "events").mkdir()
    for i in range(2):
        own = slice(i, None, 2)
        columns = {"user": user[own], "reward": reward[own], "sport": x[own, 0], "arts": x[own, 1]}
        pq.write_table(pa.table(columns), tmp_path / "events" / f"part-{i}.parquet")
    (line,) = (one for one in DOCS.read_text().splitlines() if one.startswith("ray job submit"))
    for words, here in (
        ("http://HEAD:8265", "http://127.0.0.1:8265"),
        ("/shared/events", str(tmp_path / "events")),
        ("/shared/models", str(tmp_path / "models")),
    ):
        assert words in line
        line = line.replace(words, here)
    words = line.split()
    found = run(words)
    assert "from 2,000 events of 200 users" in found
    alone = [word for word in words[words.index("--") + 1 :] if word not in ("--on", "ray")]
    run([*alone[:-1], str(tmp_path / "alone")])
    there, here = load_models(tmp_path / "models"), load_models(tmp_path / "alone")
    for true in np.eye(2):
        assert np.abs(there.beta - true).max(axis=1).min() < 0.05
    np.testing.assert_allclose(there.beta, here.beta, atol=1e-6)


def run(words: list[str]) -> str:
    found = subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout
