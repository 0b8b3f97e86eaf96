"""Every algorithm on six readings of one log of ratings: labels and choices, each with three kinds of features.

    python benchmarks/goodbooks.py FOLDER [--seeds 3,4,5] [--algorithms lcb-auto,...] [--readings labels/one-hot,...]
                                   [--method queue] [--like 5] [--keep RESULTS]

FOLDER is goodbooks-10k as `lcb import` writes it.  Each seed is a split of its own, with 10,900 training users and a
quarter of the users with 20 events as test users of 20 steps; algorithms whose number of classes is fixed have 30.  All
algorithms have their default settings.  Algorithms that need the true classes are left out.

With --keep, every run is written to the folder RESULTS as soon as it is done, and one that is there already is not
repeated: an interrupted benchmark goes on where it was.

Two tables are printed, in Markdown: the gain over Population LinUCB in percent with its standard error, and the gain of
`lcb-auto` over the best of the other algorithms.  Errors are paired by user; a user tested by two seeds counts once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from timing import save

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS as EVERY
from lcb.evaluate.offline.evaluate_log import EvaluationRun, RunResult, run_on_split
from lcb.evaluate.offline.label_use import LabelUse, combine_use
from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.outcomes import POPULATION, AlgorithmRewards
from lcb.evaluate.offline.split import Plan, choose_sizes, split_users
from lcb.storage.logs.log import Log, open_log

AUTO = "lcb-auto"
KNOWING = {"lcb-gt", "lcb-gt-mean", "exp4p-enum", "maillard-mannor", "umucb"}  # need the true classes or all contexts
OTHERS = tuple(name for name in EVERY if name not in {AUTO, POPULATION, *KNOWING} and not name.startswith("exp4p-"))
ALGORITHMS = (AUTO, *OTHERS, POPULATION)
READINGS = tuple(f"{kind}/{features}" for kind in ("labels", "choices") for features in ("one-hot", "pca:6+1", "pca:6"))
N_TRAIN, N_STEPS, N_CLASSES = 10_900, 20, 30
Best = tuple[str, float, float]


def evaluate(log: Log, reading: str, algorithms: Sequence[str], asked: argparse.Namespace) -> list[AlgorithmRewards]:
    """Return the rewards of the algorithms over all seeds, with one kind of labels and features."""
    kind, features = reading.split("/")
    source = open_source(log, asked.method, kind, asked.like if kind == "labels" else None)
    plan = Plan(N_TRAIN, choose_sizes(source.n_events, N_STEPS)[1], N_STEPS, N_CLASSES, features)
    splits = {seed: split_users(source, plan, seed) for seed in asked.seeds}
    logged = np.array([source.logged_rate(split.test, N_STEPS) for split in splits.values()])
    n_different = len(np.unique(np.concatenate([split.test for split in splits.values()])))
    outcomes = []
    ready = {seed: source.prepare(split.test, N_STEPS, seed) for seed, split in splits.items()}
    for name in algorithms:
        try:
            results = [
                run_or_read(EvaluationRun(ready[seed], plan, splits[seed], seed, name, {}), reading, asked)
                for seed in splits
            ]
        except InputError as error:  # it needs arms without features, or rows of single events
            print(f"{reading}, {name}: left out; {error}", flush=True)
            continue
        outcomes.append(_combine(name, results, logged, n_different))
    return outcomes


def run_or_read(run: EvaluationRun, reading: str, asked: argparse.Namespace) -> RunResult:
    """Return the result of a run: kept from before, or of now."""
    name = f"{asked.method}-{reading}-{run.seed}-{run.algorithm}.npz".replace("/", "-")
    kept = None if asked.keep is None else asked.keep / name
    result = read_result(kept) if kept is not None and kept.exists() else run_on_split(run)
    seconds = result.training_seconds + result.serving_seconds
    said = f"{reading}, seed {run.seed}, {run.algorithm}: {np.nanmean(result.rate):.4f} in {seconds:.0f} s"
    print(said, *result.why, sep="; ", flush=True)
    if kept is not None:
        write_result(kept, result)
    return result


def write_result(path: Path, result: RunResult) -> None:
    used = result.diagnostics
    assert isinstance(used, LabelUse)
    about = {**vars(result), "rate": None, "diagnostics": vars(used)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, rate=result.rate, about=json.dumps(about))


def read_result(path: Path) -> RunResult:
    with np.load(path) as kept:
        about = json.loads(str(kept["about"]))
        return RunResult(
            **{
                **about,
                "rate": kept["rate"],
                "diagnostics": LabelUse(**about["diagnostics"]),
                "why": tuple(about["why"]),
            }
        )


def _combine(name: str, results: Sequence[RunResult], logged: np.ndarray, n_different: int) -> AlgorithmRewards:
    used = [one.diagnostics for one in results if isinstance(one.diagnostics, LabelUse)]
    return AlgorithmRewards(
        name,
        {},
        np.array([one.rate for one in results]),
        logged,
        float(np.mean([one.training_seconds for one in results])),
        float(np.mean([one.serving_seconds for one in results])),
        max(one.megabytes for one in results),
        n_different,
        combine_use(used) if used else None,
    )


def describe(reading: str, outcomes: Sequence[AlgorithmRewards], found: Best | None) -> list[dict[str, Any]]:
    """Return a row for each algorithm; that of lcb-auto has the comparison with the best of the others."""
    population = next(one for one in outcomes if one.algorithm == POPULATION)
    more = (
        {}
        if found is None
        else {AUTO: dict(zip(("best_other", "over_best_percent", "over_best_se"), found, strict=True))}
    )
    return [{"reading": reading, **one.to_json(population), **more.get(one.algorithm, {})} for one in outcomes]


def compare_with_best(outcomes: Sequence[AlgorithmRewards]) -> Best | None:
    """Return the best algorithm beside lcb-auto, the gain of lcb-auto over it in percent, and its standard error."""
    auto = next((one for one in outcomes if one.algorithm == AUTO), None)
    others = [one for one in outcomes if one.algorithm != AUTO]
    if auto is None or not others:
        return None
    best = max(others, key=lambda one: np.nanmean(one.rate))
    return best.algorithm, *auto.gain_over(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[3, 4, 5])
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=ALGORITHMS)
    parser.add_argument("--readings", type=lambda text: text.split(","), default=READINGS)
    parser.add_argument("--method", default="queue")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--like", type=float, default=5.0)
    asked = parser.parse_args()
    log, rows, against = open_log(asked.folder), [], []
    algorithms = [*dict.fromkeys((*asked.algorithms, POPULATION))]
    for reading in asked.readings:
        outcomes = evaluate(log, reading, algorithms, asked)
        found = compare_with_best(outcomes)
        rows += describe(reading, outcomes, found)
        against.append((reading, found))
    save(f"goodbooks_{asked.method}", rows)
    print("\n| algorithm | " + " | ".join(asked.readings) + " |")
    print("|---" * (1 + len(asked.readings)) + "|")
    for name in algorithms:
        own = {row["reading"]: row for row in rows if row["algorithm"] == name}
        if not own:
            continue
        cells = ["-"] * len(asked.readings)
        for i, reading in enumerate(asked.readings):
            row = own.get(reading)
            if row is not None and name == POPULATION:
                cells[i] = f"relative CTR {row['relative_ctr']:.3f}"
            elif row is not None:
                cells[i] = f"{row['vs_population_percent']:+.1f} ± {row['vs_se']:.1f}"
        print(f"| `{name}` | " + " | ".join(cells) + " |")
    print(f"\n| reading | best beside `{AUTO}` | `{AUTO}` above it, percent |\n|---|---|---|")
    for reading, found in against:
        if found is not None:
            print(f"| {reading} | `{found[0]}` | {found[1]:+.2f} ± {found[2]:.2f} |")


if __name__ == "__main__":
    main()
