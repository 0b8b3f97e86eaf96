"""Runs of evaluations on a real Ray cluster of one node; drill 46 runs this file in a network of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import lcb

MAIN = "from lcb.cli.main import main; main()"
_MEASURED = ("seconds", "megabytes", "time")  # differ from run to run


@pytest.fixture(scope="session")
def head():
    with lcb.connect("local"):
        yield ray.get_runtime_context().gcs_address


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    """An imported log of 120 users of two kinds with 25 events each."""
    folder, rng = tmp_path_factory.mktemp("log"), np.random.default_rng(0)
    category = np.arange(40) % 4
    user, item = np.repeat(np.arange(120), 25), rng.integers(40, size=3000)
    liked = rng.random(3000) < np.where(category[item] % 2 == user % 2, 0.7, 0.2)
    events = {"user": user, "order": np.tile(np.arange(25), 120), "item": item, "reward": liked.astype(float)}
    pq.write_table(pa.table(events), folder / "events.parquet")
    items = {"item": np.arange(40), "categories": [[one] for one in category.tolist()]}
    pq.write_table(pa.table(items), folder / "items.parquet")
    (folder / "categories.json").write_text(json.dumps(["crime", "travel", "art", "sport"]))
    return str(folder)


def run(words, *on):
    """Run a command; return what it prints, which is JSON alone, without what is measured."""
    command = [sys.executable, "-c", MAIN, *words, "--json", "-", *on]
    found = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert found.returncode == 0, found.stderr
    return forget_measured(json.loads(found.stdout))


def forget_measured(value):
    if isinstance(value, dict):
        return {key: forget_measured(own) for key, own in value.items() if not any(word in key for word in _MEASURED)}
    return [forget_measured(own) for own in value] if isinstance(value, list) else value


COMMANDS = {
    "simulate": "simulate --algorithms random,lcb --users 30 --steps 5 --arms 4 --runs 3",
    "tune": "tune --algorithms linucb-individual --users 20 --steps 5 --arms 4 --runs 2 --most 3 --out {out}",
    "evaluate": "evaluate {log} --algorithms lcb-personal --steps 5 --seeds 2 --classes 2",
    "evaluate, tuned": "evaluate {log} --algorithms linucb-individual --steps 5 --seeds 1 --classes 2 --tune",
    "evaluate items": "evaluate {log} --arms items --algorithms popularity --steps 5 --seeds 2 --classes 2",
    "reproduce": "reproduce fig-2b --algorithms random --runs 2 --out {out}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_same_numbers_there_as_here(head, log, tmp_path, name):
    words = [word.format(log=log, out=tmp_path / "out") for word in COMMANDS[name].split()]
    assert run(words, "--on", head) == run(words)


class Log:
    """Counts how often it is sent."""

    n_sent = 0

    def __getstate__(self):
        type(self).n_sent += 1
        return {"content": np.zeros(10)}


def get_number(task):
    return task[1]


def test_the_log_is_sent_once_and_not_with_every_run():
    """The last of these tests: it connects by itself."""
    ray.shutdown()
    log = Log()
    with lcb.connect("local") as cluster:
        assert cluster.run(get_number, [(log, i) for i in range(12)]) == list(range(12))
    assert Log.n_sent == 1
