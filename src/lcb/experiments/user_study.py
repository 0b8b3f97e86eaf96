"""The user study of Table 2 with simulated visitors: trains, tunes and compares recommenders.

Each seed is a news front with its own articles, past readers and classes.  All recommenders of a seed learn from the
same log; settings are tuned on seeds and visitors that no study uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.bandits.bandit import Bandit
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.demo.readers import NewsFront, draw_articles
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.algorithms.algorithm import Value
from lcb.evaluate.choice.candidates import Classes, build_bandit
from lcb.evaluate.choice.choose import choose, learn_chosen
from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.models import LatentModels
from lcb.progress import Progress, count_up, silent
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender
from lcb.runtime import parallel
from lcb.stats import UserStats

N_PAST, N_STEPS, N_OFFERED, N_ARTICLES = 4000, 20, 170, 500
N_FEW, N_MANY, N_STUDIES = 5, 1000, 1000  # visitors per recommender of a small and a large study; small studies
N_TUNING_SEEDS, N_TUNING = 4, 540  # seeds for tuning, and visitors of each: a multiple of _BLOCK
_LINUCB = {"width": (0.25, 0.0, 1.0, 4.0, 16.0, 48.0, 128.0), "ridge": (1.0, 0.1, 10.0)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {  # LinUCB and lcb have the same number of combinations
    "linucb-population": _LINUCB,
    "linucb-at-once": _LINUCB,
    "lcb": {"eta": (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0), "uniform": (0.0, 0.01, 0.05)},
    "lcb-mean": {},
    "lcb-auto": {},
    "lcb-bonus": {"bonus": (0.5, 0.25, 1.0)},
    "lcb-personal": {"bonus": (0.5, 0.0, 1.0)},
    "mixed-model": {"bonus": (0.5, 0.0, 1.0)},
}
_PERSONAL = {"lcb-personal": 10, "mixed-model": 1}  # classes
_TUNING = 0x74756E65  # "tune", the last number of a seed used for tuning
_BLOCK = 60  # visitors drawn at a time
_PAST_BLOCK = 500
OURS, OTHER, AT_ONCE = "lcb", "linucb-population", "linucb-at-once"

Tuned = dict[str, dict[str, Value]]  # by recommender


def tune_recommenders(seed: int, progress: Progress = silent, n_workers: int | None = None) -> dict[int, Tuned]:
    """Return the settings with the most clicks for each size of study; of equal ones, the first of the grid."""
    tries = [partial(_count_clicks, (seed, i, _TUNING)) for i in range(N_TUNING_SEEDS)]
    done = run_each(tries, "settings tried", progress, n_workers)
    best = {
        (n, name): int(np.argmax(np.sum([totals[n, name] for totals in done], axis=0)))
        for n, name in product((N_FEW, N_MANY), GRIDS)
    }
    return {n: {name: list_combinations(name)[best[n, name]] for name in GRIDS} for n in (N_FEW, N_MANY)}


def _count_clicks(seed: tuple[int, ...]) -> dict[tuple[int, str], Floats]:
    """Return, by size of study and recommender, the sum of click rates under each combination of settings.

    All combinations serve the same visitors; each small study starts with a newly trained recommender.
    """
    world, build, rng = prepare(seed)
    totals: dict[tuple[int, str], Floats] = {
        (n, name): np.zeros(len(list_combinations(name))) for n, name in product((N_FEW, N_MANY), GRIDS)
    }
    kept = {(name, i): build(name, s) for name in GRIDS for i, s in enumerate(list_combinations(name))}
    for _ in range(0, N_TUNING, _BLOCK):
        users = world.draw(_BLOCK, N_STEPS, rng)
        studies = [_take(users, np.arange(i, i + N_FEW)) for i in range(0, _BLOCK, N_FEW)]
        for name in GRIDS:
            for i, settings in enumerate(list_combinations(name)):
                totals[N_MANY, name][i] += measure_click_rates(name, kept[name, i], users, rng).sum()
                few = [measure_click_rates(name, build(name, settings), part, rng).sum() for part in studies]
                totals[N_FEW, name][i] += sum(few)
    return totals


def run_studies(
    seed: tuple[int, ...], tuned: Mapping[int, Tuned], n_studies: int
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Run the studies of one seed: `n_studies` small ones and a large one."""
    world, build, rng = prepare(seed)

    def new_study(n_each: int) -> dict[str, Floats]:
        recommenders = {name: build(name, settings) for name, settings in tuned[n_each].items()}
        return run_study(world, recommenders, n_each, rng)

    few = [new_study(N_FEW) for _ in range(n_studies)]
    return {name: np.array([one[name] for one in few]) for name in GRIDS}, new_study(N_MANY)


def run_study(
    world: NewsFront, recommenders: Mapping[str, Recommender], n_each: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Assign new visitors at random, `n_each` per recommender, and return the click-through rate of each."""
    assigned = rng.permutation(np.repeat(np.arange(len(recommenders)), n_each))
    rates = np.empty(len(assigned))
    for start in range(0, len(assigned), _BLOCK):
        block = assigned[start : start + _BLOCK]
        users = world.draw(len(block), N_STEPS, rng)
        for i, (name, recommender) in enumerate(recommenders.items()):
            mine = np.flatnonzero(block == i)
            if len(mine):
                rates[start + mine] = measure_click_rates(name, recommender, _take(users, mine), rng)
    return {name: rates[assigned == i] for i, name in enumerate(recommenders)}


def measure_click_rates(name: str, recommender: Recommender, users: SimulatedUsers, rng: np.random.Generator) -> Floats:
    """Serve new visitors and return the click-through rate of each, (B,)."""
    contexts, rewards = users.contexts, users.rewards
    if (
        name == AT_ONCE
    ):  # all visitors' step 1, then step 2, ...: each step is passed as a "user", which a pooled bandit ignores
        arms = recommender.serve(range(N_STEPS), contexts.swapaxes(0, 1), rewards.swapaxes(0, 1), rng).T
    else:
        arms = recommender.serve([object() for _ in rewards], contexts, rewards, rng)
    return np.asarray(np.take_along_axis(rewards, arms[..., None], axis=2)[..., 0].mean(axis=1))


def _take(users: SimulatedUsers, which: Index) -> SimulatedUsers:
    return SimulatedUsers(users.label[which], users.contexts[which], users.means[which], users.rewards[which])


def prepare(seed: tuple[int, ...]) -> tuple[NewsFront, Callable[[str, Settings], Recommender], np.random.Generator]:
    """Return a news front, a function that builds a recommender trained on its log, and the generator."""
    rng = np.random.default_rng(seed)
    world = NewsFront(draw_articles(N_ARTICLES, rng), N_OFFERED)
    log = draw_past_log(world, N_PAST, rng)
    return world, partial(_build_recommender, learn_classes(log, rng), log.stats.total, rng), rng


def learn_classes(log: EventLog, rng: np.random.Generator) -> dict[str, LatentModels]:
    """Learn, for each recommender of `GRIDS` that has classes, its classes from the log."""
    point = fit(log, rng=rng, n_threads=1).models  # the learner chooses likelihood and number of classes
    found = dict.fromkeys(("lcb", "lcb-mean", "lcb-bonus"), point)
    for name in [name for name in _PERSONAL if name in GRIDS]:
        found[name] = Classes(True, _PERSONAL[name]).learn_trial(log, rng)
    if "lcb-auto" in GRIDS:
        found["lcb-auto"] = learn_chosen(log, choose(log, rng=rng, n_steps=N_STEPS), rng=rng, n_threads=1).models
    return found


def draw_past_log(world: NewsFront, n_users: int, rng: np.random.Generator) -> EventLog:
    """Draw the log of past readers, who were offered one random article per step."""
    one = replace(world, n_arms=1)
    sizes = [min(_PAST_BLOCK, n_users - start) for start in range(0, n_users, _PAST_BLOCK)]
    past = [one.draw(size, N_STEPS, rng) for size in sizes]
    x = np.concatenate([users.contexts.reshape(-1, world.models.n_features) for users in past])
    reward = np.concatenate([users.rewards.ravel() for users in past])
    return EventLog.from_rows(np.repeat(np.arange(n_users), N_STEPS), x, reward, features=world.models.features)


def _build_recommender(
    models: Mapping[str, LatentModels], past: UserStats, rng: np.random.Generator, name: str, settings: Settings
) -> Recommender:
    values = {key: float(value) for key, value in settings.items()}
    if name in (OTHER, AT_ONCE):
        linucb = LinUCB(past.n_features, **values)
        return Pooled(linucb, state=linucb.train(past))

    def make(models: LatentModels) -> Bandit:
        if name == OURS:
            return GeneralizedThompson(models, values["eta"], values["uniform"])
        return build_bandit(models, values.get("bonus", models.provenance.get("bonus", 0.0)))

    return Latent(past.n_features, make, rng=rng, models=models[name], retrain_every=None)


def list_combinations(name: str) -> list[dict[str, Value]]:
    grid = GRIDS[name]
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def run_each(tasks: Sequence[Callable[[], Any]], what: str, progress: Progress, n_workers: int | None) -> list[Any]:
    return parallel.processes(_call, tasks, n_workers, count_up(progress, what, len(tasks)))


def _call(task: Callable[[], Any]) -> Any:
    return task()
