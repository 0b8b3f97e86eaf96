"""Shared by the figures on real data: the log, the split of its users, the algorithms and their settings.

The settings of every algorithm are tuned on training users alone, for every seed, with the same number of combinations
for all algorithms (`evaluate/tuning/tune_log.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lcb import charts
from lcb.errors import InputError
from lcb.evaluate.algorithms import NEWER, Settings, check_settings
from lcb.evaluate.offline.evaluate_log import evaluate_log
from lcb.evaluate.offline.labels import Reading, default_reading
from lcb.evaluate.offline.log_sources import LogSource, open_source
from lcb.evaluate.offline.outcomes import POPULATION, AlgorithmRewards
from lcb.evaluate.offline.split import Plan
from lcb.evaluate.tuning.tune_log import tune_seeds
from lcb.experiments.claims import Claim
from lcb.progress import Progress, silent
from lcb.storage.logs.log import open_log

N_STEPS, N_CLASSES = 20, 30
PAPERS = ("lcb-gibbs", "club", "linucb-population", "linucb-individual", "random")
ALGORITHMS = ("lcb-mean", "lcb", *PAPERS)
WITH_NEWER = (*NEWER, *ALGORITHMS)


@dataclass(frozen=True)
class Data:
    """The log of an experiment, and how to read it."""

    path: str
    reading: Reading | None = None  # None: labels if the log has them, else choices
    like: float | None = None
    features: str = "one-hot"
    tuned: Mapping[int, Mapping[str, Settings]] | None = None  # by seed and algorithm, from an earlier run

    def open(self, progress: Progress = silent) -> LogSource:
        log = open_log(self.path, progress=progress)
        return open_source(log, "queue", self.reading or default_reading(log, self.like), self.like)

    def to_json(self) -> dict[str, Any]:
        return {"reading": self.reading, "like": self.like, "features": self.features}


def split_sizes(source: LogSource) -> tuple[int, int]:
    """Return the numbers of test users (a quarter of those with enough events) and of training users (the others)."""
    able = int((source.n_events >= N_STEPS).sum())
    if able < 80:
        raise InputError(f"only {able} users have {N_STEPS} labelled events; the figures need at least 80 of them")
    n_test = min(able // 4, 10_000)
    return n_test, able - n_test


def tuned_settings(
    data: Data, source: LogSource, algorithms: Sequence[str], plan: Plan, seeds: Sequence[int], progress: Progress
) -> dict[int, dict[str, Settings]]:
    """Return settings by seed and algorithm: those given, or tuned on that seed's training users."""
    if data.tuned is None:
        return tune_seeds(source, algorithms, plan, seeds, progress)
    for seed in seeds:
        missing = [name for name in algorithms if name not in data.tuned.get(seed, {})]
        if missing:
            raise InputError(f"the given settings lack {missing[0]} for seed {seed}; leave them out to tune again")
    return {seed: {name: data.tuned[seed][name] for name in algorithms} for seed in seeds}


def parse_tuned(document: Any, source: str) -> dict[int, dict[str, Settings]]:
    """Read the tuned settings from the JSON of a figure on real data."""
    try:
        return {int(seed): check_settings(own) for seed, own in document["result"]["tuned"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{source} has no settings; give the JSON that fig-3a, fig-3b or fig-3c wrote") from None


def evaluate_seeds(
    source: LogSource,
    algorithms: Sequence[str],
    plan: Plan,
    settings: Mapping[int, Mapping[str, Settings]],
    progress: Progress = silent,
) -> list[AlgorithmRewards]:
    """Evaluate the algorithms over the seeds of `settings`, each seed with its own settings."""
    seeds = sorted(settings)
    return evaluate_log(
        source, algorithms, plan, settings=settings, n_seeds=len(seeds), seed=seeds[0], progress=progress
    ).outcomes


def compute_gain(outcomes: Sequence[AlgorithmRewards], name: str, other: str) -> tuple[float, float]:
    """Return the gain of one algorithm over another in percent, and its standard error."""
    by_name = {outcome.algorithm: outcome for outcome in outcomes}
    return by_name[name].gain_over(by_name[other])


def claim_gain(outcomes: Sequence[AlgorithmRewards], name: str, other: str, what: str, paper: str, why: str) -> Claim:
    """Return the claim that one algorithm gains over another; it holds if the 95 % interval is above 0."""
    percent, error = compute_gain(outcomes, name, other)
    return Claim(what, paper, format_gain(percent, error), holds=percent - 1.96 * error > 0, why=why)


def list_results(outcomes: Sequence[AlgorithmRewards]) -> list[dict[str, Any]]:
    """Return the results as rows for JSON."""
    population = next(outcome for outcome in outcomes if outcome.algorithm == POPULATION)
    return [outcome.to_json(population) for outcome in outcomes]


def build_ctr_curves(at: Sequence[float], outcomes: Iterable[Sequence[AlgorithmRewards]]) -> list[charts.Curve]:
    """Return one curve per algorithm; `outcomes` has the rewards of all algorithms at each x of `at`."""
    return [
        charts.Curve(several[0].algorithm, at, [one.relative_ctr for one in several], [one.se for one in several])
        for several in zip(*outcomes, strict=True)
    ]


def format_table(head: str, at: Sequence[float], outcomes: Iterable[Sequence[AlgorithmRewards]]) -> list[str]:
    """Return a table of relative CTR: a line per algorithm, a column per x of `at`."""
    lines = [f"{head:19}" + "".join(f"{place:>9,}" for place in at)]
    for several in zip(*outcomes, strict=True):
        lines.append(f"{several[0].algorithm:19}" + "".join(f"{one.relative_ctr:9.3f}" for one in several))
    return lines


def format_gain(percent: float, error: float) -> str:
    return f"{percent:+.1f} % (95 %: {percent - 1.96 * error:+.1f} to {percent + 1.96 * error:+.1f})"
