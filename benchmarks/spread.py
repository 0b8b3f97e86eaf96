"""Point classes and personal classes as people of a class differ more and more, in worlds that are known.

    python benchmarks/spread.py [--seeds 4] [--figure FILE.png]

Five classes have random rates for 12 arms.  A person's rate of an arm is Beta distributed around that of their class:
`spread` is the variance as a share of the largest possible, 0 if all people of a class are alike.  Every algorithm
learns from 3,000 past people with 40 random labels each, then serves 2,000 new people of the same world for 20 steps.
All have default settings; those whose number of classes is fixed are given the five.  What is measured is the mean true
rate of the arms chosen, divided by that of random choices, and its difference to that of `lcb-bonus` in percent, with
the standard error over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from zlib import crc32

import numpy as np
from timing import save

from lcb import charts
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.worlds.logged import LoggedWorld, serve_live
from lcb.event_log import EventLog

NAMES = ("lcb-personal", "mixed-model", "lcb-bonus", "lcb-mean")
BASE = "lcb-bonus"  # differences are to its reward in the same world
SPREADS = (0.0, 0.05, 0.1, 0.2, 0.4)
N_PAST, N_LABELS, N_NEW, N_STEPS = 3_000, 40, 2_000, 20


def draw_people(world: LoggedWorld, spread: float, n_users: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rates of people, (n_users, arms)."""
    mean = world.class_rates[rng.integers(0, world.n_classes, n_users)]
    if spread == 0:
        return mean
    size = 1 / spread - 1
    return rng.beta(size * mean, size * (1 - mean))


def measure(spread: float, seed: int) -> dict[str, float]:
    """Return, by algorithm, the mean rate of its choices over that of random choices."""
    world, rng = LoggedWorld(seed=seed), np.random.default_rng((seed, 1))
    x = np.eye(world.n_categories)
    past = draw_people(world, spread, N_PAST, rng)
    shown = rng.multinomial(N_LABELS, np.full(len(x), 1 / len(x)), N_PAST)
    clicked = rng.binomial(shown, past)
    task = Task(
        n_features=len(x),
        n_arms=len(x),
        n_steps=N_STEPS,
        n_users=N_NEW,
        n_classes=world.n_classes,
        reward_range=(0.0, 1.0),
        two_valued=True,
        history=EventLog.from_counts(x, clicked, shown - clicked),
    )
    new = draw_people(world, spread, N_NEW, rng)
    found = {}
    for name in NAMES:
        build_rng, serve_rng = np.random.default_rng((seed, crc32(name.encode()))).spawn(2)
        recommender = ALGORITHMS[name].build_for(task, build_rng, {})
        found[name] = float(serve_live(recommender, x, new, N_STEPS, serve_rng).mean() / new.mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent / "results" / "spread.png")
    asked = parser.parse_args()
    found = {spread: [measure(spread, seed) for seed in range(asked.seeds)] for spread in SPREADS}
    rows, curves = [], []
    for name in NAMES:
        values = np.array([[one[name] for one in found[spread]] for spread in SPREADS])
        base = np.array([[one[BASE] for one in found[spread]] for spread in SPREADS])
        mean, gain = values.mean(axis=1), 100 * (values / base - 1)
        percent, se = gain.mean(axis=1), gain.std(axis=1, ddof=1) / np.sqrt(asked.seeds)
        rows += [
            {"algorithm": name, "spread": s, "relative_ctr": m, "percent": p, "se": e}
            for s, m, p, e in zip(SPREADS, mean.tolist(), percent.tolist(), se.tolist(), strict=True)
        ]
        shown = [f"{m:8.3f} {p:+5.1f} ± {e:.1f} %" for m, p, e in zip(mean, percent, se, strict=True)]
        print(f"{name:18}" + "".join(shown))
        curves.append(charts.Curve(name, [100 * s for s in SPREADS], mean, np.full(len(mean), np.nan)))
    asked.figure.parent.mkdir(exist_ok=True)
    title = f"New people of five classes, by how much people of a class differ ({asked.seeds} worlds)"
    charts.save(
        charts.relative_ctr(curves, "spread within classes, percent of the largest possible", title), asked.figure
    )
    save("spread", rows)


if __name__ == "__main__":
    main()
