"""How often planted point classes come out as so many point classes, by the choice of `lcb learn`.

    python benchmarks/planted.py [--seeds 10] [--first 0] [--users 300] [--labels 6]

Each class likes 8 arms at rates from 0.05 to 0.9 in an order of its own; a user has so many labels of every arm.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import save

from lcb.evaluate.choice.choose import Choice, choose
from lcb.event_log import EventLog

N_ARMS = 8


def choose_planted(n_classes: int, seed: int, n_users: int, n_labels: int) -> Choice:
    rng = np.random.default_rng((seed, n_classes))
    classes = rng.permuted(np.tile(np.linspace(0.05, 0.9, N_ARMS), (n_classes, 1)), axis=1)
    clicked = rng.binomial(n_labels, classes[rng.integers(0, n_classes, n_users)])
    return choose(EventLog.from_counts(np.eye(N_ARMS), clicked, n_labels - clicked), rng=rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--labels", type=int, default=6)
    asked = parser.parse_args()
    rows = []
    for n_classes in (1, 2, 3, 5):
        seeds = range(asked.first, asked.first + asked.seeds)
        found = [choose_planted(n_classes, seed, asked.users, asked.labels).classes for seed in seeds]
        n_right = sum((one.personal, one.n_classes) == (False, n_classes) for one in found)
        wrong = [str(one) for one in found if (one.personal, one.n_classes) != (False, n_classes)]
        rows.append({"classes": n_classes, "right": n_right, "of": asked.seeds, "wrong": wrong})
        print(rows[-1], flush=True)
    save("planted", rows)


if __name__ == "__main__":
    main()
