"""Clicks: a Bernoulli likelihood beside Gaussians, where it helps and where not.

    python benchmarks/clicks.py [--figure FILE]

C   5 classes, 6 topics, P(click) = .05 + beta . x, features anywhere on the positive unit sphere
F   the same classes, arms are the 6 topics themselves (a fixed set: counts per arm are enough)
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from timing import save
from workloads import largest_error

from lcb import charts
from lcb.errors import ConvergenceWarning
from lcb.event_log import EventLog
from lcb.learners.em import bernoulli
from lcb.learners.em import gaussian as em

CASES = (
    ("C", 100_000, 5),
    ("C", 20_000, 20),
    ("C", 4_000, 100),
    ("F", 100_000, 5),
    ("F", 20_000, 20),
    ("F", 4_000, 100),
)


def clicks(kind: str, n_users: int, n_rows: int, seed: int) -> tuple[EventLog, np.ndarray]:
    rng = np.random.default_rng(seed)
    beta = np.full((5, 6), 0.02)
    beta[np.arange(5), np.arange(5)] = 0.6
    user = np.repeat(np.arange(n_users), n_rows)
    label = rng.integers(5, size=n_users)[user]
    if kind == "C":
        x = rng.standard_normal((len(user), 6)) ** 2
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    else:
        x = np.eye(6)[rng.integers(6, size=len(user))]
    p = np.clip(0.05 + np.einsum("nd,nd->n", x, beta[label]), 0.01, 0.99)
    return EventLog.from_rows(user, x, (rng.random(len(user)) < p) - 0.05), beta


def main(figure: str | None, seeds: int = 3) -> None:
    rows = []
    learners = {
        "bernoulli": lambda log, rng: bernoulli.fit(log, 5, rng=rng),
        "gaussian, shared variance": lambda log, rng: em.fit(log.stats, 5, rng=rng, variance="shared"),
        "gaussian, own variances": lambda log, rng: em.fit(log.stats, 5, rng=rng),
    }
    for kind, n_users, n_rows in CASES:
        for name, learn in learners.items():
            errors, cpu = [], []
            for seed in range(seeds):
                log, beta = clicks(kind, n_users, n_rows, seed)
                before = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    models = learn(log, np.random.default_rng(seed)).models
                cpu.append(time.process_time() - before)
                errors.append(largest_error(models.beta, beta))
            rows.append(
                {"data": kind, "users": n_users, "rows": n_rows, "learner": name, "mean_error": float(np.mean(errors)),
                 "worst_error": max(errors), "cpu_seconds": float(np.mean(cpu))}
            )  # fmt: skip
            print(
                f"{kind} {n_users:7,} users x {n_rows:3}  {name:26} largest error {np.mean(errors):.3f} "
                f"(worst of {seeds} seeds {max(errors):.3f})  {np.mean(cpu):6.1f} CPU s",
                flush=True,
            )
    save("clicks", rows)
    if figure:
        draw(rows, figure)


def draw(rows: list[dict[str, object]], figure: str) -> None:
    bars = [
        (f"{row['learner']} · {row['rows']} rewards", float(row["mean_error"]))  # type: ignore[arg-type]
        for row in rows
        if row["data"] == "C"
    ]
    charts.save(charts.bars(bars, "largest error of a class", "Classes learned from clicks, features anywhere"), figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", help="draw the errors here")
    main(parser.parse_args().figure)
