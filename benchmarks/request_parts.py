"""Microseconds of the parts of a request: a decision of 20 arms x 6 and its reward, 5 classes, Thompson Sampling.

    python benchmarks/request_parts.py

The last line is the same decision as one of a batch of 100 from the same arms.  Each number is the fastest of many
short runs, so that it holds on a machine that others use too.  There is no network and no wait for the disk;
`benchmarks/serve.py` measures the whole.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from lcb import messages
from lcb.models import LatentModels
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.serve.decide.entry import Entry
from lcb.serve.decide_many import build_decisions
from lcb.serve.service import Service
from lcb.serve.strict_json import decode
from lcb.storage.models.folder import save_models
from lcb.storage.store.base import NewRow, Row
from lcb.storage.store.open_store import open_store

BATCH = 16
DECISION = msgspec.json.Decoder(messages.DecisionRequest)
REWARD = msgspec.json.Decoder(messages.RewardRequest)


def fastest(work: Callable[[], Any], *, n: int = 20, runs: int = 400) -> float:
    """Return the microseconds of one call, in the fastest of `runs` runs of `n` calls."""
    best = np.inf
    for _ in range(runs):
        began = time.perf_counter()
        for _ in range(n):
            work()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / n


def time_append(service: Service, rows: list[NewRow]) -> float:
    """Return the microseconds per event of appending a batch; ids are made before the clock starts."""
    store, best, n = service.store, np.inf, 0
    seq = store.append([rows[0]._replace(id="first")], store.head()).rows[-1].seq
    for _ in range(600):
        batch = [rows[i % 2]._replace(id=f"{n + i:026x}") for i in range(BATCH)]
        began = time.perf_counter()
        seq = store.append(batch, seq).rows[-1].seq
        best = min(best, time.perf_counter() - began)
        n += BATCH
    return 1e6 * best / BATCH


async def measure(folder: Path) -> dict[str, float]:
    rng = np.random.default_rng(0)
    models = LatentModels(np.full(5, 0.2), rng.normal(size=(5, 6)), np.full(5, 0.1))
    save_models(models, folder / "models")
    arms = [{"id": f"article-{i:05d}", "x": rng.normal(size=6).round(6).tolist()} for i in range(20)]
    settings = Settings(
        store=str(folder / "log.db"),
        models=str(folder / "models"),
        recommenders=(RecommenderSpec("lcb", "thompson"),),
        learning=Learning(retrain_every=None),
    )
    service = Service(settings, open_store(settings.store, serve=True))
    service.start()
    raw = json.dumps({"user": "u-12", "arms": arms}).encode()
    asked = decode(DECISION, raw)
    id = msgspec.json.decode(await service.decide(asked))["decision_id"]
    raw_reward = json.dumps({"decision_id": id, "reward": 1.0}).encode()
    slot, user = service.slots.get(id), service.world.user("u-12")
    assert user is not None
    start, seq = user.state, service.world.seq
    decision, reward = service.decisions.decide(asked), service.rewards.build_event(id, slot, 1.0, None)
    assert isinstance(decision, Entry)

    def apply(entry: Entry) -> None:
        nonlocal seq
        seq += 1
        user.state = start  # else the posterior runs away
        service.applier.apply(Row(seq, *entry.row), entry.body)

    found = {
        "decode a decision": fastest(lambda: decode(DECISION, raw)),
        "decide": fastest(lambda: service.decisions.decide(asked)),
        "decode a reward": fastest(lambda: decode(REWARD, raw_reward)),
        "build the event of a reward": fastest(lambda: service.rewards.build_event(id, slot, 1.0, None)),
        "apply a decision": fastest(lambda: apply(decision)),
        "apply a reward": fastest(lambda: apply(reward)),
        f"append, per event of {BATCH}": time_append(service, [decision.row, reward.row]),
    }
    others = [structs.replace(asked, user=f"v-{i}") for i in range(100)]
    for i, one in enumerate(others):
        service.world.cache.admit(one.user, service.world.fold.start("lcb", 1, seq + i))
    found["decide, in a batch of 100"] = fastest(lambda: build_decisions(service, others, {}), n=1) / 100
    await service.journal.stop()
    service.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for name, microseconds in asyncio.run(measure(Path(folder))).items():
            print(f"{name:30} {microseconds:6.2f} us")


if __name__ == "__main__":
    main()
