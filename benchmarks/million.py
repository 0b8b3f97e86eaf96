"""A store of a million users beside one of a thousand: decision latency, memory, restart to ready.

    python benchmarks/million.py [--users 1000000] [--folder DIR] [--rounds 5] [--seconds 3]

Every user has one decision of 20 arms x 6 and its reward.  The store is filled as the service would leave it (events,
snapshots of users and of the world); then wrk asks for users at random, 8 connections, decisions and rewards in turn,
the two stores in turn.  Needs wrk.  A filled --folder is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lcb import messages
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.config.settings import Settings
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.storage.models.folder import save_models
from lcb.storage.store.base import NewRow
from lcb.storage.store.open_store import open_store
from serve import RUN, free_port, milliseconds

HERE = Path(__file__).parent
BLOCK = 5_000


def fill(folder: Path, n_users: int) -> None:
    """A store that has served `n_users`."""
    rng = np.random.default_rng(0)
    save_models(LatentModels(np.full(5, 0.2), rng.normal(size=(5, 6)), np.full(5, 0.1)), folder / "models")
    store = open_store(str(folder / "lcb.db"))
    service = Service(Settings(store=store.url, models=str(folder / "models"), pages=False), store)
    arms = [messages.Arm(f"article-{i:05d}", rng.normal(size=6).round(6).tolist()) for i in range(20)]
    made = service.decisions.decide(messages.DecisionRequest("u-1", arms))
    taken = made.body.taken[0]
    world = World(store, most_bytes=20_000_000)
    world.load()
    began = time.monotonic()
    for start in range(1, n_users + 1, BLOCK):
        names = [f"u-{i}" for i in range(start, min(start + BLOCK, n_users + 1))]
        rows = []
        for name in names:
            id = service.new_id()
            rows.append(NewRow(id, "decision", name, 1, made.row.body))
            seq = world.seq + len(rows)
            body = events.RewardBody(0.0, seq, "lcb", 1.0, taken.propensity, taken.x, False, None)
            rows.append(NewRow(f"r/{id}", "reward", name, 1, events.encode(body)))
        for row in store.append(rows, world.seq, world.cache.take_evicted()).rows:
            world.apply(row)
        if (start // BLOCK) % 20 == 0:
            print(f"\r{start + len(names) - 1:,} users, {time.monotonic() - began:.0f} s", end="", flush=True)
    store.append([], world.seq, [world.snapshot(), *world.cache.unsaved_snapshots()])
    store.close()
    (folder / "filled").touch()
    print(f"\r{n_users:,} users filled in {time.monotonic() - began:.0f} s")


def measure(folder: Path, n_users: int, payload: Path, seconds: int) -> dict[str, float]:
    port = free_port()
    command = [sys.executable, "-c", RUN, str(folder / "lcb.db"), str(folder / "models"), str(port), "0"]
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    try:
        while True:
            done = subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/readyz"], capture_output=True, check=False)
            if done.returncode == 0:
                break
            time.sleep(0.02)
        ready = time.monotonic() - began
        env = {**os.environ, "PAYLOAD": str(payload), "USERS": str(n_users), "SEED": str(int(began))}
        wrk = ["wrk", "-t1", "-c8", "--latency", "-s", str(HERE / "serve.lua"), f"http://127.0.0.1:{port}/"]
        subprocess.run([*wrk, "-d2s"], env=env, capture_output=True, check=True)
        said = subprocess.run([*wrk, f"-d{seconds}s"], env=env, capture_output=True, text=True, check=True).stdout
        memory = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024
        return {
            "ready_s": ready,
            "rate": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),
            "p50_ms": milliseconds(re.search(r"\n\s+50%\s+(\S+)", said)[1]),
            "p99_ms": milliseconds(re.search(r"\n\s+99%\s+(\S+)", said)[1]),
            "peak_mb": memory,
        }
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = given.folder or Path(name)
        place.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        payload = place / "arms.json"
        arms = [{"id": f"article-{i:05d}", "x": rng.normal(size=6).round(6).tolist()} for i in range(20)]
        payload.write_text(json.dumps(arms))
        sizes = (1_000, given.users)
        found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
        for size in sizes:
            folder = place / str(size)
            folder.mkdir(exist_ok=True)
            if not (folder / "filled").exists():
                fill(folder, size)
        for _ in range(given.rounds):
            for size in sizes:
                found[size].append(measure(place / str(size), size, payload, given.seconds))
        for size, rounds in found.items():
            middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
            print(f"{size:>9,} users: " + "  ".join(f"{key} {value:.2f}" for key, value in middle.items()))
        ratios = [b["p50_ms"] / a["p50_ms"] for a, b in zip(*found.values(), strict=True)]
        print(f"p50 at {given.users:,} / at 1,000: median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
