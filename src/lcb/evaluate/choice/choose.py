"""Chooses the classes for a log: `choose` tries candidates on held-out users, `learn_chosen` learns the best.

Where users can be served (rewards of two values are counted on a small set of arms), every candidate serves users who
were not learned from, on their own labels: see `serving`.  Elsewhere candidates predict the later rewards of such users
from their earlier ones: see `predicting`.  The simplest candidate within one standard error of the best is chosen, the
differences paired by user: point classes before personal ones, then fewer classes, then a smaller bonus.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.evaluate.choice.candidates import BONUSES, DEFAULT_BONUS, Classes, list_personal
from lcb.evaluate.choice.predicting import predict_later_rewards
from lcb.evaluate.choice.serving import can_serve, serve_held_out
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.models import Fit, Likelihood
from lcb.progress import Progress, silent

MOST_USERS = 5_000
_FEWEST_ABLE = 200
_FEWEST_USERS = 20
_STEPS = 20


@dataclass(frozen=True)
class Choice:
    """The classes to learn, the bonus to serve them with, and why."""

    classes: Classes
    bonus: float
    why: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict, repr=False)  # mean score of every candidate


def choose(
    log: EventLog,
    *,
    rng: np.random.Generator,
    n_classes: int | None = None,
    likelihood: Likelihood | None = None,
    n_steps: int = _STEPS,
    able: NDArray[np.bool_] | None = None,
    progress: Progress = silent,
) -> Choice:
    """Choose the classes and the bonus on at most 5,000 users of the log; what is given is not searched.

    A likelihood is one of point classes, so giving one leaves personal classes out.  `able` marks the users who are
    like those to be served for `n_steps` steps, (users,); without it these are users with twice as many rewards.
    """
    if log.n_users < _FEWEST_USERS:
        few_users = f"{log.n_users} users are too few to try candidates on"
        (classes, *_) = _find_point_classes(log, n_classes, likelihood, rng, progress)
        return Choice(classes, DEFAULT_BONUS, (f"chosen: {classes} with bonus {DEFAULT_BONUS:g}: {few_users}",))
    few, able = _draw_users(log, log.stats.count >= 2 * n_steps if able is None else able, rng)
    served = can_serve(few)
    tried = [*_find_point_classes(few, n_classes, likelihood, rng, progress)]
    if likelihood is None:
        tried += list_personal(n_classes, few.n_users)
    if served:
        scores = serve_held_out(few, able, tried, BONUSES, n_steps, rng, progress)
    else:
        scores = predict_later_rewards(few, tried, DEFAULT_BONUS, rng, progress)
    (classes, bonus), best = pick_simplest(scores)
    what = "reward per step of held-out users" if served else "log density of held-out users' later rewards"
    (top, top_bonus), error = best, _paired_error(scores[best], scores[classes, bonus])
    same = best == (classes, bonus)
    gap = "the best" if same else f"within one standard error, {error:.2g}, of the best, {top} with bonus {top_bonus:g}"
    why = (
        f"chosen: {classes} with bonus {bonus:g}: {gap}",
        f"{what}: {scores[classes, bonus].mean():.4g}, of the best {scores[best].mean():.4g}; "
        f"{len(scores)} candidates tried on {len(scores[best]):,} users",
    )
    return Choice(
        classes, bonus, why, {f"{one}, bonus {c:g}": float(value.mean()) for (one, c), value in scores.items()}
    )


def draw_names(log: EventLog, rng: np.random.Generator) -> set[Hashable]:
    """Draw the names of at most 5,000 users, to read the rows of these only."""
    return {log.stats.users[i] for i in rng.permutation(log.n_users)[:MOST_USERS].tolist()}


def _draw_users(log: EventLog, able: NDArray[np.bool_], rng: np.random.Generator) -> tuple[EventLog, NDArray[np.bool_]]:
    """Draw at most 5,000 users, able ones first; all of them count as able if fewer than 200 are."""
    order = rng.permutation(log.n_users)
    order = np.sort(np.concatenate([order[able[order]], order[~able[order]]])[:MOST_USERS])
    chosen = able[order]
    return log.take(order), chosen if chosen.sum() >= _FEWEST_ABLE else np.ones(len(order), bool)


def learn_chosen(
    log: EventLog,
    choice: Choice,
    *,
    rng: np.random.Generator,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn the chosen classes from all users; the models keep the bonus in their provenance."""
    found = choice.classes.learn(log, rng, progress, n_threads)
    models = found.models.with_provenance({**found.models.provenance, "bonus": choice.bonus})
    return replace(found, models=models, why=choice.why)


def learn(log: EventLog, *, rng: np.random.Generator, progress: Progress = silent) -> Fit:
    """Choose the classes for a log and learn them; `LearnedClasses` serves them.

    >>> rng = np.random.default_rng(0)
    >>> user, x = np.repeat(np.arange(60), 10), rng.normal(size=(600, 2))
    >>> weights = np.array([[1.0, 0.0], [0.0, 1.0]])[np.arange(60) % 2]
    >>> reward = (weights[user] * x).sum(axis=1) + 0.1 * rng.normal(size=600)
    >>> found = learn(EventLog.from_rows(user, x, reward), rng=rng)
    >>> found.models.n_classes, found.models.personal
    (2, False)
    """
    return learn_chosen(log, choose(log, rng=rng, progress=progress), rng=rng, progress=progress)


def pick_simplest(
    scores: Mapping[tuple[Classes, float], Floats],
) -> tuple[tuple[Classes, float], tuple[Classes, float]]:
    """Return the simplest candidate within one paired standard error of the best, and the best."""
    best = max(scores, key=lambda one: scores[one].mean())
    for one in sorted(scores, key=lambda one: (one[0].rank, one[1])):
        if scores[best].mean() - scores[one].mean() <= _paired_error(scores[best], scores[one]):
            return one, best
    return best, best


def _paired_error(best: Floats, other: Floats) -> float:
    return float((best - other).std(ddof=1) / np.sqrt(len(best)))


def _find_point_classes(
    log: EventLog, n_classes: int | None, likelihood: Likelihood | None, rng: np.random.Generator, progress: Progress
) -> list[Classes]:
    """Return point classes of each likelihood that fits the log, with the number that held-out users find."""
    able: tuple[Likelihood, ...] = ("bernoulli", "gaussian") if log.clicks is not None else ("gaussian",)
    found = []
    for one in able if likelihood is None else (likelihood,):
        n = n_classes
        if n is None:
            n = fit(log, None, rng=rng, likelihood=one, n_threads=1, progress=progress).models.n_classes
        found.append(Classes(False, n, one))
    return found
