"""`Mixture` from the first user on, in generated worlds whose classes are known: regret against the true classes.

    python benchmarks/mixture.py [PART ...] [--shapes overlap ...] [--runs 20] [--seed 100] [--figures FOLDER]

shapes    classes overlap | zero | random | signed, sigma .1, 10, 20 and 50 steps a user
noise     the same with sigma .3 and .6, 20 steps
change    at user 500: a sixth class, an opposite class, five other classes; overlap before
drift     every class turns into another one, from user 250 to user 750
cost      CPU of a decision and of a departure (medians), and memory, with 1,000 to 1,000,000 past users

1000 users come one after another.  The truth is `PosteriorMean` over the true classes (`lcb-gt-mean`), which knows of
every change.  Ratios are of mean regrets over runs; ± is 2 standard errors over runs of the difference.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import save

from lcb import charts
from lcb.bandits.bandit import serve
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.evaluate.worlds.paper import SimulatedUsers, SimulatedWorld, equal_classes, paper_classes
from lcb.models import LatentModels
from lcb.recommenders.mixture import Mixture

D, N_CLASSES, N_USERS = 10, 5, 1000
SHAPES = ("overlap", "zero", "random", "signed")
Worlds = list[tuple[LatentModels, int]]  # classes, and for how many users


def make_classes(shape: str, noise: float, rng: np.random.Generator) -> LatentModels:
    beta = np.full((N_CLASSES, D), 0.1 if shape == "random" else 0.0)
    for h in range(N_CLASSES):
        chosen = (2 * h + np.arange(4)) % D if shape == "zero" else rng.choice(D, 4, replace=False)
        beta[h, chosen] = 0.5 * (rng.choice([-1, 1], 4) if shape == "signed" else 1)
    if shape == "overlap":
        return paper_classes(noise)
    if shape == "unit":
        beta = rng.standard_normal((N_CLASSES, D))
    return unit(beta, noise)


def unit(beta: np.ndarray, noise: float) -> LatentModels:
    return equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True), noise)


def change_classes(kind: str, rng: np.random.Generator) -> Worlds:
    before, half = paper_classes(), N_USERS // 2
    if kind == "all":
        return [(before, half), (make_classes("unit", 0.1, rng), half)]
    new = np.full(D, 0.1 if kind == "sixth" else -0.1)
    if kind == "sixth":
        new[[0, 3, 6, 9]] = 0.5
    else:
        new[[1, 4, 7]] = -0.6
    return [(before, half), (unit(np.vstack((before.beta, new / np.linalg.norm(new))), 0.1), half)]


def drift(rng: np.random.Generator) -> Worlds:
    start, end, n = paper_classes().beta, make_classes("unit", 0.1, rng).beta, 50
    turning = [(unit((1 - s) * start + s * end, 0.1), N_USERS // 2 // n) for s in (np.arange(n) + 0.5) / n]
    return [(paper_classes(), N_USERS // 4), *turning, (unit(end, 0.1), N_USERS // 4)]


def play(worlds: Worlds, n_steps: int, rng: np.random.Generator, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the regret of the mixture and of the truth, (users,) each, and the CPU seconds of the mixture."""
    mixture, serving, first, cpu = Mixture(D, rng=np.random.default_rng(seed)), np.random.default_rng(seed + 1), 0, 0.0
    ours, truths = [], []
    for models, n in worlds:
        users: SimulatedUsers = SimulatedWorld(models).draw(n, n_steps, rng)
        bandit = PosteriorMean(models)
        states = np.tile(bandit.start(), (n, 1))
        truths.append(users.regret(serve(bandit, states, users.contexts, users.rewards, serving)[1]))
        before = time.process_time()
        ours.append(users.regret(mixture.serve(range(first, first + n), users.contexts, users.rewards, serving)))
        cpu += time.process_time() - before
        first += n
    return np.concatenate(ours), np.concatenate(truths), cpu


def measure(
    name: str, make: Callable[[np.random.Generator], Worlds], seeds: range, n_steps: int = 20, later: int = 0
) -> tuple[dict[str, object], np.ndarray, np.ndarray]:
    """Print and return the ratio of regrets over the users from `later` on; also the mean regret of each user."""
    runs = []
    for seed in seeds:
        rng = np.random.default_rng((seed, 77))
        runs.append(play(make(rng), n_steps, rng, seed))
    ours, truth = (np.array([run[i] for run in runs]) for i in (0, 1))
    row: dict[str, object] = {
        "world": name,
        "runs": len(seeds),
        "cpu_seconds": float(np.mean([run[2] for run in runs])),
    }
    spans = {"ratio": later, "last_250": N_USERS - 250}
    for key, start in spans.items():
        a, b = ours[:, start:].mean(axis=1), truth[:, start:].mean(axis=1)
        row[key] = float(a.mean() / b.mean())
        row[f"{key}_error"] = float(2 * (a - b).std(ddof=1) / np.sqrt(len(a)) / b.mean()) if len(a) > 1 else None
    row["truth"] = float(truth[:, later:].mean())
    over = f"users from {later}" if later else "all users"
    print(
        f"{name:28} {over:15} {row['ratio']:.3f} ± {row['ratio_error'] or 0:.3f}   last 250 {row['last_250']:.3f} ± "
        f"{row['last_250_error'] or 0:.3f}   truth {row['truth']:.3f}   {row['cpu_seconds']:.2f} s CPU",
        flush=True,
    )
    return row, ours.mean(axis=0), truth.mean(axis=0)


def draw(ours: np.ndarray, truth: np.ndarray, title: str, file: Path) -> None:
    """Draw the regret per user, the mean over a sliding window of 40 users."""
    window = np.ones(40) / 40
    at = np.arange(20, N_USERS - 19, 20)
    curves = [
        charts.Curve(name, at.tolist(), np.convolve(values, window, "valid")[at - 20], np.zeros(len(at)))
        for name, values in (("lcb-mixture", ours), ("true classes", truth))
    ]
    charts.save(charts.regret_by_users(curves, f"{title}: means of 40 users"), file)


def measure_cost() -> list[dict[str, object]]:
    """Grow the number of past users; classes and hyperparameters come from the first 500."""
    rng, rows = np.random.default_rng(0), []
    users = SimulatedWorld(paper_classes()).draw(500, 20, rng)
    for n in (1_000, 10_000, 100_000, 1_000_000):
        tracemalloc.start()
        mixture = Mixture(D, rng=np.random.default_rng(0))
        mixture.serve(range(500), users.contexts, users.rewards, rng)
        mixture.start("last")
        seats = mixture.seats
        for u in range(501, n):
            mixture._position[u] = seats.add_user()
        more = np.arange(501, n)  # past users with the statistics of the first 500, seated as those are
        seats.rows[more], seats.left[more] = seats.rows[more % 500], seats.n_left + more - 500
        seats.n_left += len(more)
        for sample in seats.samples:
            sample.label[more] = sample.label[more % 500]
        memory = tracemalloc.get_traced_memory()[0] / n
        tracemalloc.stop()
        mixture.choose("last", users.contexts[0, 0], rng)  # the classes are described once after a departure
        times: dict[str, list[float]] = {"decision": [], "departure": [], "first": []}
        for t in range(200):
            before = time.process_time()
            decision = mixture.choose("last", users.contexts[t, 0], rng)
            times["decision"].append(time.process_time() - before)
            mixture.update("last", decision, 0.1)
        for t in range(50):
            before = time.process_time()
            mixture.seats.seat(mixture._position["last"])
            mixture._bandit = None
            times["departure"].append(time.process_time() - before)
            mixture.seats.unseat(mixture._position["last"])
            before = time.process_time()
            mixture.choose("last", users.contexts[t, 0], rng)
            times["first"].append(time.process_time() - before)
        row = {"past_users": n, **{f"{name}_us": 1e6 * float(np.median(each)) for name, each in times.items()}}
        rows.append({**row, "bytes_per_user": memory})
        print(
            f"{n:>9,} past users: a decision {row['decision_us']:.0f} µs of CPU, the first after a departure "
            f"{row['first_us']:.0f} µs, a departure {row['departure_us']:.0f} µs, {memory:.0f} bytes a past user",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["shapes", "noise", "change", "drift", "cost"])
    parser.add_argument("--shapes", nargs="*", default=SHAPES, choices=SHAPES)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=100, help="of the first run")
    parser.add_argument("--figures", type=Path, default=None)
    asked = parser.parse_args()
    seeds, rows = range(asked.seed, asked.seed + asked.runs), []
    for part in asked.parts:
        if part == "shapes":
            for shape in asked.shapes:
                for n_steps in (20, 10, 50):
                    name = f"{shape}, {n_steps} steps"
                    found = measure(name, lambda rng, s=shape: [(make_classes(s, 0.1, rng), N_USERS)], seeds, n_steps)
                    rows.append(found[0])
                    if asked.figures and (shape, n_steps) == ("overlap", 20):
                        draw(*found[1:], "1000 users from nothing", asked.figures / "mixture.png")
        elif part == "noise":
            for noise in (0.3, 0.6):
                for shape in asked.shapes:
                    make = lambda rng, s=shape, e=noise: [(make_classes(s, e, rng), N_USERS)]  # noqa: E731
                    rows.append(measure(f"{shape}, sigma {noise}", make, seeds)[0])
        elif part == "change":
            for kind in ("sixth", "opposite", "all"):
                found = measure(kind, lambda rng, k=kind: change_classes(k, rng), seeds, later=N_USERS // 2)
                rows.append(found[0])
                if asked.figures and kind != "opposite":
                    title = "A sixth class from user 500" if kind == "sixth" else "Five other classes from user 500"
                    draw(*found[1:], title, asked.figures / f"mixture-{kind}.png")
        elif part == "drift":
            found = measure("drift", drift, seeds, later=N_USERS // 4)
            rows.append(found[0])
            if asked.figures:
                draw(*found[1:], "Classes turn into others, users 250 to 750", asked.figures / "mixture-drift.png")
        elif part == "cost":
            rows += measure_cost()
        else:
            parser.error(f"unknown part {part!r}; the parts are shapes, noise, change, drift and cost")
    if set(asked.parts) == {"shapes", "noise", "change", "drift", "cost"}:
        save("mixture", rows)


if __name__ == "__main__":
    main()
