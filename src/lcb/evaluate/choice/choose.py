"""Chooses the classes for a log: `choose` tries candidates on held-out users, `learn_chosen` learns the best.

Where users can be served (arms come again, so that their labels can be queued), every candidate serves users who were
not learned from, on their own labels: see `serving`.  Elsewhere candidates predict the later rewards of such users
from their earlier ones: see `predicting`.  The simplest candidate within one standard error of the best is chosen, the
differences paired by user: point classes before personal ones, then fewer classes, then a smaller bonus.  Users are
served with several orders of their labels, which makes the means sharper; the standard error is that of one order, so
that little gains, which other classes learned from as many users might not have, do not make the choice complex.

Where most labels of a user are of one arm, as in the log of a good recommender, held-out users have no labels by which
candidates could be compared, and a mixture is learned: see `own_choices`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.evaluate.choice.candidates import BONUSES, DEFAULT_BONUS, MOST_USERS, Classes, list_personal
from lcb.evaluate.choice.own_choices import Mixture, is_favoured
from lcb.evaluate.choice.predicting import predict_later_rewards
from lcb.evaluate.choice.serving import MOST_FAVOURED, N_ORDERS, find_favour, find_labels, serve_held_out
from lcb.event_log import EventLog, TableColumns
from lcb.learners.fitting import Place, count_classes, describe_constant
from lcb.learners.likelihood import check_counted
from lcb.learners.shared.users import Users
from lcb.models import Fit, Likelihood
from lcb.progress import Progress, silent
from lcb.words import format_count

_FEWEST_ABLE = 200
_FEWEST_USERS = 20
_ROUNDING = 1e-9
N_STEPS = 20  # for which a user is served
_FAVOURED = "most labels of a user are of one arm, as where a recommender shows users what they like"
_TOO_HIGH = (
    f"this reward is too high: {_FAVOURED}, and little is known of the other arms; log with a larger uniform share, or "
    "try --learner mixture"
)
_NOT_TRIED = (
    "no candidates were tried: held-out users have too few labels of the other arms; log with a larger uniform share "
    "to have them compared"
)


@dataclass(frozen=True)
class Choice:
    """The classes to learn, the bonus to serve them with, and why."""

    classes: Classes | Mixture
    bonus: float
    why: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict, repr=False)  # mean score of every candidate


def choose(
    log: EventLog,
    *,
    rng: np.random.Generator,
    n_classes: int | None = None,
    likelihood: Likelihood | None = None,
    n_steps: int = N_STEPS,
    able: NDArray[np.bool_] | None = None,
    progress: Progress = silent,
) -> Choice:
    """Choose the classes and the bonus on at most 5,000 users of the log; what is given is not searched.

    A likelihood is one of point classes, so giving one leaves personal classes out.  `able` marks the users who are
    like those to be served for `n_steps` steps, (users,); without it these are users with as many rewards.
    """
    if likelihood is None:
        check_counted(log)
    if log.constant is not None:
        return Choice(Classes(False, n_classes or 1), DEFAULT_BONUS, (describe_constant(log.constant),))
    if log.n_users < _FEWEST_USERS:
        few_users = f"{format_count(log.n_users, 'user', 'are')} too few to try candidates on"
        (classes, *_) = _find_point_classes(log, n_classes, likelihood, rng, progress)
        return Choice(classes, DEFAULT_BONUS, (f"chosen: {classes} with bonus {DEFAULT_BONUS:g}: {few_users}",))
    if n_classes is None and likelihood is None and is_favoured(log):
        chosen = f"chosen: {Mixture()} with bonus {DEFAULT_BONUS:g}: {_FAVOURED}"
        return Choice(Mixture(), DEFAULT_BONUS, (chosen, _NOT_TRIED))
    few, able = _draw_users(log, log.stats.count >= n_steps if able is None else able, rng)
    labels = find_labels(few)
    tried = [*_find_point_classes(few, n_classes, likelihood, rng, progress)]
    if likelihood is None:
        tried += list_personal(n_classes, few.n_users)
    if labels is not None:
        served = serve_held_out(few, labels, able, tried, BONUSES, n_steps, rng, progress)
        scores, means, n_orders = served.close, served.means, N_ORDERS
    else:
        scores = predict_later_rewards(few, tried, DEFAULT_BONUS, rng, progress)
        means, n_orders = {one: float(score.mean()) for one, score in scores.items()}, 1
    (classes, bonus), best = pick_simplest(scores, n_orders)
    what = "reward per step of held-out users" if labels is not None else "log density of held-out users' later rewards"
    (top, top_bonus), error = best, _paired_error(scores[best], scores[classes, bonus], n_orders)
    same = best == (classes, bonus)
    gap = "the best" if same else f"within one standard error, {error:.2g}, of the best, {top} with bonus {top_bonus:g}"
    why: tuple[str, ...] = (
        f"chosen: {classes} with bonus {bonus:g}: {gap}",
        f"{what}: {scores[classes, bonus].mean():.4g}, of the best {scores[best].mean():.4g}; "
        f"{len(means)} candidates tried on {len(scores[best]):,} users",
    )
    if labels is not None and find_favour(labels) > MOST_FAVOURED:
        why += (_TOO_HIGH,)
    return Choice(classes, bonus, why, {f"{one}, bonus {c:g}": mean for (one, c), mean in means.items()})


def draw_names(log: EventLog, rng: np.random.Generator) -> set[Hashable]:
    """Draw the names of at most 5,000 users, to read the rows of these only."""
    return {log.stats.users[i] for i in rng.permutation(log.n_users)[:MOST_USERS].tolist()}


def draw_positions(n_users: int, able: NDArray[np.bool_] | None, rng: np.random.Generator) -> Index:
    """Draw the positions of at most 5,000 users, able ones first."""
    order = rng.permutation(n_users)
    return np.sort(order[:MOST_USERS] if able is None else order[draw_able(able[order])])


def draw_able(able: NDArray[np.bool_]) -> Index:
    """Return the positions of the first 5,000 users, able ones first.

    >>> draw_able(np.array([False, True])).tolist()
    [0, 1]
    """
    return np.sort(np.argsort(~able, kind="stable")[:MOST_USERS])


def _draw_users(log: EventLog, able: NDArray[np.bool_], rng: np.random.Generator) -> tuple[EventLog, NDArray[np.bool_]]:
    """Draw at most 5,000 users, able ones first; all of them count as able if fewer than 200 are."""
    order = draw_positions(log.n_users, able, rng)
    chosen = able[order]
    return log.take(order), chosen if chosen.sum() >= _FEWEST_ABLE else np.ones(len(order), bool)


def learn_chosen(
    log: EventLog | Users,
    choice: Choice,
    *,
    rng: np.random.Generator,
    n_threads: int | None = None,
    on: Place | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn the chosen classes from all users, on a cluster if `on` is one; the models keep the bonus."""
    found = choice.classes.learn(log, rng, progress, n_threads=n_threads, on=on)
    models = found.models.with_provenance({**found.models.provenance, "bonus": choice.bonus})
    return replace(found, models=models, why=choice.why)


def learn(
    data: Any,
    *,
    rng: np.random.Generator | int,
    user: str = "user",
    item: str | None = None,
    reward: str = "reward",
    features: Sequence[str] = (),
    progress: Progress = silent,
) -> Fit:
    """Choose the classes for a log and learn them; `LearnedClasses` serves them.  `rng` is a generator or a seed.

    `data` is an `EventLog`, or a DataFrame or dictionary of columns, which `user`, `item`, `reward` and `features` name
    as in `EventLog.from_table`.

    >>> rng = np.random.default_rng(0)
    >>> user, x = np.repeat(np.arange(60), 10), rng.normal(size=(600, 2))
    >>> weights = np.array([[1.0, 0.0], [0.0, 1.0]])[np.arange(60) % 2]
    >>> reward = (weights[user] * x).sum(axis=1) + 0.1 * rng.normal(size=600)
    >>> found = learn(EventLog.from_rows(user, x, reward), rng=rng)
    >>> found.models.n_classes, found.models.personal
    (2, False)
    """
    rng = np.random.default_rng(rng)
    found = TableColumns(user, item, reward, features).read(data)
    log = found if isinstance(found, EventLog) else EventLog(found)
    return learn_chosen(log, choose(log, rng=rng, progress=progress), rng=rng, progress=progress)


class Ranked(Protocol):
    """A candidate that says how complex it is."""

    @property
    def rank(self) -> tuple[Any, ...]: ...


C = TypeVar("C", bound=Ranked)


def pick_simplest(
    scores: Mapping[tuple[C, float], Floats], n_orders: int = 1
) -> tuple[tuple[C, float], tuple[C, float]]:
    """Return the simplest candidate within one paired standard error of the best, and the best.

    Scores are means over `n_orders` orders of the labels, the error is that of one.
    A candidate that differs in one user only is exactly one standard error away, so rounding is allowed for.
    """
    best = max(scores, key=lambda one: scores[one].mean())
    for one in sorted(scores, key=lambda one: (one[0].rank, one[1])):
        if scores[best].mean() - scores[one].mean() <= (1 + _ROUNDING) * _paired_error(
            scores[best], scores[one], n_orders
        ):
            return one, best
    return best, best


def _paired_error(best: Floats, other: Floats, n_orders: int) -> float:
    return float((best - other).std(ddof=1) * np.sqrt(n_orders / len(best)))


def _find_point_classes(
    log: EventLog, n_classes: int | None, likelihood: Likelihood | None, rng: np.random.Generator, progress: Progress
) -> list[Classes]:
    """Return point classes of each likelihood that fits the log, with the number that held-out users find.

    Rewards of two values are Bernoulli, so this likelihood finds their number; the Gaussian one splits classes further.
    """
    able: tuple[Likelihood, ...] = ("bernoulli", "gaussian") if log.clicks is not None else ("gaussian",)
    if likelihood is not None:
        able = (likelihood,)
    if n_classes is None:
        n_classes = count_classes(log, rng=rng, likelihood=able[0], n_threads=1, progress=progress).n_classes
    return [Classes(False, n_classes, one) for one in able]
