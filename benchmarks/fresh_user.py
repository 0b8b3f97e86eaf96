"""How soon is a person the service has never met served well?  Measured through HTTP, on a socket.

Classes are learned from 4,000 generated readers who were offered articles at random (the demo's world).  Then fresh
readers come, 20 steps each, the same readers and articles for every service:

    lcb           the learned classes, a class drawn from the posterior (Thompson)
    lcb-mean      the learned classes, the posterior mean
    lcb-gt        the true classes, as nobody has them, beside lcb; lcb-mean-gt beside lcb-mean
    population    one LinUCB for everybody, after as many other readers

    python benchmarks/fresh_user.py [USERS]          default 300

Regret is the click probability lost against the best of the 20 articles offered; intervals are 95 %, over readers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from timing import save

from lcb.arrays import Floats
from lcb.demo import story as demo
from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.models import LatentModels
from lcb.storage.models.folder import save_models

N_STEPS = 20
AT_ONCE = 8
SHOWN = (1, 2, 3, 5, 10, 15, 20)


def serve(given: dict[str, Any]) -> None:
    """The service, in a process of its own."""
    from lcb.serve.config.recommenders import RecommenderSpec
    from lcb.serve.config.settings import Learning, Settings
    from lcb.serve.server import run

    recommenders = (RecommenderSpec(**given.pop("recommender")),)
    settings = Settings(port=0, recommenders=recommenders, learning=Learning(retrain_every=None), pages=False, **given)
    run(settings, ready=lambda address: print(address, flush=True))


@contextmanager
def serving(folder: Path, name: str, recommender: dict[str, Any], models: LatentModels | None) -> Iterator[str]:
    """The address of a service with an empty log."""
    given: dict[str, Any] = {"store": str(folder / f"{name}.db"), "recommender": {"name": name, **recommender}}
    if models is not None:
        save_models(models, folder / name)
        given["models"] = str(folder / name)
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", json.dumps(given)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("http"):
                yield line.strip()
                break
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def visits(address: str, prefix: str, users: SimulatedUsers) -> Floats:
    """Every reader through all steps, some readers at a time; the regret of each step, (B, T)."""
    arms = np.zeros(users.contexts.shape[:2], np.int64)
    room = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as http:

        async def one(i: int) -> None:
            async with room:
                for t, context in enumerate(users.contexts[i]):
                    offered = [{"id": str(a), "x": x.tolist()} for a, x in enumerate(context)]
                    answer = await http.post("/v1/decisions", json={"user": f"{prefix}{i}", "arms": offered})
                    made = answer.raise_for_status().json()
                    arms[i, t] = int(made["arm"])
                    reward = {"decision_id": made["decision_id"], "reward": float(users.rewards[i, t, arms[i, t]])}
                    (await http.post("/v1/rewards", json=reward)).raise_for_status()

        await asyncio.gather(*map(one, range(len(users.label))))
    taken = np.take_along_axis(users.means, arms[..., None], axis=2)[..., 0]
    return np.asarray(users.means.max(axis=2) - taken)


def interval(values: Floats) -> tuple[float, float]:
    """Mean, and half of its 95 % interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))


def main(n_users: int) -> None:
    rng = np.random.default_rng(0)
    world = demo.build_world(rng)
    learned = demo.fit_classes(demo.simulate_past_log(world, demo.N_PAST, rng), rng).models
    true = replace(world.models, likelihood="bernoulli", levels=(0.0, 1.0))
    fresh, others = world.draw(n_users, N_STEPS, rng), world.draw(n_users, N_STEPS, rng)
    services: dict[str, tuple[dict[str, Any], LatentModels | None]] = {
        "lcb": ({"bandit": "thompson"}, learned),
        "lcb-mean": ({"bandit": "posterior-mean"}, learned),
        "lcb-gt": ({"bandit": "thompson"}, true),
        "lcb-mean-gt": ({"bandit": "posterior-mean"}, true),
        "population": ({"bandit": "linucb", "scope": "everyone"}, None),
    }
    regret: dict[str, Floats] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (recommender, models) in services.items():
            with serving(Path(folder), name, recommender, models) as address:
                if name == "population":
                    asyncio.run(visits(address, "other", others))
                regret[name] = asyncio.run(visits(address, "fresh", fresh))
    best = float(fresh.means.max(axis=2).mean())
    print(f"{n_users} fresh readers, {N_STEPS} decisions each; the best article is opened with probability {best:.3f}")
    print(f"{learned.n_classes} classes learned from {demo.N_PAST} readers; regret per decision at a step:")
    print(f"{'':21}" + "".join(f"{t:>14}  " for t in SHOWN) + f"{'all':>14}")
    rows = []
    pairs = {"lcb less lcb-gt": ("lcb", "lcb-gt"), "lcb-mean less its gt": ("lcb-mean", "lcb-mean-gt")}
    shown = {**regret, **{name: regret[a] - regret[b] for name, (a, b) in pairs.items()}}
    for name, values in shown.items():
        cells = [interval(values[:, t - 1]) for t in SHOWN] + [interval(values.mean(axis=1))]
        print(f"{name:21}" + "  ".join(f"{mean:6.3f} ±{half:6.3f}" for mean, half in cells))
        rows.append(
            {"name": name, "steps": [*SHOWN, "all"], "mean": [c[0] for c in cells], "half": [c[1] for c in cells]}
        )
    last = {name: 1 - values[:, -5:].mean() / best for name, values in regret.items()}
    print("of the best, over decisions 16 to 20: " + ", ".join(f"{name} {share:.1%}" for name, share in last.items()))
    save("fresh_user", {"n_users": n_users, "best": best, "regret": rows, "of_the_best_16_to_20": last})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(json.loads(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
