"""What a log tells about its users: its contents, the classes, who would gain, how much, and what it cannot say.

    mean reward of class h for arm a      rate_ha = (sum_u resp_uh total_ua + k rate_a) / (sum_u resp_uh count_ua + k)
    the arm that is best for everybody    argmax_a sum_h pi_h rate_ha
    what class h would gain               max_a rate_ha - rate of that arm

An arm is a category, or an item where a log has no categories.  `total` and `count` are of rewards for what was really
shown: an item of three categories counts for each of them.  Weights would have to be extrapolated to items of one
category alone, which may not exist.  Each rate is drawn to that of all users (and that to the mean of all arms) by k
labels, so that few labels make no arm the best.  How much all users would gain, and how sure that is, is estimated by
serving held-out users (`lcb evaluate`), over items where these have numbers of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.choice.choose import N_STEPS, choose, draw_names, learn_chosen
from lcb.evaluate.choice.serving import can_serve
from lcb.evaluate.evaluate_any import evaluate_log
from lcb.evaluate.items.evaluate_items import ItemPlan, evaluate_items
from lcb.evaluate.items.labels import read_item_labels
from lcb.evaluate.offline.history import read_history
from lcb.evaluate.offline.labels import Reading, default_reading, read_labels
from lcb.evaluate.offline.outcomes import Evaluation
from lcb.models import Fit
from lcb.progress import Progress, silent
from lcb.storage.logs.log import Log
from lcb.words import format_count

ALGORITHMS = ("lcb-auto", "linucb-population", "random")
ITEM_ALGORITHMS = ("lcb-auto", "popularity", "linucb-population", "random")
_ENOUGH_USERS = 100  # who have as many events as a test has steps
_FEWEST_STEPS = 3
_SIZES = ((1, 1), (2, 4), (5, 9), (10, 19), (20, 49), (50, None))  # of users, by their events
_DRAWN = 10.0  # labels; more is needed to be far from the mean
_CLEAR = 0.1  # of the range of rewards: classes whose arms differ less are called alike


@dataclass(frozen=True, eq=False)
class ClassFinding:
    """One class: its name, its share, its best arms, and what it would gain."""

    name: str
    share: float
    best: tuple[tuple[str, float], ...]  # arms with their mean rewards, the best first
    with_own: float  # mean reward of its best arm
    with_common: float  # of the arm that is best for everybody

    @property
    def gain(self) -> float:
        return self.with_own - self.with_common


@dataclass(frozen=True, eq=False)
class LogFindings:
    """All that the page says."""

    name: str  # of the log, as the user gave it
    log: Log
    reading: Reading
    like: float | None
    n_steps: int
    sizes: tuple[tuple[str, int], ...]  # users by the number of their events
    arms: tuple[str, ...]
    arm_counts: NDArray[np.int64]  # (A,) labels of each arm
    arm_rates: Floats  # (A,) their mean reward
    fit: Fit
    rates: Floats  # (N, A) mean reward of each class for what it was shown of each arm
    common: str  # the arm that is best for everybody
    classes: tuple[ClassFinding, ...]
    evaluation: Evaluation | None
    limits: tuple[str, ...]  # what the log cannot say
    columns: dict[str, str] = field(default_factory=dict)  # of a table, as the user named them


def study_log(
    log: Log,
    name: str | Path,
    *,
    reading: Reading | None = None,
    like: float | None = None,
    n_seeds: int = 3,
    n_workers: int | None = None,
    columns: dict[str, str] | None = None,
    progress: Progress = silent,
) -> LogFindings:
    """Learn the classes of a log, evaluate on held-out users, and collect what the page says."""
    whole, log = log, replace(log, item_features=None, inputs=())  # classes are of categories or items, each a feature
    reading = reading or default_reading(log, like)
    labels = read_labels(log, reading, like)
    rng = np.random.default_rng(0)
    history = read_history(log, reading=reading, like=like, progress=progress)
    events = history.log
    few = events if can_serve(events) else history.read(keep_rows=True, users=draw_names(events, rng))
    able = None if history.n_events is None else history.n_events >= N_STEPS
    fit = learn_chosen(events, choose(few, rng=rng, able=able, progress=progress), rng=rng, progress=progress)
    counts = labels.count.sum(axis=0).astype(np.int64)
    known = np.flatnonzero(counts > 0)
    arms = tuple(labels.arms[a] for a in known)
    low, high = labels.levels or (0.0, 1.0)
    users = np.flatnonzero(labels.n_events > 0)  # those of `events`, in this order
    count, total = labels.count[users][:, known], labels.total[users][:, known]
    total = total * (high - low) + low * count if labels.levels else total
    order = np.argsort(-fit.models.pi, kind="stable")
    rates = average_by_class(fit.models.posterior(events)[:, order], count, total)
    pi = fit.models.pi[order]
    common = int(np.argmax(pi @ rates))
    n_steps = _choose_steps(labels.n_events)
    evaluation, limits = None, []
    try:
        how: dict[str, Any] = {"n_seeds": n_seeds, "n_workers": n_workers, "progress": progress}
        if whole.item_features is None:
            evaluation = evaluate_log(log, ALGORITHMS, reading=reading, like=like, n_steps=n_steps, **how)
        else:
            plan = ItemPlan(n_steps, algorithms=ITEM_ALGORITHMS)
            evaluation = evaluate_items(read_item_labels(whole, reading, like), plan, **how)
    except InputError as error:
        limits.append(f"How much users would gain: {error}.")
    return LogFindings(
        name=str(name),
        log=log,
        reading=reading,
        like=like,
        n_steps=n_steps,
        sizes=_count_sizes(labels.n_events[labels.n_events > 0]),
        arms=arms,
        arm_counts=counts[known],
        arm_rates=total.sum(axis=0) / counts[known],
        fit=fit,
        rates=rates,
        common=arms[common],
        classes=tuple(_describe_class(h, pi, rates, arms, common, high - low) for h in range(len(pi))),
        evaluation=evaluation,
        limits=(*limits, *_find_limits(whole, reading, evaluation)),
        columns=columns or {},
    )


def average_by_class(resp: Floats, count: Floats | NDArray[np.int32], total: Floats) -> Floats:
    """Return the mean reward of every class for every arm, (N, A).

    `resp` (U, N) are the classes of the users, `count` and `total` (U, A) the number and the sum of their rewards.

    >>> average_by_class(np.eye(2), np.array([[990, 0], [0, 1990]]), np.array([[990.0, 0.0], [0.0, 0.0]])).round(2)
    array([[1.  , 0.  ],
           [0.99, 0.  ]])
    """
    by_arm = (total.sum(axis=0) + _DRAWN * total.sum() / count.sum()) / (count.sum(axis=0) + _DRAWN)
    return np.asarray((resp.T @ total + _DRAWN * by_arm) / (resp.T @ count + _DRAWN))


def _choose_steps(n_events: NDArray[np.int64]) -> int:
    """Return the steps of a test: 20, or fewer if too few users have so many events."""
    for n_steps in (20, 15, 10, 8, 6, 5, 4):
        if np.sum(n_events >= n_steps) >= _ENOUGH_USERS:
            return n_steps
    return _FEWEST_STEPS


def _count_sizes(n_events: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    """Return the number of users by their number of events.

    >>> _count_sizes(np.array([1, 3, 3, 70]))
    (('1', 1), ('2 to 4', 2), ('5 to 9', 0), ('10 to 19', 0), ('20 to 49', 0), ('50 or more', 1))
    """
    found = []
    for least, most in _SIZES:
        inside = (n_events >= least) & (n_events <= (most or n_events.max(initial=0)))
        words = f"{least} or more" if most is None else f"{least}" if least == most else f"{least} to {most}"
        found.append((words, int(inside.sum())))
    return tuple(found)


def _describe_class(h: int, pi: Floats, rates: Floats, arms: tuple[str, ...], common: int, span: float) -> ClassFinding:
    """Name a class for the arms that it likes more than everybody does."""
    lift = rates[h] - pi @ rates
    best = np.argsort(-rates[h], kind="stable")[:3]
    more = [a for a in np.argsort(-lift, kind="stable")[:2] if lift[a] > _CLEAR * span]
    fewer = [a for a in np.argsort(lift, kind="stable")[:1] if lift[a] < -_CLEAR * span]
    liked, disliked = " and ".join(arms[a] for a in more), "".join(arms[a] for a in fewer)
    name = f"more {liked}" if liked else ""
    if disliked and len(more) < 2:
        name = f"{name}, less {disliked}" if name else f"less {disliked}"
    if len(pi) == 1:
        name = "everybody"
    return ClassFinding(
        name=name or "as everybody",
        share=float(pi[h]),
        best=tuple((arms[a], float(rates[h, a])) for a in best),
        with_own=float(rates[h].max()),
        with_common=float(rates[h, common]),
    )


def _find_limits(log: Log, reading: Reading, evaluation: Evaluation | None) -> list[str]:
    """Return what the log cannot say, one sentence each."""
    limits = []
    if evaluation is not None:
        if evaluation.why_no_answer is not None:
            limits.append(f"How much users would gain: {evaluation.why_no_answer}.")
        best = evaluation.best
        if best is not None and best.diagnostics is not None:
            limits.append(f"What the estimate rests on: {best.diagnostics.describe(best.algorithm)}.")
    if log.propensity is None:
        limits.append(
            "Why users saw what they saw: the log has no propensities, so users may have been shown what they like, "
            "and the labels of other arms are then fewer and less typical. A service logs them."
        )
    if reading == "choices":
        limits.append(
            "What users would do if shown something else: events are choices, so everything not taken counts as a 0, "
            "also what was never on offer."
        )
    if log.categories and log.n_items > len(log.categories):
        limits.append(
            f"Which of the {format_count(log.n_items, 'item')} is best: arms are categories, and the items of one "
            "category count as alike."
        )
    if not log.categories and log.n_items > 100 and not log.inputs:
        limits.append(
            f"Anything about {log.n_items - 100:,} of {format_count(log.n_items, 'item')}: without categories only the "
            "100 most frequent items are arms. Import categories with --item-categories."
        )
    if log.inputs:
        limits.append(
            f"Which kinds of users the items' {format_count(len(log.inputs), 'number')} of their own would tell apart: "
            "the classes of this page are of categories, or of the 100 most frequent items, and do not use them; its "
            "estimate of the gain does, and so does lcb learn."
        )
    limits += [f"{note[0].upper()}{note[1:]}." for note in log.notes]
    return limits


def to_json(found: LogFindings) -> dict[str, Any]:
    """Return the findings for scripts."""
    log, evaluation = found.log, found.evaluation
    return {
        "log": found.name,
        "users": log.n_users,
        "items": log.n_items,
        "events": log.n_events,
        "reading": found.reading,
        "steps": found.n_steps,
        "users_by_events": dict(found.sizes),
        "best_for_everybody": found.common,
        "mean_rewards": {
            "arms": list(found.arms),
            "everybody": found.arm_rates.tolist(),
            "classes": found.rates.tolist(),
        },
        "classes": [
            {"name": one.name, "share": one.share, "best": dict(one.best), "gain": one.gain} for one in found.classes
        ],
        "why_classes": list(found.fit.why),
        "evaluation": None if evaluation is None else evaluation.to_json(),
        "limits": list(found.limits),
    }
