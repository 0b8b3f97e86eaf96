"""Table 2: the user study, with simulated visitors.

Visitors of a generated news front are assigned at random to one of the recommenders and offered 20 articles, one at a
time, each chosen among 170 with features of 21 categories.  Both recommenders have learned from the same log of past
readers, and have settings tuned for each study on visitors who never come.  LCB keeps its classes; Population LinUCB
goes on learning from visitor to visitor.  Visitors come one after another, as in the paper's Algorithm 1;
`linucb-at-once` is Population LinUCB whose visitors take their steps in turn, as on a web site.  The paper had 5
visitors of each; here 5 and 1000, and the study of 5 is repeated to see what so few can show.  How far the kinds of
readers differ is generated, not measured: compare directions, not sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lcb import charts, parallel
from lcb.bandits.bandit import Bandit
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.clicks import EventLog
from lcb.demo.readers import NewsFront, articles
from lcb.evaluate.algorithms import Settings
from lcb.evaluate.algorithms.algorithm import Value
from lcb.evaluate.two_groups import Group, compare_rates
from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.events import Floats
from lcb.experiments.claims import Claim
from lcb.learners import fit
from lcb.models import LatentModels
from lcb.progress import Progress, silent
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender
from lcb.stats import Index, UserStats

N_PAST, N_STEPS, N_OFFERED, N_ARTICLES = 4000, 20, 170, 500
N_FEW, N_MANY, N_STUDIES = 5, 1000, 1000  # visitors per recommender in the two studies; studies of few, over all seeds
N_TUNING_SEEDS, N_TUNING = 4, 540  # visitors of each, whole blocks of them
PAPER = {"linucb-population": Group(5, 0.196, 0.096), "lcb": Group(5, 0.380, 0.076)}
_LINUCB = {"width": (0.25, 0.0, 1.0, 4.0, 16.0, 48.0, 128.0), "ridge": (1.0, 0.1, 10.0)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {  # equally many combinations of LinUCB and of lcb
    "linucb-population": _LINUCB,
    "linucb-at-once": _LINUCB,
    "lcb": {"eta": (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0), "gamma": (0.0, 0.01, 0.05)},
    "lcb-mean": {},
}
_TUNING = 0x74756E65  # in a seed: "tune"
_BLOCK = 60  # visitors drawn at a time
_PAST_BLOCK = 500
_OURS, _OTHER, _AT_ONCE = "lcb", "linucb-population", "linucb-at-once"

Tuned = dict[str, dict[str, Value]]  # by recommender


@dataclass(frozen=True, eq=False)
class Table2:
    about: dict[str, Any]
    tuned: dict[int, Tuned]  # by visitors per recommender
    few: dict[str, Floats]  # by recommender, rates (seeds, studies, 5)
    many: dict[str, Floats]  # (seeds, 1000)

    def first(self) -> list[tuple[str, dict[str, Group]]]:
        """The paper's study, then ours of the first seed."""
        few = {name: Group.of_rates(rates[0, 0]) for name, rates in self.few.items()}
        many = {name: Group.of_rates(rates[0]) for name, rates in self.many.items()}
        titles = ("the paper", "simulated", "simulated")
        return [(f"{t}, {g[_OURS].n:,} visitors each", g) for t, g in zip(titles, (PAPER, few, many), strict=True)]

    def gains(self, rates: Mapping[str, Floats], other: str = _OTHER) -> Floats:
        """By seed, the CTR of lcb in all studies of a size over Population LinUCB's, less 1."""
        ours, theirs = (rates[name].reshape(len(rates[name]), -1).mean(axis=1) for name in (_OURS, other))
        return np.asarray(ours / theirs - 1)


@dataclass(frozen=True)
class Repeated:
    """What studies of few visitors show, as shares of all of them."""

    n_studies: int
    ahead: float  # lcb has the higher mean
    told_apart: float  # and the interval of the difference is above 0
    misled: float  # the interval is below 0
    covered: float  # the interval holds the difference in the mean of all studies
    low: float  # differences of 95 % of the studies lie between
    high: float


def repeated(result: Table2) -> Repeated:
    ours, other = (result.few[name].reshape(-1, result.few[name].shape[-1]) for name in (_OURS, _OTHER))
    intervals = [compare_rates(a, b) for a, b in zip(ours, other, strict=True)]
    mean, low, high = np.array([interval for interval in intervals if interval is not None]).T
    ends = np.quantile(mean, [0.025, 0.975])
    return Repeated(
        len(mean), float((mean > 0).mean()), float((low > 0).mean()), float((high < 0).mean()),
        float(((low <= mean.mean()) & (mean.mean() <= high)).mean()), float(ends[0]), float(ends[1]),
    )  # fmt: skip


def run(n_runs: int = 10, seed: int = 0, progress: Progress = silent, n_workers: int | None = None) -> Table2:
    """`n_runs` seeds, each with its own articles, past readers, classes and visitors."""
    tuned = tune(seed, progress, n_workers)
    n_studies = -(-N_STUDIES // n_runs)
    plays = [partial(_play, (seed, i), tuned, n_studies) for i in range(n_runs)]
    done = _each(plays, "seeds", progress, n_workers)
    few = {name: np.array([small[name] for small, _ in done]) for name in GRIDS}
    many = {name: np.array([large[name] for _, large in done]) for name in GRIDS}
    about = {
        "steps": N_STEPS, "offered": N_OFFERED, "articles": N_ARTICLES, "past_readers": N_PAST, "few_visitors": N_FEW,
        "many_visitors": N_MANY, "studies_of_few": n_studies * n_runs, "seeds": n_runs, "seed": seed,
    }  # fmt: skip
    return Table2(about, tuned, few, many)


def tune(seed: int, progress: Progress = silent, n_workers: int | None = None) -> dict[int, Tuned]:
    """By the size of the study, the best rate of each grid, of equals the first; seeds and visitors are its own."""
    tries = [partial(_try_all, (seed, i, _TUNING)) for i in range(N_TUNING_SEEDS)]
    done = _each(tries, "settings tried on seeds of their own", progress, n_workers)
    best = {
        (n, name): int(np.argmax(np.sum([totals[n, name] for totals in done], axis=0)))
        for n, name in product((N_FEW, N_MANY), GRIDS)
    }
    return {n: {name: _combinations(name)[best[n, name]] for name in GRIDS} for n in (N_FEW, N_MANY)}


def _try_all(seed: tuple[int, ...]) -> dict[tuple[int, str], Floats]:
    """The clicks of every combination, all on the same visitors; in studies of few it begins anew for each study."""
    world, trained, rng = _prepared(seed)
    totals: dict[tuple[int, str], Floats] = {
        (n, name): np.zeros(len(_combinations(name))) for n, name in product((N_FEW, N_MANY), GRIDS)
    }
    kept = {(name, i): trained(name, s) for name in GRIDS for i, s in enumerate(_combinations(name))}
    for _ in range(0, N_TUNING, _BLOCK):
        users = world.draw(_BLOCK, N_STEPS, rng)
        studies = [_part(users, np.arange(i, i + N_FEW)) for i in range(0, _BLOCK, N_FEW)]
        for name in GRIDS:
            for i, settings in enumerate(_combinations(name)):
                totals[N_MANY, name][i] += _rates(name, kept[name, i], users, rng).sum()
                few = [_rates(name, trained(name, settings), part, rng).sum() for part in studies]
                totals[N_FEW, name][i] += sum(few)
    return totals


def _play(
    seed: tuple[int, ...], tuned: Mapping[int, Tuned], n_studies: int
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """One seed: the studies of few visitors, each from what the log taught, and the one of many."""
    world, trained, rng = _prepared(seed)

    def new_study(n_each: int) -> dict[str, Floats]:
        recommenders = {name: trained(name, settings) for name, settings in tuned[n_each].items()}
        return study(world, recommenders, n_each, rng)

    few = [new_study(N_FEW) for _ in range(n_studies)]
    return {name: np.array([one[name] for one in few]) for name in GRIDS}, new_study(N_MANY)


def study(
    world: NewsFront, recommenders: Mapping[str, Recommender], n_each: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """New visitors come one after another, each assigned at random; every recommender gets `n_each` of them."""
    assigned = rng.permutation(np.repeat(np.arange(len(recommenders)), n_each))
    rates = np.empty(len(assigned))
    for start in range(0, len(assigned), _BLOCK):
        block = assigned[start : start + _BLOCK]
        users = world.draw(len(block), N_STEPS, rng)
        for i, (name, recommender) in enumerate(recommenders.items()):
            mine = np.flatnonzero(block == i)
            if len(mine):
                rates[start + mine] = _rates(name, recommender, _part(users, mine), rng)
    return {name: rates[assigned == i] for i, name in enumerate(recommenders)}


def _rates(name: str, recommender: Recommender, users: SimulatedUsers, rng: np.random.Generator) -> Floats:
    """The click-through rate of each of these visitors, all new, (B,)."""
    contexts, rewards = users.contexts, users.rewards
    if name == _AT_ONCE:  # the first step of all, then the second: to one bandit for all nobody is anybody
        arms = recommender.serve(range(N_STEPS), contexts.swapaxes(0, 1), rewards.swapaxes(0, 1), rng).T
    else:
        arms = recommender.serve([object() for _ in rewards], contexts, rewards, rng)
    return np.asarray(np.take_along_axis(rewards, arms[..., None], axis=2)[..., 0].mean(axis=1))


def _part(users: SimulatedUsers, which: Index) -> SimulatedUsers:
    return SimulatedUsers(users.label[which], users.contexts[which], users.means[which], users.rewards[which])


def _prepared(seed: tuple[int, ...]) -> tuple[NewsFront, Callable[[str, Settings], Recommender], np.random.Generator]:
    """A news front, and how a recommender is made that has learned from its log."""
    rng = np.random.default_rng(seed)
    world = NewsFront(articles(N_ARTICLES, rng), N_OFFERED)
    log = past_log(world, N_PAST, rng)
    models = fit(log, rng=rng, n_threads=1).models  # likelihood and number of classes are left to the learner
    return world, partial(_trained, models, log.stats.total, rng), rng


def past_log(world: NewsFront, n_users: int, rng: np.random.Generator) -> EventLog:
    """The log of past readers who were offered articles at random."""
    one = replace(world, n_arms=1)
    sizes = [min(_PAST_BLOCK, n_users - start) for start in range(0, n_users, _PAST_BLOCK)]
    past = [one.draw(size, N_STEPS, rng) for size in sizes]
    x = np.concatenate([users.contexts.reshape(-1, world.models.n_features) for users in past])
    reward = np.concatenate([users.rewards.ravel() for users in past])
    return EventLog.from_rows(np.repeat(np.arange(n_users), N_STEPS), x, reward, features=world.models.features)


def _trained(
    models: LatentModels, past: UserStats, rng: np.random.Generator, name: str, settings: Settings
) -> Recommender:
    values = {key: float(value) for key, value in settings.items()}
    if name in (_OTHER, _AT_ONCE):
        linucb = LinUCB(models.n_features, **values)
        return Pooled(linucb, state=linucb.train(past))

    def make(models: LatentModels) -> Bandit:
        return GeneralizedThompson(models, values["eta"], values["gamma"]) if name == _OURS else PosteriorMean(models)

    return Latent(models.n_features, make, rng=rng, models=models, retrain_every=None)


def _combinations(name: str) -> list[dict[str, Value]]:
    grid = GRIDS[name]
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _each(tasks: Sequence[Callable[[], Any]], what: str, progress: Progress, n_workers: int | None) -> list[Any]:
    progress(what, 0, len(tasks))
    return parallel.processes(_call, tasks, n_workers, lambda n: progress(what, n, len(tasks)))


def _call(task: Callable[[], Any]) -> Any:
    return task()


def draw(result: Table2) -> Any:
    panels = [
        charts.StudyPanel(title, [(name, _known(one.mean), one.deviation) for name, one in groups.items()])
        for title, groups in result.first()
    ]
    return charts.studies(panels, "click-through rate", "CTR of the user study, mean and deviation over visitors")


def to_json(result: Table2) -> dict[str, Any]:
    return {
        "settings": result.about,
        "tuned": result.tuned,
        "studies": [
            {
                "study": title,
                "recommenders": {name: vars(one) for name, one in groups.items()},
                "difference": _interval(groups),
            }
            for title, groups in result.first()
        ],
        "many": [
            {
                "recommenders": {name: vars(one) for name, one in groups.items()},
                "difference": _interval(groups),
            }
            for groups in _by_seed(result)
        ],
        "repeated": vars(repeated(result)),
    }


def claims(result: Table2) -> list[Claim]:
    intervals = [_interval(groups) for groups in _by_seed(result)]
    n_above = sum(interval["low"] > 0 for interval in intervals)
    mean, shown = np.mean([one["mean"] for one in intervals]), repeated(result)
    few, many = result.gains(result.few), result.gains(result.many)
    paper = _interval(PAPER)
    return [
        Claim(
            f"CTR of lcb above Population LinUCB, {N_MANY:,} visitors each", f"{paper['mean']:+.3f}, 5 visitors each",
            f"{mean:+.3f}; 95 % interval above 0 with {n_above} of {len(intervals)} seeds", n_above == len(intervals),
            "A study of so many visitors does not tell the two apart.",
        ),
        Claim(
            f"the same as a share of Population LinUCB's, {N_MANY:,} visitors each", f"{100 * _ratio(PAPER):+.0f} %",
            _percent(many), many.mean() >= _ratio(PAPER),
            "Over many visitors Population LinUCB, tuned to a wide bonus, stays with what was just opened: it follows "
            "the visitor at hand, as long as they come one after another. With visitors at once lcb is "
            f"{_percent(result.gains(result.many, _AT_ONCE))} above it.",
        ),
        Claim(
            f"the same, {N_FEW} visitors each, mean of {shown.n_studies:,} studies", f"{100 * _ratio(PAPER):+.0f} %",
            _percent(few), few.mean() >= _ratio(PAPER),
            "How far the kinds of readers differ is generated, and decides the size.",
        ),
        Claim(
            f"lcb ahead in a study of {N_FEW} visitors each", "in its one study",
            f"in {100 * shown.ahead:.1f} % of {shown.n_studies:,}; 95 % interval above 0 in "
            f"{100 * shown.told_apart:.0f} %", shown.ahead >= 0.95,
            "So few visitors are of too few kinds: the deviation over visitors of Population LinUCB is large.",
        ),
    ]  # fmt: skip


def summary(result: Table2) -> list[str]:
    """Our numbers beside the paper's, what few visitors can show, then what the paper says."""
    studies = result.first()
    lines = [f"{'visitors each':19}" + "".join(f"{groups[_OURS].n:>20,}" for _, groups in studies)]
    lines[0] += "   (the first the paper's)"
    for name in result.many:
        cells = [_plus_minus(groups[name]) if name in groups else "-" for _, groups in studies]
        lines.append(f"{name:19}" + "".join(f"{cell:>20}" for cell in cells))
    found = [_interval(groups) for _, groups in studies]
    lines.append(f"{'lcb above':19}" + "".join(f"{one['mean']:>+20.3f}" for one in found))
    lines.append(f"{'  95 %, Welch':19}" + "".join(f"{_ends(one['low'], one['high']):>20}" for one in found))
    lines.append(f"{'  as a share':19}" + "".join(f"{100 * _ratio(groups):>+18.0f} %" for _, groups in studies))
    shown = repeated(result)
    lines += [
        f"{shown.n_studies:,} studies of {N_FEW} visitors each: lcb ahead in {100 * shown.ahead:.1f} %, its 95 % "
        f"interval above 0 in {100 * shown.told_apart:.1f} %, below 0 in {100 * shown.misled:.1f} %;",
        f"  the difference is {_ends(shown.low, shown.high)} in 95 % of them; their intervals hold its mean in "
        f"{100 * shown.covered:.1f} %",
    ]
    for n, tuned in result.tuned.items():
        words = [f"{name} {' '.join(f'{key} {value:g}' for key, value in s.items())}" for name, s in tuned.items() if s]
        lines.append(f"tuned for {n:,} visitors each: {', '.join(words)}")
    return lines + [claim.line() for claim in claims(result)]


def _by_seed(result: Table2) -> list[dict[str, Group]]:
    """The study of many visitors with each seed."""
    n_seeds = len(result.many[_OURS])
    return [{name: Group.of_rates(rates[i]) for name, rates in result.many.items()} for i in range(n_seeds)]


def _interval(groups: Mapping[str, Group]) -> dict[str, float]:
    """How far lcb is above Population LinUCB, with Welch's 95 % interval."""
    found = groups[_OURS].above(groups[_OTHER])
    assert found is not None
    return dict(zip(("mean", "low", "high"), found, strict=True))


def _ratio(groups: Mapping[str, Group]) -> float:
    return _known(groups[_OURS].mean) / _known(groups[_OTHER].mean) - 1


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _plus_minus(one: Group) -> str:
    return f"{_known(one.mean):.3f} ± {_known(one.deviation):.3f}"


def _ends(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}"


def _percent(shares: Floats) -> str:
    """The mean over seeds, with its 95 % interval where there are several."""
    error = 196 * shares.std(ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else None
    return f"{100 * shares.mean():+.0f} %" + ("" if error is None else f" ± {error:.0f} %")
