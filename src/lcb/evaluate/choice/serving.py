"""Serves users who were not learned from, on their own labels, with every candidate.

The users are split in two halves; classes learned from one half serve the other, from queues of rewards (see `queues`).
The order of a user's labels and drawn rewards are most of the noise of a score, much more than which users are served.
So those candidates that one order does not tell from the best serve the same users with further orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from lcb.arrays import Floats, Index
from lcb.evaluate.choice.candidates import Classes
from lcb.evaluate.choice.queues import Queues, Values, draw_queues
from lcb.event_log import Clicks, EventLog, find_different_rows
from lcb.models import LatentModels
from lcb.progress import Progress, count_up

MOST_FAVOURED = 0.7  # what one arm has of a user's labels, beyond an equal share; then the others have too few
_FEWEST_LABELS = 4  # of a user who is served, and on average of an arm
_CLOSE = 3.0  # paired standard errors
_MORE_ORDERS = 5  # with which close candidates serve
N_ORDERS = 1 + _MORE_ORDERS
_FIRST_ROUND = 80  # percent of the work, about
Candidate = tuple[Classes, float]  # and the bonus


@dataclass(frozen=True, eq=False)
class Served:
    """Mean rewards: of each user, (users,), by candidates that are close to the best; over users, by all candidates."""

    close: dict[Candidate, Floats]
    means: dict[Candidate, float]


def can_serve(log: EventLog) -> bool:
    """Whether arms come again, so that labels of an arm can be queued, and most users have several labels."""
    return find_labels(log) is not None


def find_labels(log: EventLog) -> Clicks | Values | None:
    """Return the labels of all users; None if they cannot be served."""
    if np.median(log.stats.count) < _FEWEST_LABELS:
        return None
    found: Clicks | Values | None = log.clicks
    if log.clicks is None and log.rows is not None:
        user, x, reward = log.rows
        first, arm = find_different_rows(x)
        found = Values(x[first], user, arm, reward, log.n_users)
    if found is None or _FEWEST_LABELS * len(found.arms) > log.stats.n_events:
        return None
    return found


def measure_favour(most: Floats | Index, total: Floats | Index, n_arms: int) -> float:
    """Return the mean share of the labels of the commonest arm of each user, scaled: 0 an equal share, 1 all labels.

    `most` are a user's labels of that arm, `total` all of them, (users,) each; users without labels do not count.

    >>> round(measure_favour(np.array([9, 5, 0]), np.array([10, 10, 0]), 2), 3)
    0.4
    """
    has = np.asarray(total) > 0
    if n_arms < 2 or not has.any():
        return 0.0
    share = float(np.mean(np.asarray(most)[has] / np.asarray(total)[has]))
    return (share - 1 / n_arms) / (1 - 1 / n_arms)


def find_favour(labels: Clicks | Values) -> float:
    """Return `measure_favour` of the labels of all users."""
    if isinstance(labels, Clicks):
        count = (labels.clicked + labels.passed).tocsr()
    else:
        ones, shape = np.ones(len(labels.user)), (labels.n_users, len(labels.arms))
        count = coo_array((ones, (labels.user, labels.arm)), shape=shape).tocsr()
    return measure_favour(count.max(axis=1).toarray().ravel(), count.sum(axis=1), len(labels.arms))


def serve_held_out(
    log: EventLog,
    labels: Clicks | Values,
    able: NDArray[np.bool_],
    tried: Sequence[Classes],
    bonuses: Sequence[float],
    n_steps: int,
    rng: np.random.Generator,
    progress: Progress,
) -> Served:
    """Serve each user who is `able` (users,), the same users and rewards for all candidates."""
    halves = np.array_split(rng.permutation(log.n_users), 2)
    done = count_up(progress, "percent of serving held-out users", 100)
    spent, cost = 0.0, 2 * math.fsum(one.cost for one in tried)
    first: dict[Candidate, list[Floats]] = {(one, bonus): [] for one in tried for bonus in bonuses}
    learned: list[tuple[dict[Classes, LatentModels], Iterator[Queues]]] = []
    for learning, held_out in (halves, halves[::-1]):
        past = log.take(learning)
        served = held_out[able[held_out] & (log.stats.count[held_out] >= _FEWEST_LABELS)]
        orders = draw_queues(_take_users(labels, served), n_steps, rng)
        queues, models = next(orders), dict[Classes, LatentModels]()
        for one in tried:
            models[one] = one.learn_trial(past, rng)
            for bonus in bonuses:
                first[one, bonus].append(serve(models[one], bonus, queues))
            spent += one.cost
            done(round(_FIRST_ROUND * spent / cost))
        learned.append((models, orders))
    scores: dict[Candidate, Floats] = {one: np.concatenate(parts) for one, parts in first.items()}
    means = {one: float(score.mean()) for one, score in scores.items()}
    close = find_close(scores)
    again = {one: np.zeros(len(scores[one])) for one in close}
    for i in range(_MORE_ORDERS):
        queues_of = [next(orders) for _, orders in learned]
        for one, bonus in close:
            parts = [serve(models[one], bonus, own) for (models, _), own in zip(learned, queues_of, strict=True)]
            again[one, bonus] += np.concatenate(parts)
        done(_FIRST_ROUND + (100 - _FIRST_ROUND) * (i + 1) // _MORE_ORDERS)
    close_scores: dict[Candidate, Floats] = {one: (scores[one] + again[one]) / N_ORDERS for one in close}
    return Served(close_scores, means | {one: float(score.mean()) for one, score in close_scores.items()})


def find_close(scores: Mapping[Candidate, Floats]) -> list[Candidate]:
    """Return the candidates within three paired standard errors of the best, the best among them."""
    best = scores[max(scores, key=lambda one: scores[one].mean())]
    differences = {one: best - score for one, score in scores.items()}
    return [one for one, less in differences.items() if less.mean() <= _CLOSE * less.std(ddof=1) / np.sqrt(len(less))]


def _take_users(labels: Clicks | Values, users: Index) -> Clicks | Values:
    """Return the labels of these users, with all arms."""
    if isinstance(labels, Clicks):
        return Clicks(labels.arms, labels.clicked[users], labels.passed[users], labels.low, labels.high)
    place = np.full(labels.n_users, -1)
    place[users] = np.arange(len(users))
    kept = place[labels.user] >= 0
    return Values(labels.arms, place[labels.user[kept]], labels.arm[kept], labels.reward[kept], len(users))


def serve(models: LatentModels, bonus: float, queues: Queues, effect: Floats | None = None) -> Floats:
    """Return the mean reward of each user under the rule of `PosteriorMean` or `PersonalClasses`, (users,).

    Item effects (A,), if the arms have them, are added to the mean of every class: a reward then teaches r - a_i.
    """
    from lcb.evaluate.choice._serving_numba import serve_queues

    total = np.empty(len(queues.steps))
    own = queues.begin, queues.arm, queues.rewards, queues.size, queues.steps
    serve_queues(own, *_terms(models, queues.arms, effect), bonus, total)
    return total / queues.steps


def _terms(models: LatentModels, x: Floats, effect: Floats | None = None) -> Iterator[Floats | float]:
    """Yield the arms x (A, d), log pi, the arms' mean and variance, the covariance, the noise, and the log density of
    two-valued rewards under each class with the middle between the two."""
    mean, none = np.ascontiguousarray(models.beta @ x.T), np.empty((0, 0, 0))
    if effect is not None:
        mean += effect
    yield from (np.ascontiguousarray(x), models.log_pi, mean)
    if models.personal:
        assert models.covariance is not None
        yield np.array([np.einsum("ai,ai->a", x @ own, x) for own in models.covariance])
        yield from (np.array(models.covariance), np.tile(models.noise_of(x), (len(mean), 1)), none, 0.0)
        return
    yield from (np.zeros(mean.shape), none, np.tile(models.sigma2[:, None], len(x)))
    if models.levels is None:
        yield from (none, 0.0)
        return
    density = [[models.log_density(one, reward) for reward in models.levels] for one in x]
    yield from (np.ascontiguousarray(np.array(density).transpose(2, 0, 1)), (models.levels[0] + models.levels[1]) / 2)
