"""Starts of EM with 30 classes and 6 features: how often the default rule reaches the best of 16, and what it costs.

    python benchmarks/starts.py --seeds 20 --first 100

Prints a line per world.  A start "reaches" the best if its log posterior is at most 1e-4 nats per reward below: what
200,000 users lose against the truth by estimation alone.  The rule begins with the same starts.  Costs are in EM steps
over 20,000 users.  In `clicks` classes overlap and every start ends elsewhere; in `apart` most starts end together.
"""

from __future__ import annotations

import argparse
import warnings
from unittest.mock import patch

import numpy as np
from timing import save
from workloads import make

from lcb.errors import ConvergenceWarning
from lcb.learners.em import gaussian
from lcb.learners.shared.starts import kmeans_starts
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import UserStats

N_USERS, N_CLASSES, CLOSE = 20_000, 30, 1e-4
warnings.simplefilter("ignore", ConvergenceWarning)


def draw_apart(seed):
    """Users with 10 rewards; weights of the classes are normal, and so is the noise."""
    rng = np.random.default_rng(seed)
    user, x = np.repeat(np.arange(N_USERS), 10), rng.standard_normal((10 * N_USERS, 6))
    beta, label = rng.standard_normal((N_CLASSES, 6)), rng.integers(N_CLASSES, size=N_USERS)
    reward = np.einsum("nd,nd->n", x, beta[label[user]]) + rng.standard_normal(len(user))
    return UserStats.from_rows(user, x, reward)


def draw_clicks(seed):
    return make("M", N_USERS, seed=seed).stats()


def fit_counted(stats, **settings):
    """Fit; return the log posterior and the number of steps."""
    steps, plain = [], gaussian.step

    def count(*given):
        steps.append(1)
        return plain(*given)

    with patch.object(gaussian, "step", count):
        found = gaussian.fit(stats, N_CLASSES, n_threads=1, **settings)
    return found.trace[-1], len(steps)


def compare(stats, variance, seed):
    prior, shared = Prior.scaled(stats), variance == "shared"
    settings = {"variance": variance, "prior": prior}
    with parallel.threads(1):
        labels = list(kmeans_starts(stats, N_CLASSES, prior, 16, np.random.default_rng(seed)))
    starts = [gaussian._fit_labels(stats, label, prior, shared) for label in labels]
    rng = np.random.default_rng(0)
    full = [fit_counted(stats, start=start, n_starts=0, rng=rng, **settings) for start in starts]
    best = max(value for value, _ in full)
    row = {"steps_of_16": float(np.sum([steps for _, steps in full]))}
    for name, n_starts in (("4", 4), ("rule", None)):
        value, steps = fit_counted(stats, n_starts=n_starts, rng=np.random.default_rng(seed), **settings)
        row |= {f"steps_{name}": steps, f"below_{name}": (best - value) / stats.n_events}
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    given = parser.parse_args()
    result = {}
    for world, draw, variance in (("apart", draw_apart, "class"), ("clicks", draw_clicks, "shared")):
        rows = [compare(draw(seed), variance, seed) for seed in range(given.first, given.first + given.seeds)]
        result[world] = rows
        total = np.sum([row["steps_of_16"] for row in rows])
        for name in ("4", "rule"):
            below = np.array([row[f"below_{name}"] for row in rows])
            share = np.sum([row[f"steps_{name}"] for row in rows]) / total
            print(
                f"{world}, {name}: reaches the best of 16 starts in {(below <= CLOSE).sum()} of {len(rows)} seeds "
                f"(at most {below.max():.0e} nats per reward below), with {share:.2f} of {total / len(rows):.0f} steps"
            )
    save("starts", result)


if __name__ == "__main__":
    main()
