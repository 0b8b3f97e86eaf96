"""Durable requests per second through HTTP: half decisions of 20 arms x 6, half rewards, over 10,000 users.

    python benchmarks/serve.py [--rounds 5] [--seconds 4] [--prototype FOLDER] [--store postgresql://...]
    python benchmarks/serve.py --batch 100 [--rewards] [--bandit learned-classes]

With --batch, decisions are made one per request and as many per request, in turn: with the same arms in every decision,
with other arms in every decision, and with arms sent once for all.  With --rewards, half are the rewards of the others.

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
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

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


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def measure(command: list[str], env: dict[str, str], script: Path, port: int, given: argparse.Namespace):
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        for _ in range(2400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        wrk = ["wrk", "-t1", f"-c{given.connections}", "--latency", "-s", str(script)]
        url = f"http://127.0.0.1:{port}/v1/recommend"
        size = int(env.get("BATCH", "1"))  # decisions of one request
        subprocess.run([*wrk, "-d12s" if given.store else "-d6s", url], env=env, capture_output=True, check=True)
        before = cpu(process.pid)
        said = subprocess.run(
            [*wrk, f"-d{given.seconds}s", url], env=env, capture_output=True, text=True, check=True
        ).stdout
        n = size * int(re.search(r"(\d+) requests in", said)[1])
        if not n:
            sys.exit(f"no request was answered within {given.seconds} s; give more --seconds, or a machine less busy")
        bad = re.search(r"Non-2xx.*: (\d+)", said)
        return {
            "rate": size * float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),
            "cpu_us": 1e6 * (cpu(process.pid) - before) / n,
            "p50_ms": milliseconds(re.search(r"\n\s+50%\s+(\S+)", said)[1]),
            "p99_ms": milliseconds(re.search(r"\n\s+99%\s+(\S+)", said)[1]),
            "bad": int(bad[1]) if bad else 0,
        }
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def compare_batches(folder: Path, given: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Measure in turn: one decision per request, and batches, by how arms are sent."""
    size = {"BATCH": str(given.batch)}
    kinds = {
        "single": {},
        "equal arms": size,
        "other arms": size | {"ARMS": "other"},
        "common arms": size | {"ARMS": "common"},
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for i in range(given.rounds):
        for name, more in kinds.items():
            port, store = free_port(), str(folder / f"{name}-{i}.db")
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PAYLOAD": str(folder / "arms.json"), "SEED": str(i)}
            env |= {"REWARDS": "1"} if given.rewards else {}
            command = [sys.executable, "-c", RUN, store, str(folder / "models"), str(port), "0", given.bandit]
            few = argparse.Namespace(**{**vars(given), "connections": 4 if more else given.connections})
            found[name].append(measure(command, env | more, HERE / "batch.lua", port, few))
    return found


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
            found = compare_batches(folder, given)
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
