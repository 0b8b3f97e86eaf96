"""Durable requests per second through HTTP: half decisions of 20 arms x 6, half rewards, over 10,000 users.

    python benchmarks/serve.py [--rounds 5] [--seconds 4] [--prototype FOLDER] [--store postgresql://...]
    python benchmarks/serve.py --batch 100 [--rewards] [--catalogue] [--bandit learned-classes]

With --batch, decisions are made one per request and as many per request, in turn: with the same arms in every decision,
with other arms in every decision, and with arms sent once for all.  With --rewards, half are the rewards of the others;
with --catalogue, arms are named by the ids of items.  One service answers all of them, so that process, store and users
are the same: each user has had a decision before the first is measured, and the order changes from round to round.
Counted are the events that the store has afterwards, and the CPU time of the service until the last is stored.

wrk on loopback with 32 connections, after 6 s in which most of the users come for the first time (12 s with --store,
where each is looked up over the network); the service runs 5 classes and Thompson Sampling. Classes are not relearned
meanwhile unless --retrain-every says so: thousands of newcomers a second would keep the other process at it all the
time, on the cores that wrk shares. With --prototype, an ASGI prototype with group commit and no bandit
(proto_durable.py and mixed.lua in FOLDER) runs in turn with it, so that the ratios survive a machine that others use.
Every round has a store of its own; with --store, databases that are made there and dropped after. Needs wrk (Debian:
apt-get install wrk).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from lcb.models import LatentModels
from lcb.storage.models.folder import save_models

HERE = Path(__file__).parent
RUN = """
import sys
from lcb.serve.server import run
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
learning = Learning(retrain_every=int(sys.argv[4]) or None, learner="em")
store, models, port, _, bandit = sys.argv[1:6]
served = (RecommenderSpec("lcb", bandit),)
run(Settings(store, port=int(port), models=models, recommenders=served, learning=learning, log_level="warning"))
"""


Measured = dict[str, list[dict[str, float]]]


def cpu(pid: int) -> float:
    """Return the seconds of CPU time of all threads of a process."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3) of Linux


def milliseconds(text: str) -> float:
    number, unit = re.match(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def database(url: str, name: str) -> Iterator[str]:
    """A database of its own beside the one at the address."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"create database {name}")
        try:
            yield f"{url.rpartition('/')[0]}/{name}"
        finally:
            server.execute(f"drop database {name} with (force)")


def wait_for(port: int) -> None:
    for _ in range(2400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


def wait_until_ready(url: str) -> None:
    for _ in range(1200):
        try:
            with urllib.request.urlopen(url + "/readyz"):
                return
        except urllib.error.HTTPError:  # it reads its log
            time.sleep(0.05)
    sys.exit("the service was not ready after a minute; look at what it logs")


def read_wrk(said: str) -> dict[str, float]:
    """Return the latencies of the requests that wrk has sent."""
    return {f"p{n}_ms": milliseconds(re.search(rf"\n\s+{n}%\s+(\S+)", said)[1]) for n in (50, 99)}


def read_refused(said: str) -> int:
    bad = re.search(r"Non-2xx.*: (\d+)", said)
    return int(bad[1]) if bad else 0


def measure(command: list[str], env: dict[str, str], script: Path, port: int, given: argparse.Namespace):
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        wait_for(port)
        wrk = ["wrk", "-t1", f"-c{given.connections}", "--latency", "-s", str(script)]
        url = f"http://127.0.0.1:{port}/v1/recommend"
        subprocess.run([*wrk, "-d12s" if given.store else "-d6s", url], env=env, capture_output=True, check=True)
        before = cpu(process.pid)
        said = subprocess.run(
            [*wrk, f"-d{given.seconds}s", url], env=env, capture_output=True, text=True, check=True
        ).stdout
        n = int(re.search(r"(\d+) requests in", said)[1])
        if not n:
            sys.exit(f"no request was answered within {given.seconds} s; give more --seconds, or a machine less busy")
        rate, used = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), cpu(process.pid) - before
        return read_wrk(said) | {"rate": rate, "cpu_us": 1e6 * used / n, "bad": read_refused(said)}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def compare_batches(folder: Path, arms: list[dict[str, Any]], given: argparse.Namespace) -> Measured:
    """Measure in turn: one decision per request, and batches, by how arms are sent."""
    size = {"BATCH": str(given.batch)}
    kinds = {
        "single": {},
        "equal arms": size,
        "other arms": size | {"ARMS": "other"},
        "common arms": size | {"ARMS": "common"},
    }
    found: Measured = {name: [] for name in kinds}
    port, store, env = free_port(), folder / "batches.db", {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, str(store), str(folder / "models"), str(port), "0", given.bandit]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        wait_for(port)
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url)
        if given.catalogue:
            send(url + "/v1/items", {"items": arms}, "PUT")
            (folder / "arms.json").write_text(json.dumps([{"id": arm["id"]} for arm in arms]))
        for first in range(1, 10_001, 100):  # every user of batch.lua
            users = [{"user": f"u-{i}"} for i in range(first, first + 100)]
            send(url + "/v1/decisions:batch", {"arms": arms, "decisions": users})
        env |= {"PAYLOAD": str(folder / "arms.json")} | ({"REWARDS": "1"} if given.rewards else {})
        for i in range(-1, given.rounds):  # the first is not counted
            for name in sorted(kinds, reverse=i % 2 == 1):
                n_connections, seconds = 4 if kinds[name] else given.connections, given.seconds if i >= 0 else 1
                wrk = [
                    "wrk",
                    "-t1",
                    f"-c{n_connections}",
                    f"-d{seconds}s",
                    "--latency",
                    "-s",
                    str(HERE / "batch.lua"),
                    url,
                ]
                before, began, refused = count_events(store), cpu(process.pid), count_refused(url)
                said = subprocess.run(
                    wrk, env=env | kinds[name] | {"SEED": str(i)}, capture_output=True, text=True, check=True
                ).stdout
                n = wait_until_stored(store) - before
                took = cpu(process.pid) - began
                if i >= 0:
                    bad = read_refused(said) + count_refused(url) - refused
                    found[name].append(read_wrk(said) | {"rate": n / seconds, "cpu_us": 1e6 * took / n, "bad": bad})
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    return found


def send(url: str, body: dict[str, Any], method: str = "POST") -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def count_refused(url: str) -> int:
    """Return how many elements of batches the service has refused."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        return int(float(re.search(rb'lcb_batch_elements_total.*"refused".* ([\d.e+]+)', answer.read())[1]))


def count_events(store: Path) -> int:
    with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute("select max(seq) from event").fetchone()[0]


def wait_until_stored(store: Path) -> int:
    """Return the number of events when no more come: wrk leaves requests behind that it does not wait for."""
    n = count_events(store)
    while True:
        time.sleep(0.3)
        before, n = n, count_events(store)
        if n == before:
            return n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--prototype", type=Path)
    parser.add_argument("--store", help="postgresql:// address of a server for both; SQLite files when not given")
    parser.add_argument("--retrain-every", type=int, default=0, help="new users; 0: not at all")
    parser.add_argument("--batch", type=int, help="decisions of one request")
    parser.add_argument("--rewards", action="store_true", help="with --batch: half of the requests are rewards")
    parser.add_argument("--catalogue", action="store_true", help="with --batch: arms are items of the catalogue, by id")
    parser.add_argument("--bandit", default="thompson")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    arms = [{"id": f"article-{i:05d}", "x": rng.normal(size=6).round(6).tolist()} for i in range(20)]
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "arms.json").write_text(json.dumps(arms))
        old = {"user": "u-12345678", "arms": [{"id": arm["id"], "features": arm["x"]} for arm in arms]}
        (folder / "old.json").write_text(json.dumps(old))
        models = LatentModels(np.full(5, 0.2), rng.normal(size=(5, 6)), np.full(5, 0.1))
        save_models(models, folder / "models")
        if given.batch:
            found = compare_batches(folder, arms, given)
        for i in range(0 if given.batch else given.rounds):
            port, env = free_port(), {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            more = {"PAYLOAD": str(folder / "arms.json"), "SEED": str(i)}
            with database(given.store, f"lcb_{i}") if given.store else nullcontext(str(folder / f"{i}.db")) as store:
                command = [
                    sys.executable,
                    "-c",
                    RUN,
                    store,
                    str(folder / "models"),
                    str(port),
                    str(given.retrain_every),
                    given.bandit,
                ]
                ours = measure(command, env | more, HERE / "serve.lua", port, given)
            found.setdefault("lcb", []).append(ours)
            if given.prototype is None:
                continue
            place = folder / f"prototype-{i}"
            place.mkdir()
            more = {"PAYLOAD": str(folder / "old.json"), "DBDIR": str(place), "PYTHONPATH": str(given.prototype)}
            command = [
                sys.executable, "-m", "uvicorn", "proto_durable:app", "--port", str(port), "--no-access-log",
                "--log-level", "error", "--loop", "uvloop", "--http", "httptools",
            ]  # fmt: skip
            script = given.prototype / "mixed.lua"
            with database(given.store, f"prototype_{i}") if given.store else nullcontext() as store:
                more |= {"STORE": "pg", "DSN": store} if store else {"STORE": "sqlite"}
                theirs = measure(command, env | more, script, port, given)
            found.setdefault("prototype", []).append(theirs)
    what = "decisions" if given.batch and not given.rewards else "events"
    for name, rounds in found.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        rates = [one["rate"] for one in rounds]
        print(
            f"{name:11} {middle['rate']:7.0f} {what}/s ({min(rates):.0f}-{max(rates):.0f})  "
            f"{middle['cpu_us']:5.0f} us CPU  p50 {middle['p50_ms']:.1f} ms  p99 {middle['p99_ms']:.1f} ms  "
            f"refused {sum(one['bad'] for one in rounds)}"
        )
    if "prototype" in found:
        for key in ("rate", "cpu_us", "p99_ms"):
            ratios = [a[key] / b[key] for a, b in zip(found["lcb"], found["prototype"], strict=True)]
            print(f"{key} / prototype's: median {statistics.median(ratios):.2f}, {min(ratios):.2f}-{max(ratios):.2f}")
    if given.batch:
        for name in [name for name in found if name != "single"]:
            ratios = [a["cpu_us"] / b["cpu_us"] for a, b in zip(found["single"], found[name], strict=True)]
            words = f"median {statistics.median(ratios):.2f}, {min(ratios):.2f}-{max(ratios):.2f}"
            print(f"{what} per CPU second, {name} / single: {words}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
