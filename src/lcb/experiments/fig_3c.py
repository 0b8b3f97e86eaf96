"""Figure 3c: relative CTR of users who come one after another.

There are no past users to train on.  LCB serves the first users by LinUCB, learns 30 classes from them and relearns
them as more users come.  In the paper's setting the first 5 of the 20 steps with every user are uniform, and only these
are learned from.  The line `lcb-mean, all steps` is a setting of ours: no uniform steps, classes learned from all
steps, and 0/1 rewards learned as clicks (Bernoulli).  Settings are tuned on a quarter of the users, who are not served.
The paper reports LCB about 5 % above CLUB and Population LinUCB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from lcb import charts
from lcb.arrays import Floats, Index
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS as ALL
from lcb.evaluate.algorithms import Settings, Task
from lcb.evaluate.algorithms.latent import build_relearning
from lcb.evaluate.algorithms.learning import learn_counted
from lcb.evaluate.offline.log_sources import LogSource, QueueSource, ServingSetup
from lcb.evaluate.offline.outcomes import AlgorithmRewards
from lcb.evaluate.offline.split import Plan, split_users
from lcb.experiments import real_data
from lcb.experiments.claims import Claim
from lcb.experiments.real_data import ALGORITHMS, N_CLASSES, N_STEPS, Data
from lcb.progress import Progress, count_up, silent
from lcb.recommenders.recommender import Recommender
from lcb.runtime import parallel

N_UNIFORM, N_BLOCKS = 5, 8  # phase 1 is the first block of users; classes are relearned after each block
ALL_STEPS = "lcb-mean, all steps"  # our setting, beside the paper's


@dataclass(frozen=True, eq=False)
class Figure3c:
    data: Data
    tuned: dict[int, dict[str, Settings]]
    n_runs: int
    block: int  # users in a block
    rates: dict[str, Floats]  # by algorithm, (runs, users) in the order they came
    logged_rate: Floats  # (runs, blocks)

    def outcomes(self, blocks: slice) -> list[AlgorithmRewards]:
        """Return the rewards of all algorithms in these blocks."""
        users = slice(blocks.start * self.block, blocks.stop * self.block)
        logged = self.logged_rate[:, blocks].mean(axis=1)
        return [AlgorithmRewards(name, {}, rate[:, users], logged, 0.0, 0.0, 0.0) for name, rate in self.rates.items()]


@dataclass(frozen=True, eq=False)
class _Run:
    source: LogSource
    features: str
    algorithm: str
    settings: Settings
    order: Index
    block: int
    seed: int


def run(data: Data, n_runs: int = 3, seed: int = 0, progress: Progress = silent) -> Figure3c:
    if data.tuned is not None:
        raise InputError("fig-3c tunes on other users than fig-3a, so it cannot use these settings; leave them out")
    source = data.open(progress)
    n_tuning, n_come = real_data.split_sizes(source)
    seeds = range(seed, seed + n_runs)
    plan = Plan(n_tuning, n_come, N_STEPS, N_CLASSES, data.features)
    settings = real_data.tuned_settings(data, source, ALGORITHMS, plan, seeds, progress)
    block = n_come // N_BLOCKS
    orders = [
        split_users(source, plan, s).test[: block * N_BLOCKS] for s in seeds
    ]  # without the users that settings are tuned on
    lines = (ALL_STEPS, *ALGORITHMS)
    runs = [
        _Run(source, data.features, name, settings[s].get(name, {}), order, block, s)
        for s, order in zip(seeds, orders, strict=True)
        for name in lines
    ]
    done = parallel.processes(_play, runs, None, count_up(progress, "algorithms and seeds", len(runs)))
    rates = {name: np.array(done[i :: len(lines)]) for i, name in enumerate(lines)}
    logged = [[source.logged_rate(part, N_STEPS) for part in np.split(order, N_BLOCKS)] for order in orders]
    return Figure3c(data, settings, n_runs, block, rates, np.array(logged))


def _play(run: _Run) -> Floats:
    """Return the mean reward of every user, in order of arrival; features are fitted on the users of phase 1."""
    features, x = run.source.features(run.features, run.order[: run.block])
    task = Task(
        n_features=features.n_features,
        n_arms=run.source.n_arms,
        n_steps=N_STEPS,
        n_users=len(run.order),
        n_classes=N_CLASSES,
        reward_range=run.source.reward_range,
        n_warmup_users=run.block,
        retrain_every=run.block,
        n_uniform_steps=N_UNIFORM,
        two_valued=isinstance(run.source, QueueSource) and run.source.labels.levels is not None,
    )
    own, serving = np.random.default_rng((run.seed, crc32(run.algorithm.encode()))).spawn(2)
    if run.algorithm == ALL_STEPS:
        task = replace(task, n_uniform_steps=0)
        recommender: Recommender = build_relearning(task, PosteriorMean, learn_counted(task), own)
    else:
        recommender = ALL[run.algorithm].build_for(task, own, run.settings)
    history = run.source.history(run.order[:1], x, features.names, None, own)
    return run.source.rates(recommender, run.order, ServingSetup(x, N_STEPS, history, run.seed, serving))[0]


def draw(result: Figure3c) -> Any:
    found = real_data.build_ctr_curves(*_split_by_block(result))
    return charts.relative_ctr(found, "users so far", f"Relative CTR of every {result.block:,} users, as they come")


def to_json(result: Figure3c) -> dict[str, Any]:
    block = result.block
    sizes = {"users": block * N_BLOCKS, "warmup_users": block, "retrain_every": block, "uniform_steps": N_UNIFORM}
    about = {**result.data.to_json(), **sizes, "seeds": result.n_runs, "classes": N_CLASSES}
    return {"settings": about, "tuned": result.tuned, "after_warmup": real_data.list_results(_skip_warmup(result))}


def check_claims(result: Figure3c) -> list[Claim]:
    late, found = _skip_warmup(result), []
    why = "In the paper's setting a quarter of LCB's steps are uniform, and its classes are learned from these alone."
    for ours in (ALL_STEPS, "lcb-gibbs", "lcb", "lcb-mean"):
        for other, words in (("club", "CLUB"), ("linucb-population", "Population LinUCB")):
            what = f"{ours} is above {words} after phase 1"
            found.append(real_data.claim_gain(late, ours, other, what, "by about 5 %", why))
    return found


def summarise(result: Figure3c) -> list[str]:
    return real_data.format_table("users so far", *_split_by_block(result)) + [
        claim.format_line() for claim in check_claims(result)
    ]


def _split_by_block(result: Figure3c) -> tuple[list[int], list[list[AlgorithmRewards]]]:
    """Return, for each block, the number of users up to its end, and the rewards in it."""
    blocks = range(N_BLOCKS)
    return [result.block * (i + 1) for i in blocks], [result.outcomes(slice(i, i + 1)) for i in blocks]


def _skip_warmup(result: Figure3c) -> Sequence[AlgorithmRewards]:
    return result.outcomes(slice(1, N_BLOCKS))
