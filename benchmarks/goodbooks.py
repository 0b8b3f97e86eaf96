"""Every algorithm on six readings of one log of ratings: labels and choices, each with three kinds of features.

    python benchmarks/goodbooks.py FOLDER [--seeds 3,4,5] [--algorithms lcb-auto,...] [--readings labels/one-hot,...]
                                   [--method queue] [--like 5] [--keep RESULTS [--only-kept]]

FOLDER is goodbooks-10k as `lcb import` writes it.  Each seed is a split of its own, with 10,900 training users and a
quarter of the users with 20 events as test users of 20 steps; algorithms whose number of classes is fixed have 30.  All
algorithms have their default settings.  Algorithms that need the true classes are left out.

With --keep, every run is written to the folder RESULTS as soon as it is done, and one that is there already is not
repeated: an interrupted benchmark goes on where it was.  With --only-kept nothing is run: the tables are made of the
runs that are there, and algorithms may have different seeds; each is compared with Population LinUCB on its own.

Two tables are printed, in Markdown: the gain over Population LinUCB in percent with its standard error, and the gain of
`lcb-auto` over the best of the other algorithms.  Errors are paired by user; a user tested by two seeds counts once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from timing import save

from lcb.arrays import Index
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


@dataclass(frozen=True, eq=False)
class Column:
    """The runs with one kind of labels and features."""

    reading: str
    runs: dict[str, dict[int, RunResult]]  # by algorithm and seed
    logged: dict[int, float]  # by seed, mean reward of the test users in the log
    test: dict[int, Index]  # by seed

    def combine(self, name: str, seeds: Sequence[int]) -> AlgorithmRewards:
        """Return the rewards of an algorithm over these seeds."""
        results = [self.runs[name][seed] for seed in seeds]
        used = [one.diagnostics for one in results if isinstance(one.diagnostics, LabelUse)]
        return AlgorithmRewards(
            name,
            {},
            np.array([one.rate for one in results]),
            np.array([self.logged[seed] for seed in seeds]),
            float(np.mean([one.training_seconds for one in results])),
            float(np.mean([one.serving_seconds for one in results])),
            max(one.megabytes for one in results),
            len(np.unique(np.concatenate([self.test[seed] for seed in seeds]))),
            combine_use(used) if used else None,
            results[0].why,
        )

    def share_seeds(self, name: str, other: str) -> list[int]:
        return sorted(self.runs[name].keys() & self.runs.get(other, {}).keys())


def evaluate(log: Log, reading: str, algorithms: Sequence[str], asked: argparse.Namespace) -> Column:
    """Return the runs of the algorithms over all seeds, with one kind of labels and features."""
    kind, features = reading.split("/")
    source = open_source(log, asked.method, kind, asked.like if kind == "labels" else None)
    plan = Plan(N_TRAIN, choose_sizes(source.n_events, N_STEPS)[1], N_STEPS, N_CLASSES, features)
    splits = {seed: split_users(source, plan, seed) for seed in asked.seeds}
    logged = {seed: source.logged_rate(split.test, N_STEPS) for seed, split in splits.items()}
    ready = {} if asked.only_kept else {seed: source.prepare(splits[seed].test, N_STEPS, seed) for seed in splits}
    runs: dict[str, dict[int, RunResult]] = {}
    for name in algorithms:
        found = runs[name] = {}
        try:
            for seed in splits:
                if asked.only_kept:
                    kept = find_kept(reading, seed, name, asked)
                    found |= {seed: read_result(kept)} if kept.exists() else {}
                else:
                    run = EvaluationRun(ready[seed], plan, splits[seed], seed, name, {})
                    found[seed] = run_or_read(run, reading, asked)
        except InputError as error:  # it needs arms without features, or rows of single events
            print(f"{reading}, {name}: left out; {error}", flush=True)
    return Column(reading, runs, logged, {seed: split.test for seed, split in splits.items()})


def find_kept(reading: str, seed: int, algorithm: str, asked: argparse.Namespace) -> Path:
    folder: Path = asked.keep
    return folder / f"{asked.method}-{reading}-{seed}-{algorithm}.npz".replace("/", "-")


def run_or_read(run: EvaluationRun, reading: str, asked: argparse.Namespace) -> RunResult:
    """Return the result of a run: kept from before, or of now."""
    kept = None if asked.keep is None else find_kept(reading, run.seed, run.algorithm, asked)
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


def describe(column: Column) -> list[dict[str, Any]]:
    """Return a row for each algorithm; that of lcb-auto has the comparison with the best of the others."""
    rows = []
    for name in column.runs:
        if seeds := column.share_seeds(name, POPULATION):
            own = column.combine(name, seeds).to_json(column.combine(POPULATION, seeds))
            rows.append({"reading": column.reading, **own, "diagnostics": None, "seeds": seeds})
    others = [row for row in rows if row["algorithm"] != AUTO]
    for row in rows:
        if row["algorithm"] == AUTO and others:
            best = max(others, key=lambda other: float(other["vs_population_percent"]))["algorithm"]
            seeds = column.share_seeds(AUTO, best)
            gain, error = column.combine(AUTO, seeds).gain_over(column.combine(best, seeds))
            row |= {"best_other": best, "over_best_percent": gain, "over_best_se": error, "over_best_seeds": seeds}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[3, 4, 5])
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=ALGORITHMS)
    parser.add_argument("--readings", type=lambda text: text.split(","), default=READINGS)
    parser.add_argument("--method", default="queue")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only-kept", action="store_true")
    parser.add_argument("--like", type=float, default=5.0)
    asked = parser.parse_args()
    if asked.only_kept and asked.keep is None:
        parser.error("--only-kept needs --keep RESULTS")
    log, rows = open_log(asked.folder), []
    algorithms = [*dict.fromkeys((*asked.algorithms, POPULATION))]
    for reading in asked.readings:
        rows += describe(evaluate(log, reading, algorithms, asked))
    save(f"goodbooks_{asked.method}", rows)
    print("\n| algorithm | " + " | ".join(asked.readings) + " |")
    print("|---" * (1 + len(asked.readings)) + "|")
    for name in algorithms:
        own = {row["reading"]: row for row in rows if row["algorithm"] == name}
        if own:
            print(f"| `{name}` | " + " | ".join(format_cell(own.get(reading)) for reading in asked.readings) + " |")
    print(f"\n| reading | best beside `{AUTO}` | `{AUTO}` above it, percent | seeds |\n|---|---|---|---|")
    for row in rows:
        if "best_other" in row:
            gain = f"{row['over_best_percent']:+.2f} ± {row['over_best_se']:.2f}"
            print(f"| {row['reading']} | `{row['best_other']}` | {gain} | {row['over_best_seeds']} |")


def format_cell(row: dict[str, Any] | None) -> str:
    """Return the gain, with the number of seeds if there are several."""
    if row is None:
        return "-"
    if row["algorithm"] == POPULATION:
        return f"relative CTR {row['relative_ctr']:.3f}"
    more = f" ({len(row['seeds'])})" if len(row["seeds"]) > 1 else ""
    return f"{row['vs_population_percent']:+.1f} ± {row['vs_se']:.1f}{more}"


if __name__ == "__main__":
    main()
