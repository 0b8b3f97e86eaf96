"""Evaluation over items: the arms are the items that a test user has labels for, each offered until taken.

Test users have at least 3 labels for every step; half of such users are tested, at most 10,000, and all others are
learned from.  Item effects, rates of items and categories, features and classes come from training users only.  Every
algorithm serves the same users on the same labels; each label is used once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.evaluate.choice.item_queues import LABELS_PER_STEP, ItemQueues, draw_item_queues, lower_steps, serve_classes
from lcb.evaluate.items.choose_classes import choose_classes, learn_classes
from lcb.evaluate.items.favour import UNKNOWN
from lcb.evaluate.items.item_features import choose_specs, count_features, learn_item_features, list_specs
from lcb.evaluate.items.item_use import ItemUse
from lcb.evaluate.items.labels import ItemLabels
from lcb.evaluate.items.serving import serve_individual, serve_population, serve_scores
from lcb.evaluate.offline.history import need_statistics_memory
from lcb.evaluate.offline.label_use import combine_use
from lcb.evaluate.offline.outcomes import POPULATION, AlgorithmRewards, Evaluation
from lcb.learners.effects.factors import learn_factors
from lcb.learners.effects.learn import start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.progress import Progress, count_up, silent
from lcb.runtime import parallel
from lcb.words import format_count

_SHRINK = 10.0  # rewards of the mean that a rate starts with
_MF_FACTORS = 5
_MOST_TESTED = 10_000
_SPLIT, _SERVE, _LEARN, _FEATURES = 0x1C, 0x1D, 0x1E, 0x1F  # parts of the seed
ITEM_ALGORITHMS = {
    "lcb-auto": "classes and item effects; features, classes and bonus chosen on held-out training users",
    "lcb-auto-no-effects": "the same without item effects",
    "popularity": "the items of the highest mean reward, (total + 10 mean) / (count + 10)",
    "category-popularity": "the same rate of each category; an item has the mean of its categories",
    "linucb-population": "one LinUCB for all users",
    "linucb-population-effects": "the same beside item effects",
    "linucb-individual": "a LinUCB for each user",
    "linucb-individual-effects": "the same beside item effects",
    "matrix-factorisation": f"{_MF_FACTORS} factors of items and users, and item effects",
    "random": "items in random order",
}
_DRAWN = "clicks are items that users took, among candidates that the evaluation put beside them"


@dataclass(frozen=True, eq=False)
class ItemPlan:
    """The sizes of an evaluation over items."""

    n_steps: int = 20
    n_train_users: int | None = None
    n_test_users: int | None = None
    n_classes: int | None = None
    features: str | None = None
    algorithms: Sequence[str] = tuple(ITEM_ALGORITHMS)


def evaluate_items(
    labels: ItemLabels,
    plan: ItemPlan,
    *,
    n_seeds: int = 3,
    seed: int = 0,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Run every algorithm, and Population LinUCB, on the same users of a log, once per seed."""
    names = [*dict.fromkeys((*plan.algorithms, POPULATION))]
    unknown = [name for name in names if name not in ITEM_ALGORITHMS]
    if unknown:
        raise InputError(f"{unknown[0]} does not choose among items; choose from {', '.join(ITEM_ALGORITHMS)}")
    if not labels.names:
        names = [name for name in names if name != "category-popularity"]
    n_steps = lower_steps(labels.n_events, plan.n_steps)
    n_users = plan.n_train_users or int((labels.n_events > 0).sum())
    sizes = (len(labels.names), len(labels.inputs))
    most = max(count_features(spec, *sizes) for spec in list_specs(labels, plan.features))
    n_at_once = min(n_seeds, n_workers or parallel.n_cores())
    need_statistics_memory(n_users, len(labels.ids), most, 3 * len(labels.user), n_at_once)
    runs = [_Run(labels, plan, names, n_steps, seed + i) for i in range(n_seeds)]
    done = parallel.processes(_run_seed, runs, n_workers, count_up(progress, "seeds", n_seeds))
    logged = np.array([one.logged for one in done])
    n_different = len(np.unique(np.concatenate([one.test for one in done])))
    outcomes = [
        AlgorithmRewards(
            algorithm=name,
            settings={},
            rate=np.array([one.rate[name] for one in done]),
            logged_rate=logged,
            training_seconds=float(np.mean([one.seconds[name][0] for one in done])),
            serving_seconds=float(np.mean([one.seconds[name][1] for one in done])),
            megabytes=0.0,
            n_users=n_different,
            diagnostics=combine_use([one.use for one in done]),
            why=done[0].why.get(name, ()),
        )
        for name in names
    ]
    notes = list(labels.notes)
    if n_steps < plan.n_steps:
        able = int((labels.n_events >= LABELS_PER_STEP * n_steps).sum())
        notes.append(
            f"{format_count(n_steps, 'step')} instead of {plan.n_steps}: a test user needs {LABELS_PER_STEP} labels "
            f"for each step, and {able:,} users have {LABELS_PER_STEP * n_steps}"
        )
    about = {
        "train_users": len(done[0].train),
        "test_users": len(done[0].test),
        "steps": n_steps,
        "steps_asked": plan.n_steps,
        "classes": done[0].n_classes,
        "classes_by_seed": [one.n_classes for one in done],
        "features": done[0].spec,
        "features_by_seed": [one.spec for one in done],
        "why_features": done[0].why_features,
        "train_on": "all",
        "seeds": n_seeds,
        "seed": seed,
        "tuned": False,
        "method": "items",
        "arms": len(labels.ids),
        "arm_kind": "item",
        "logged_rate": float(logged.mean()),
        "reward_range": [float(labels.reward.min()), float(labels.reward.max())],
        "notes": notes,
        "caveat": _find_caveat(labels),
    }
    return Evaluation(about, outcomes, None if labels.favour is None else labels.favour.shortfall)


def _find_caveat(labels: ItemLabels) -> str | None:
    """Return what an answer from these labels leaves out."""
    if labels.favour is not None:
        return labels.favour.caveat
    return _DRAWN if labels.are_choices else UNKNOWN


@dataclass(frozen=True, eq=False)
class _Run:
    labels: ItemLabels = field(repr=False)
    plan: ItemPlan
    names: Sequence[str]
    n_steps: int
    seed: int


@dataclass(frozen=True, eq=False)
class _SeedResult:
    train: Index
    test: Index
    logged: float
    rate: Mapping[str, Floats]
    seconds: Mapping[str, tuple[float, float]]
    why: Mapping[str, tuple[str, ...]]
    use: ItemUse
    spec: str
    n_classes: int
    why_features: str


def _split(run: _Run) -> tuple[Index, Index]:
    rng, n = np.random.default_rng((run.seed, _SPLIT)), run.labels.n_events
    able = rng.permutation(np.flatnonzero(n >= LABELS_PER_STEP * run.n_steps))
    n_test = run.plan.n_test_users or max(2, min(len(able) // 2, _MOST_TESTED))
    if n_test > len(able):
        raise InputError(
            f"{format_count(n_test, 'test user')} asked for, but only {len(able):,} have the "
            f"{LABELS_PER_STEP * run.n_steps} labels that a test needs; ask for fewer test users or fewer steps"
        )
    others = rng.permutation(np.setdiff1d(np.flatnonzero(n > 0), able[:n_test]))
    n_train = run.plan.n_train_users or len(others)
    if n_train > len(others) or len(others) < 2:
        raise InputError(
            f"{format_count(n_train, 'training user')} asked for, but {format_count(len(others), 'user', 'are')} left "
            f"beside the {n_test:,} tested; ask for fewer"
        )
    return np.sort(others[:n_train]), np.sort(able[:n_test])


def _run_seed(run: _Run) -> _SeedResult:
    """Train and test all algorithms on one split."""
    train, test = _split(run)
    rng = np.random.default_rng((run.seed, _LEARN))
    specs, why_features = choose_specs(
        run.labels,
        train,
        list_specs(run.labels, run.plan.features),
        run.n_steps,
        np.random.default_rng((run.seed, _FEATURES)),
    )
    plain = run.labels.rows(test, np.ones((len(run.labels.ids), 1)), ("constant",))
    queues = draw_item_queues(plain, run.n_steps, np.random.default_rng((run.seed, _SERVE)))
    rate: dict[str, Floats] = {}
    seconds: dict[str, tuple[float, float]] = {}
    why: dict[str, tuple[str, ...]] = {}
    spec, n_classes = specs[0], 1
    ready: dict[str, tuple[ItemRows, ItemEffects]] = {}  # by features

    def measure(name: str, learn: Callable[[], Any], serve: Callable[[Any], Floats]) -> None:
        began = time.process_time()
        learned = learn()
        trained = time.process_time()
        rate[name] = serve(learned)
        seconds[name] = trained - began, time.process_time() - trained

    def prepare(spec: str) -> tuple[ItemRows, ItemEffects]:
        if spec not in ready:
            ready[spec] = learn_item_features(run.labels, train, spec, rng)
        return ready[spec]

    def learn_ours(name: str, with_effects: bool) -> tuple[LatentModels, Floats, float, Floats]:
        nonlocal spec, n_classes
        chosen, classes, bonus, reasons = choose_classes(
            run.labels, train, specs, run.n_steps, run.plan.n_classes, rng, with_effects=with_effects
        )
        rows, effects = prepare(chosen)
        models = learn_classes(rows, effects if with_effects else None, classes, rng)
        why[name] = reasons
        if with_effects:
            spec, n_classes = chosen, models.n_classes
        found = models.item_effects
        return models, rows.x, bonus, np.zeros(len(rows.ids)) if found is None else found.effect

    for name, with_effects in (("lcb-auto", True), ("lcb-auto-no-effects", False)):
        if name in run.names:
            measure(
                name,
                lambda name=name, with_effects=with_effects: learn_ours(name, with_effects),  # type: ignore[misc]
                lambda ours: serve_classes(ours[0], ours[1], ours[2], queues, ours[3]),
            )
    rows, effects = prepare(spec)
    for name, build in _list_baselines(run, rows, effects, queues, rng).items():
        if name in run.names:
            measure(name, *build)
    use = ItemUse.measure(queues, rows.count)
    logged = float(plain.reward.mean())
    if not logged > 0:
        raise InputError(
            "the log's mean reward of the test users is not above 0, and relative CTR divides by it; scale the rewards"
        )
    return _SeedResult(train, test, logged, rate, seconds, why, use, spec, n_classes, why_features)


def _list_baselines(
    run: _Run, rows: ItemRows, effects: ItemEffects, queues: ItemQueues, rng: np.random.Generator
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Floats]]]:
    """Return, by name, how a baseline learns and how it serves."""
    linucb, none = LinUCB(rows.x.shape[1]), np.zeros(len(rows.ids))

    def learn_mf() -> tuple[LatentModels, Floats, Floats]:
        constant = ItemRows(rows.ids, np.ones((len(rows.ids), 1)), rows.user, rows.item, rows.reward)
        own = start_effects(constant)
        found = learn_factors(constant, own.effect, min(_MF_FACTORS, len(rows.ids)), rng=rng)
        k = found.q.shape[1]
        models = LatentModels(
            np.ones(1), np.zeros((1, k)), np.array([found.noise]), covariance=np.eye(k)[None], personal=True
        )
        return models, found.q, own.effect

    def population(effect: Floats) -> tuple[Callable[[], Any], Callable[[Any], Floats]]:
        return (
            lambda: rows.history(effect).stats,
            lambda stats: serve_population(linucb, stats, rows.x, queues, effect),
        )

    return {
        "popularity": (lambda: item_rates(rows), lambda score: serve_scores(score, queues)),
        "category-popularity": (
            lambda: category_rates(rows, run.labels.member),
            lambda score: serve_scores(score, queues),
        ),
        "linucb-population": population(none),
        "linucb-population-effects": population(effects.effect),
        "linucb-individual": (lambda: None, lambda _: serve_individual(linucb, rows.x, queues, none)),
        "linucb-individual-effects": (
            lambda: None,
            lambda _: serve_individual(linucb, rows.x, queues, effects.effect),
        ),
        "matrix-factorisation": (learn_mf, lambda mf: serve_classes(mf[0], mf[1], 0.0, queues, mf[2])),
        "random": (lambda: none, lambda score: serve_scores(score, queues)),
    }


def item_rates(rows: ItemRows) -> Floats:
    """Return (total + 10 mean) / (count + 10) of every item, (I,)."""
    mean = float(rows.reward.mean())
    return (rows.sum_by_item(rows.reward) + _SHRINK * mean) / (rows.count + _SHRINK)


def category_rates(rows: ItemRows, member: Floats) -> Floats:
    """Return, for every item, the mean of its categories' rates, (I,); the mean reward for an item of no category."""
    mean = float(rows.reward.mean())
    total, count = rows.sum_by_item(rows.reward) @ member, rows.count @ member
    rate = (total + _SHRINK * mean) / (count + _SHRINK)
    n = member.sum(axis=1)
    return np.where(n > 0, member @ rate / np.maximum(n, 1), mean)
