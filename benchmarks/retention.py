"""Compact a log of a million events while it is served: times of requests before and meanwhile, and disk per decision.

    python benchmarks/retention.py                    # 1,000,000 events, 100 decisions per second
    python benchmarks/retention.py --events 100000

The events are generated: 20 arms with 6 features each, half of the events decisions and half rewards, over 100 days.
The newest ten days stay.  Requests are sent at fixed times, whatever the answers take, so waiting counts in full.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.storage.store.base import NewRow
from lcb.storage.store.sqlite import SQLite

N_ARMS, N_FEATURES, PER_USER = 20, 6, 25
DAYS, KEPT = 100.0, 10.0
LCB = str(Path(sys.executable).with_name("lcb"))
_WARM = 5.0  # seconds of requests that are not counted, while the service is new
SPEC = RecommenderSpec("own", "lints", uniform=0.01)


def write_log(path: Path, n_events: int) -> None:
    """Write a log of decisions and rewards, in the order of their times."""
    rng, now, store = np.random.default_rng(0), time.time(), SQLite(path)
    began = now - DAYS * 86_400
    spec = SPEC.complete(None)
    body = events.ServiceBody(began, b"a seed for tests", "once", (0.0, 1.0), None, None, has_key_events=True)
    head = [
        NewRow("service", "service", None, None, events.encode(body)),
        NewRow(
            "recommender/own", "recommender", None, None, events.encode(events.RecommenderBody(began, spec.to_json()))
        ),
    ]
    store.append(head, 0)
    seq, n_users = 2, max(n_events // 2 // PER_USER, 1)
    ids = [f"a{i}" for i in range(N_ARMS)]
    rows: list[NewRow] = []
    for i in range(n_events // 2):
        x = rng.normal(size=(N_ARMS, N_FEATURES))
        arm, user, at = (
            int(rng.integers(N_ARMS)),
            f"user-{int(rng.integers(n_users))}",
            began + DAYS * 86_400 * 2 * i / n_events,
        )
        p = np.full(N_ARMS, 0.01 / N_ARMS)
        p[arm] += 0.99
        taken = events.ChosenArm(arm, ids[arm], float(p[arm]), x[arm].tobytes(), p.tobytes(), False, None)
        decision = events.DecisionBody(at, seq, "own", N_ARMS, ids, x.tobytes(), None, [taken], None)
        reward = events.RewardBody(
            at + 1, seq + 1, "own", float(rng.random() < 0.3), float(p[arm]), taken.x, False, None, item=ids[arm]
        )
        rows.append(NewRow(f"d{i:012d}", "decision", user, 0, events.encode(decision)))
        rows.append(NewRow(f"r/d{i:012d}", "reward", user, 0, events.encode(reward)))
        seq += 2
        if len(rows) >= 2000:
            store.append(rows, seq - len(rows))
            rows = []
    if rows:
        store.append(rows, seq - len(rows))
    store.close()


class Load(threading.Thread):
    """Sends decisions at a fixed rate by a few connections until `stop`; `times` are seconds since each was due."""

    def __init__(self, address: str, rate: float, n_connections: int = 8) -> None:
        super().__init__(daemon=True)
        self.host = urlsplit(address).netloc
        self.rate, self.n_connections = rate, n_connections
        self.times: list[tuple[float, float]] = []  # when it was due, how long it took
        self.failed = 0
        self.ended = False
        self._next, self._lock = 0, threading.Lock()
        rng = np.random.default_rng(1)
        arms = [{"id": f"a{i}", "x": x.tolist()} for i, x in enumerate(rng.normal(size=(N_ARMS, N_FEATURES)))]
        self._bodies = [json.dumps({"user": f"user-{i}", "arms": arms}) for i in range(200)]

    def run(self) -> None:
        self.began = time.monotonic()
        threads = [threading.Thread(target=self._send, daemon=True) for _ in range(self.n_connections)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _send(self) -> None:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        while not self.ended:
            with self._lock:
                i, self._next = self._next, self._next + 1
            due = self.began + i / self.rate
            time.sleep(max(due - time.monotonic(), 0))
            connection.request("POST", "/v1/decisions", self._bodies[i % 200], {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            self.failed += answer.status != 200
            self.times.append((due, time.monotonic() - due))


def describe(name: str, times: list[float]) -> None:
    found = 1000 * np.array(times)
    quantiles = " ".join(f"p{q:g} {np.quantile(found, q / 100):.1f}" for q in (50, 95, 99, 99.9))
    print(f"{name}: {len(found):,} requests, {quantiles}, most {found.max():.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--before", type=float, default=20.0, help="seconds of requests without a compaction")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lcb.db"
        write_log(path, given.events)
        size = path.stat().st_size
        print(f"{given.events:,} events, {2 * size / given.events:,.0f} bytes per decision", flush=True)
        config = Path(folder) / "lcb.toml"
        config.write_text(
            f'store = "{path}"\nport = 0\npages = false\nreward_range = [0.0, 1.0]\n'
            '[[recommenders]]\nname = "own"\nbandit = "lints"\nuniform = 0.01\n'
        )
        server = subprocess.Popen(
            [LCB, "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        try:
            assert server.stdout is not None
            address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
            load = Load(address.rstrip(".,"), given.rate)
            load.start()
            time.sleep(given.before)
            began, cpu = time.monotonic(), os.times().children_user
            subprocess.run(
                [
                    LCB,
                    "log",
                    "compact",
                    str(path),
                    "--keep",
                    f"{KEPT:.0f}d",
                ],
                check=True,
            )
            ended = time.monotonic()
            load.ended = True
            load.join()
            took = os.times().children_user - cpu
            print(f"compaction took {ended - began:.0f} s, {took:.0f} s of CPU; {load.failed} requests failed")
            describe("before   ", [took for due, took in load.times if load.began + _WARM < due < began])
            describe("meanwhile", [took for due, took in load.times if began <= due < ended])
        finally:
            server.terminate()
            server.wait()
        archive = sum(file.stat().st_size for file in Path(f"{path}.archive").rglob("*.parquet"))
        n_archived = given.events * (1 - KEPT / DAYS) / 2
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("vacuum")
        left = path.stat().st_size
        print(f"archive {archive / n_archived:,.0f} bytes per archived decision")
        print(f"store {size / 1e6:,.0f} MB, then {left / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
