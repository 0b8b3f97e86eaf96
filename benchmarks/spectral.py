"""How near Spectral Experts comes to the classes, and what it costs.

    python benchmarks/spectral.py [--seeds 5] [--json FILE] [--figure FILE.svg]

Errors are the largest distance of a class to its estimate (mean and worst over seeds), times are CPU seconds of
one fit, moments included.  A case with a target fails when its worst seed misses it.  `--figure` draws the mean
errors of the simulation against the number of rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workloads_spectral import Rows, clicks, max_error, simulation

from lcb.charts import bars, save
from lcb.errors import ConvergenceWarning, LCBError
from lcb.learners.em import gaussian as em
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral.moments import Form, Moments
from lcb.models import LatentModels
from lcb.stats import UserStats

Learner = Callable[[Rows, np.random.Generator], LatentModels]


def _spectral(form: Form, **settings: Any) -> Learner:
    def learn(rows: Rows, rng: np.random.Generator) -> LatentModels:
        moments = Moments.from_rows(rows.user, rows.x, rows.reward, form=form)
        return spectral.fit(moments, len(rows.beta), rng=rng, **settings).models

    return learn


def _em(rows: Rows, rng: np.random.Generator) -> LatentModels:
    return em.fit(UserStats.from_rows(rows.user, rows.x, rows.reward), len(rows.beta), rng=rng).models


LEARNERS: dict[str, Learner] = {
    "pooled, as published": _spectral("pooled", centred=False, matching=False),
    "pooled": _spectral("pooled"),
    "pooled + polish": _spectral("pooled", polish=True),
    "grouped, plain": _spectral("grouped", centred=False, matching=False),
    "grouped": _spectral("grouped"),
    "grouped + polish": _spectral("grouped", polish=True),
    "EM": _em,
}

# workload, users, rewards per user, learner, target
CASES: list[tuple[str, int, int, str, float | None]] = [
    ("simulation", 1_000, 20, "grouped, plain", None),
    ("simulation", 1_000, 20, "grouped", 0.2),
    ("simulation", 1_000, 20, "grouped + polish", 0.03),
    ("simulation", 7_500, 20, "pooled, as published", None),
    ("simulation", 7_500, 20, "pooled", 0.2),
    ("simulation", 7_500, 20, "pooled + polish", 0.03),
    ("clicks", 100_000, 5, "grouped, plain", None),
    ("clicks", 100_000, 5, "grouped", 0.1),
    ("clicks", 100_000, 5, "EM", None),
]
SIZES = (50, 250, 1_000, 4_000, 16_000)  # users x 20 rewards, for the figure
DRAWN = ("EM", "grouped", "pooled", "pooled, as published")


def measure(workload: str, n_users: int, n_steps: int, learner: str, n_seeds: int) -> dict[str, Any]:
    errors, seconds = [], []
    for seed in range(n_seeds):
        rows = {"simulation": simulation, "clicks": clicks}[workload](n_users, n_steps, seed)
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                models = LEARNERS[learner](rows, np.random.default_rng(seed))
        except LCBError:
            continue  # too few rows for this learner
        seconds.append(time.process_time() - start)
        errors.append(max_error(models.beta, rows.beta))
    case = {"workload": workload, "users": n_users, "rows": n_users * n_steps, "learner": learner, "runs": len(errors)}
    if errors:
        case |= {"error": float(np.mean(errors)), "worst": max(errors), "cpu_seconds": float(np.median(seconds))}
    return case


def draw(n_seeds: int, path: str) -> list[dict[str, Any]]:
    cases = [measure("simulation", size, 20, learner, n_seeds) for learner in DRAWN for size in SIZES]
    shown = [case for case in cases if case["runs"]]
    chart = bars(
        [(f"{case['learner']} · {case['rows']:,} rows", case["error"]) for case in shown],
        "largest distance of a class to its estimate (log scale; dashed: 0.2)",
        title="Error against the number of rows, 20 per user",
        reference=0.2,
        log=True,
    )
    save(chart, path)
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--figure", metavar="FILE")
    options = parser.parse_args()
    em.fit(UserStats.from_rows([0, 1], np.ones((2, 1)), [0.0, 1.0]), 1, rng=np.random.default_rng(0))  # compile first
    print(
        f"{'workload':12} {'users':>8} {'rows':>8}  {'learner':22} {'error':>7} {'worst':>7} {'target':>7} {'cpu s':>6}"
    )
    cases, missed = [], 0
    for workload, n_users, n_steps, learner, target in CASES:
        case = measure(workload, n_users, n_steps, learner, options.seeds) | {"target": target}
        met = target is None or (case["runs"] == options.seeds and case["worst"] < target)
        missed += not met
        cases.append(case)
        _print(case, "" if met else "MISSED")
    if options.figure:
        for case in (drawn := draw(options.seeds, options.figure)):
            _print(case | {"target": None})
        cases += drawn
    if options.json:
        Path(options.json).write_text(json.dumps({"seeds": options.seeds, "cases": cases}, indent=1) + "\n")
    return 1 if missed else 0


def _print(case: dict[str, Any], verdict: str = "") -> None:
    place = f"{case['workload']:12} {case['users']:>8,} {case['rows']:>8,}  {case['learner']:22}"
    if not case["runs"]:
        print(place, "refused", flush=True)
        return
    target = "" if case["target"] is None else f"{case['target']:g}"
    print(
        f"{place} {case['error']:7.3f} {case['worst']:7.3f} {target:>7} {case['cpu_seconds']:6.2f} {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
