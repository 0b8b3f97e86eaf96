"""Two checkouts of lcb side by side: CPU time of `lcb log verify` on a log that each has written, in interleaved pairs.

    python benchmarks/verify_pair.py OTHER_CHECKOUT [--pairs 7] [--events 20000]

Both must have their own environment in .venv.  The same requests are sent to a service of each: half decisions of 20
arms x 6 for 2,000 users, half rewards.  Then each verifies its own log, the first of a pair alternating.  Verification
waits for little, so CPU time is what counts, on a machine that others use too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lcb.models import LatentModels
from lcb.storage.models.folder import save_models
from serve import RUN, free_port, wait_for, wait_until_ready

CONNECTIONS, USERS = 32, 2000


async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> Any:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}"
    writer.write(head.encode() + b"\r\n\r\n" + raw)
    answer = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    found = await reader.readexactly(size)
    if b" 200 " not in answer[:20]:
        sys.exit(f"{path} was refused: {found.decode()}")
    return json.loads(found)


async def fill(port: int, n_events: int) -> None:
    """Send decisions and their rewards over many connections, the same ones to every checkout."""
    rng = np.random.default_rng(0)
    arms = [{"id": f"article-{i:05d}", "x": rng.normal(size=6).round(6).tolist()} for i in range(20)]
    left = iter(range(n_events // 2))

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        for i in left:
            body = {"user": f"u-{i * 7919 % USERS}", "arms": arms, "decision_id": f"d-{i}"}
            await send(reader, writer, "/v1/decisions", body)
            await send(reader, writer, "/v1/rewards", {"decision_id": f"d-{i}", "reward": float(i % 3 == 0)})
        writer.close()

    await asyncio.gather(*[ask() for _ in range(CONNECTIONS)])


def write_log(checkout: Path, folder: Path, n_events: int) -> Path:
    port, store = free_port(), folder / f"{checkout.name}.db"
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [checkout / ".venv/bin/python", "-c", RUN, store, folder / "models", port, 0, "thompson"]
    process = subprocess.Popen(list(map(str, command)), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        wait_for(port)
        wait_until_ready(f"http://127.0.0.1:{port}")
        asyncio.run(fill(port, n_events))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    return store


def verify(checkout: Path, store: Path) -> float:
    """Return the seconds of CPU time of one verification."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [checkout / ".venv/bin/lcb", "log", "verify", store]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--events", type=int, default=20_000)
    given = parser.parse_args()
    ours, theirs = Path(__file__).resolve().parent.parent, given.other.resolve()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_models(LatentModels(np.full(5, 0.2), rng.normal(size=(5, 6)), np.full(5, 0.1)), folder / "models")
        stores = {checkout: write_log(checkout, folder, given.events) for checkout in (ours, theirs)}
        ratios = []
        for i in range(given.pairs):
            order = (ours, theirs) if i % 2 == 0 else (theirs, ours)
            found = {checkout: verify(checkout, stores[checkout]) for checkout in order}
            ratios.append(found[ours] / found[theirs])
            print(f"{found[ours]:.2f} / {found[theirs]:.2f} s of CPU time", flush=True)
    print(f"CPU time / the other's: median {statistics.median(ratios):.3f}, {min(ratios):.3f}-{max(ratios):.3f}")


if __name__ == "__main__":
    main()
