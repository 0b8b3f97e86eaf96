"""Compact a log of a million events while it is served: times of requests before and meanwhile, and disk per decision.

    python benchmarks/retention.py                    # 1,000,000 events, 100 decisions per second
    python benchmarks/retention.py --events 100000
    python benchmarks/retention.py --folder DIR       # keep the log in DIR, and take the one that is there
    python benchmarks/retention.py --check            # also verify before and after, and compare what is learned

The events are those of a service: 20 arms with 6 features each, half of them decisions and half rewards, over 100 days.
The newest ten days stay.  Requests are sent at fixed times, whatever the answers take, so waiting counts in full.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np

from lcb import messages
from lcb.models import LatentModels
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.serve.decide_many import decide_many, reward_many
from lcb.serve.learn.training_data import read_training_data
from lcb.serve.retain.whole_log import open_whole
from lcb.serve.service import Service
from lcb.storage.models.folder import save_models
from lcb.storage.store.open_store import open_store

N_ARMS, N_FEATURES, PER_USER = 20, 6, 25
DAYS, KEPT = 100.0, 10.0
LCB = str(Path(sys.executable).with_name("lcb"))
_WARM = 5.0  # seconds of requests that are not counted, while the service is new
_BATCH, _ALIKE = 200, 10  # decisions at once, and of these from the same arms: too few to be stored together
_ANSWER = msgspec.json.Decoder(messages.DecisionAnswer)


async def write_log(path: Path, n_events: int) -> None:
    """Let a service decide and take rewards, at times of the past."""
    rng, now = np.random.default_rng(0), time.time() - DAYS * 86_400
    save_models(
        LatentModels(np.full(5, 0.2), rng.normal(size=(5, N_FEATURES)), np.full(5, 0.1)), path.parent / "models"
    )
    settings = Settings(
        store=str(path),
        models=str(path.parent / "models"),
        recommenders=(RecommenderSpec("own", "thompson"),),
        learning=Learning(retrain_every=None),
    )
    service = Service(settings, open_store(str(path)), now=lambda: now)
    service.start()
    n_users = max(n_events // 2 // PER_USER, 1)
    for _ in range(0, n_events // 2, _BATCH):
        asked = []
        for _ in range(_BATCH // _ALIKE):
            x = rng.normal(size=(N_ARMS, N_FEATURES))
            arms = [messages.Arm(f"a{i}", one) for i, one in enumerate(x.tolist())]
            asked += [messages.DecisionRequest(f"user-{i}", arms) for i in rng.integers(n_users, size=_ALIKE)]
        answers = await decide_many(service, asked)
        clicks = (rng.random(_BATCH) < 0.3).astype(float).tolist()
        rewards = [
            messages.RewardRequest(_ANSWER.decode(answer).decision_id, reward)
            for answer, reward in zip(answers, clicks, strict=True)
        ]
        await reward_many(service, rewards)
        now += DAYS * 86_400 * 2 * _BATCH / n_events
    await service.stop()


def verify(*more: str) -> None:
    began = time.monotonic()
    subprocess.run([LCB, "log", "verify", *more], check=True, stdout=subprocess.DEVNULL)
    print(f"lcb log verify {' '.join(more[1:2])} passes, {time.monotonic() - began:.0f} s", flush=True)


def start(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """Start the service; return its process, its address, and how long it took until it was ready."""
    began = time.monotonic()
    command = [LCB, "serve", "--config", str(folder / "lcb.toml")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert server.stdout is not None
    address = next(word for line in server.stdout for word in line.split() if "http://" in word)
    ticks = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return server, address.strip('",.'), f"{time.monotonic() - began:.1f} s, {cpu:.1f} s of CPU"


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait()


def compare_learning(before: Path, after: Path) -> None:
    """Compare the statistics of the whole log with those of log and archive, up to the same event."""
    stores = open_store(str(before), create=False), open_store(str(after), create=False)
    seq = stores[0].head()
    found = [
        read_training_data(one, seq, "once", ()).stats for one in (stores[0], open_whole(stores[1], f"{after}.archive"))
    ]
    same = found[0].users == found[1].users and found[0].packed.tobytes() == found[1].packed.tobytes()
    print(f"statistics of {len(found[0].users):,} users to learn from: {'the same bits' if same else 'DIFFERENT'}")
    for one in stores:
        one.close()


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
    parser.add_argument("--folder", type=Path, help="where the log is, or is kept")
    parser.add_argument("--check", action="store_true", help="verify before and after, and compare what is learned")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = (given.folder or folder) / "whole" / "lcb.db"
        if not kept.exists():
            kept.parent.mkdir(parents=True)
            asyncio.run(write_log(kept, given.events))
        path = folder / "lcb.db"
        shutil.copy(kept, path)
        measure(path, kept, given)


def measure(path: Path, whole: Path, given: argparse.Namespace) -> None:
    folder, size = path.parent, path.stat().st_size
    print(f"{given.events:,} events, {2 * size / given.events:,.0f} bytes per decision", flush=True)
    if given.check:
        verify(str(path))
    (folder / "lcb.toml").write_text(
        f'store = "{path}"\nport = 0\npages = false\n[[recommenders]]\nname = "own"\nbandit = "thompson"\n'
        "[learning]\nretrain_every = 1000000000\n"
    )
    server, address, seconds = start(folder)
    print(f"start {seconds}")
    try:
        load = Load(address, given.rate)
        load.start()
        time.sleep(given.before)
        began = time.monotonic()
        compaction = subprocess.Popen([LCB, "log", "compact", str(path), "--keep", f"{KEPT:.0f}d"])
        _, status, used = os.wait4(compaction.pid, 0)
        compaction.returncode = os.waitstatus_to_exitcode(status)
        ended = time.monotonic()
        load.ended = True
        load.join()
        if compaction.returncode:
            sys.exit("the compaction has failed")
        cpu = used.ru_utime + used.ru_stime
        print(f"compaction took {ended - began:.0f} s, {cpu:.0f} s of CPU, {used.ru_maxrss / 1024:,.0f} MB of memory")
        print(f"{load.failed} requests failed")
        describe("before   ", [took for due, took in load.times if load.began + _WARM < due < began])
        describe("meanwhile", [took for due, took in load.times if began <= due < ended])
    finally:
        stop(server)
    for words in ("", " without snapshots"):
        if words:
            subprocess.run([LCB, "log", "rebuild", str(path)], check=True, stdout=subprocess.DEVNULL)
        server, _, seconds = start(folder)
        stop(server)
        print(f"start after the compaction{words} {seconds}")
    if given.check:
        verify(str(path))
        verify(str(path), "--archive", f"{path}.archive")
        compare_learning(whole, path)
    archive = sum(file.stat().st_size for file in Path(f"{path}.archive").rglob("*.parquet"))
    n_archived = given.events * (1 - KEPT / DAYS) / 2
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("vacuum")
    print(f"archive {archive / n_archived:,.0f} bytes per archived decision")
    print(f"store {size / 1e6:,.0f} MB, then {path.stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
