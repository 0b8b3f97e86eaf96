"""`lcb-mixture` on a log of ratings, users one after another as in figure 3c, beside algorithms that relearn.

    python benchmarks/mixture_goodbooks.py FOLDER [--seeds 3,4,5] [--users 2000] [--readings labels,choices] [--like 5]
                                           [--algorithms lcb-mixture,...] [--figures FOLDER]

FOLDER is goodbooks-10k as `lcb import` writes it; features are one-hot, a user has 20 steps.  The users of each seed
are those that figure 3c serves, in its order, and nobody is learned from before.  `lcb-auto` has 500 users of warm-up
and relearns after every 500, as often as the mixture refits once it forgets.  All algorithms have default settings.

Printed is the gain over Population LinUCB in percent, with its standard error, paired by user: all users, and those
after the first 1,000.

It takes long, so every part (one algorithm, seed and reading) is kept in benchmarks/results/parts and not played again;
delete a file there to play it again.  `--algorithms` plays only some of them; the table needs linucb-population.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
from timing import save

from lcb import charts
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.offline.log_sources import LogSource, ServingSetup, open_source
from lcb.evaluate.offline.outcomes import POPULATION
from lcb.evaluate.offline.split import Plan, split_users
from lcb.experiments.real_data import N_CLASSES, N_STEPS, split_sizes
from lcb.storage.files import write_whole
from lcb.storage.logs.log import open_log

NAMES = ("lcb-mixture", "lcb-auto", "club", POPULATION)
FIRST, EVERY, BLOCK = 1000, 500, 250  # users
PARTS = Path(__file__).parent / "results" / "parts"


def play(source: LogSource, name: str, order: np.ndarray, seed: int) -> np.ndarray:
    """Return the mean reward of every user, in the order they come."""
    features, x = source.features("one-hot", order[:EVERY])
    task = Task(
        n_features=features.n_features,
        n_arms=source.n_arms,
        n_steps=N_STEPS,
        n_users=len(order),
        n_classes=N_CLASSES,
        reward_range=source.reward_range,
        n_warmup_users=EVERY,
        retrain_every=EVERY,
        n_uniform_steps=0,
        two_valued=True,
    )
    own, serving = np.random.default_rng((seed, crc32(name.encode()))).spawn(2)
    recommender = ALGORITHMS[name].build_for(task, own, {})
    history = source.history(order[:1], x, features.names, None, own)
    return source.rates(recommender, order, ServingSetup(x, N_STEPS, history, seed, serving))[0]


def play_or_read(file: Path, play_it: Callable[[], np.ndarray], label: str) -> np.ndarray:
    """Return the rewards of a part: those of an earlier run, or played now and kept."""
    if file.exists():
        return np.load(file, allow_pickle=False)
    began = time.process_time()
    rates = play_it()
    file.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    np.save(out, rates.astype(np.float32))
    write_whole(file, out.getvalue())
    print(f"{label}: {rates.mean():.4f}, {time.process_time() - began:.0f} s CPU", flush=True)
    return np.load(file, allow_pickle=False)


def describe(reading: str, name: str, ours: np.ndarray, base: np.ndarray) -> dict[str, object]:
    """Print and return the gains of an algorithm over Population; rewards (seeds, users)."""
    row: dict[str, object] = {"reading": reading, "algorithm": name, "seeds": len(ours), "users": ours.shape[1]}
    for key, start in (("gain", 0), ("gain_later", FIRST)):
        a, b = ours[:, start:].astype(float), base[:, start:].astype(float)
        error = (a - b).std(ddof=1) / np.sqrt(a.size) / b.mean()
        row |= {key: 100 * (a.mean() / b.mean() - 1), f"{key}_error": 100 * error}
        row[f"{key}_by_seed"] = (100 * (a.mean(axis=1) / b.mean(axis=1) - 1)).tolist()
    print(
        f"{reading:8} {name:12} all {row['gain']:+.1f} ± {row['gain_error']:.1f} %   "
        f"after {FIRST:,} users {row['gain_later']:+.1f} ± {row['gain_later_error']:.1f} %",
        flush=True,
    )
    return row


def draw(reading: str, found: dict[str, np.ndarray], file: Path) -> None:
    """Draw clicks relative to Population LinUCB for each block of users; standard errors are paired by user."""
    base, curves = found[POPULATION], []
    n = base.shape[1] // BLOCK
    for name, rates in found.items():
        means, errors = [], []
        for i in range(n):
            ours, theirs = (one[:, i * BLOCK : (i + 1) * BLOCK].astype(float) for one in (rates, base))
            means.append(ours.mean() / theirs.mean())
            errors.append((ours - theirs).std(ddof=1) / np.sqrt(ours.size) / theirs.mean())
        curves.append(charts.Curve(name, [(i + 1) * BLOCK for i in range(n)], means, errors))
    words = "5 stars" if reading == "labels" else "choices"
    title = f"goodbooks-10k, {words}: clicks of every {BLOCK} users relative to Population LinUCB"
    charts.save(charts.relative_ctr(curves, "users so far", title), file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="3,4,5", help="of the orders of users")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--readings", default="labels,choices")
    parser.add_argument("--like", type=float, default=5.0, help="stars that are a click")
    parser.add_argument("--algorithms", default=",".join(NAMES))
    parser.add_argument("--figures", type=Path, default=None)
    asked = parser.parse_args()
    names, seeds = asked.algorithms.split(","), [int(seed) for seed in asked.seeds.split(",")]
    log, rows = open_log(str(asked.folder)), []
    for reading in asked.readings.split(","):
        source = open_source(log, "queue", reading, asked.like if reading == "labels" else None)
        plan = Plan(*split_sizes(source), N_STEPS, N_CLASSES, "one-hot")
        found: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for seed in seeds:
            order = split_users(source, plan, seed).test[: asked.users]
            for name in names:
                file = PARTS / f"mixture_goodbooks-{reading}-{len(order)}-{seed}-{name}.npy"
                label = f"{reading}, seed {seed}, {name}"
                found[name].append(play_or_read(file, lambda a=(source, name, order, seed): play(*a), label))
        if POPULATION not in found:
            continue
        rewards = {name: np.array(each) for name, each in found.items()}
        rows += [describe(reading, name, rewards[name], rewards[POPULATION]) for name in names if name != POPULATION]
        if asked.figures:
            draw(reading, rewards, asked.figures / f"mixture-goodbooks-{reading}.png")
    if rows:
        save("mixture_goodbooks", rows)


if __name__ == "__main__":
    main()
