"""How many classes: as many as help to predict users who were not learned from.

Users are split into learning and held-out ones.  For each number of classes the log predictive density of a
held-out user's rewards, its class unknown, is compared user by user; the answer is the smallest number that is
within one standard error of the best.  Numbers are tried by doubling until two in a row do not help, then
between the neighbours of the best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lcb.clicks import EventLog
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.progress import Progress, silent

_HELD_OUT = 0.3  # share of the users
_USUAL_TRIALS = 12  # numbers of classes tried, for the time left
_MOST_USERS = 50_000  # enough to choose by

Learn = Callable[[EventLog, int], LatentModels]
Scores = dict[int, tuple[float, float]]


def choose_n_classes(
    log: EventLog,
    learn: Learn,
    *,
    rng: np.random.Generator,
    most: int | None = None,
    progress: Progress = silent,
) -> tuple[int, Scores]:
    """The number of classes, and for each number tried the mean held-out score per user with its standard error."""
    if log.n_users < 4:
        raise InputError(
            f"only {log.n_users} users, too few to choose the number of classes by holding some out; say n_classes"
        )
    order = rng.permutation(log.n_users)[:_MOST_USERS]
    n_held_out = max(2, round(_HELD_OUT * len(order)))
    held_out, learning = log.take(order[:n_held_out]), log.take(order[n_held_out:])
    most = min(most or 64, learning.n_users)

    scores: dict[int, np.ndarray] = {}

    def score(n_classes: int) -> float:
        if n_classes not in scores:
            progress("choosing the number of classes", len(scores), _USUAL_TRIALS)
            scores[n_classes] = learn(learning, n_classes).user_scores(held_out)
        return float(scores[n_classes].mean())

    best, n, misses = 1, 2, 0
    score(1)
    while n <= most and misses < 2:
        if score(n) > score(best):
            best, misses = n, 0
        else:
            misses += 1
        n *= 2
    tried = sorted(scores)
    low = tried[max(0, tried.index(best) - 1)]
    high = tried[min(len(tried) - 1, tried.index(best) + 1)]
    _narrow(score, low, best, high)
    return _smallest_within_one_error(scores), {n: _mean_and_error(scores[n]) for n in sorted(scores)}


def _narrow(score: Callable[[int], float], low: int, best: int, high: int) -> None:
    """Try numbers between the neighbours of the best until none is left, or ten have been tried."""
    for _ in range(10):
        left, right = (low + best) // 2, (best + high + 1) // 2
        candidates = [n for n in (left, right) if n not in (low, best, high)]
        if not candidates:
            return
        for n in candidates:
            if score(n) > score(best):
                low, best, high = (low, n, best) if n < best else (best, n, high)
                break
            low, high = (n, high) if n < best else (low, n)


def _smallest_within_one_error(scores: dict[int, np.ndarray]) -> int:
    best = max(scores, key=lambda n: scores[n].mean())
    for n in sorted(scores):
        behind, error = _mean_and_error(scores[best] - scores[n])
        if behind <= error:
            return n
    return best


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
