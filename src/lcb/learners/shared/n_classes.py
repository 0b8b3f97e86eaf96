"""Chooses the number of classes that predicts held-out users best.

Each number is scored by the log predictive density of held-out users' rewards, their classes unknown; differences are
paired by user.  The smallest number within one standard error of the best is chosen.  Numbers are doubled until two in
a row improve by less than that error, or one of at least 16; then numbers between the neighbours of the best are tried,
then smaller ones while they are as good.  Numbers that differ by less than an eighth are not told apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.learners.shared.users import Users
from lcb.models import LatentModels
from lcb.progress import Progress, silent
from lcb.words import format_count

_HELD_OUT = 0.3  # share of the users
_USUAL_TRIALS = 12  # numbers of classes tried, to estimate the time left
MOST_USERS = 10_000  # more users are not used to choose the number
_APART = 8  # numbers that differ by less than n / 8 are not tried
_MANY = 16  # classes from which on one number that is no better ends the doubling

Learn = Callable[[EventLog, int], LatentModels]
Scores = dict[int, tuple[float, float]]


def choose_n_classes(
    log: EventLog | Users,
    learn: Learn,
    *,
    rng: np.random.Generator,
    most: int | None = None,
    progress: Progress = silent,
) -> tuple[int, Scores]:
    """Return the number of classes and, of each number tried, the mean held-out score per user and its error.

    The error is the standard error of the difference to the best number, paired by user: the one that decides.
    """
    if log.n_users < 4:
        raise InputError(
            f"only {format_count(log.n_users, 'user')}, too few to hold some out and "
            "choose the number of classes; give that number (--classes)"
        )
    order = rng.permutation(log.n_users)[:MOST_USERS]
    n_held_out = max(2, round(_HELD_OUT * len(order)))
    held_out, learning = log.take(order[:n_held_out]), log.take(order[n_held_out:])
    most = min(most or 64, learning.n_users)

    scores: dict[int, Floats] = {}

    def score(n_classes: int) -> Floats:
        if n_classes not in scores:
            progress("choosing the number of classes", len(scores), _USUAL_TRIALS)
            try:
                scores[n_classes] = learn(learning, n_classes).user_scores(held_out)
            except InputError:
                if n_classes == 1:
                    raise
                scores[n_classes] = np.full(held_out.n_users, -np.inf)  # cannot be learned from these users
        return scores[n_classes]

    score(1)
    best, n, misses = 1, 2, 0
    while n <= most and misses < 2:
        if is_better(score(best), score(n)):
            best, misses = n, 0
        else:
            misses += 2 if n >= _MANY else 1
        n = min(2 * n, most) if n < most else most + 1
    tried = sorted(scores)
    low = tried[max(0, tried.index(best) - 1)]
    high = tried[min(len(tried) - 1, tried.index(best) + 1)]
    _narrow(score, low, best, high)
    chosen = _find_fewest(score, scores)
    known = {n: scores[n] for n in sorted(scores) if np.isfinite(scores[n]).all()}
    top = max(known.values(), key=lambda values: float(values.mean()))
    return chosen, {n: (float(values.mean()), _mean_and_error(top - values)[1]) for n, values in known.items()}


def _narrow(score: Callable[[int], Floats], low: int, best: int, high: int) -> None:
    """Try numbers between the neighbours of the best until none is left, or ten have been tried."""
    for _ in range(10):
        left, right = (low + best) // 2, (best + high + 1) // 2
        candidates = [n for n in (left, right) if n not in (low, best, high) and _are_apart(n, best)]
        if not candidates:
            return
        for n in candidates:
            if score(n).mean() > score(best).mean():
                low, best, high = (low, n, best) if n < best else (best, n, high)
                break
            low, high = (n, high) if n < best else (low, n)


def _find_fewest(score: Callable[[int], Floats], scores: dict[int, Floats]) -> int:
    """Return the smallest number within one error of the best, trying smaller ones by bisection."""
    chosen = _pick_smallest(scores)
    low = max((n for n in scores if n < chosen), default=chosen)
    while chosen - low > 1 and _are_apart((low + chosen) // 2, chosen):
        middle = (low + chosen) // 2
        score(middle)
        chosen = _pick_smallest(scores)
        low = max((n for n in scores if n < chosen), default=chosen)
    return chosen


def _are_apart(n: int, other: int) -> bool:
    return abs(n - other) >= max(1, other // _APART)


def is_better(before: Floats, after: Floats) -> bool:
    """Whether the scores rose by more than the standard error of the rise, and by more than rounding."""
    if not np.isfinite(after).all():
        return False
    gain, error = _mean_and_error(after - before)
    return gain > max(error, 1e-9 * abs(float(before.mean())))


def _pick_smallest(scores: dict[int, Floats]) -> int:
    known = {n: values for n, values in scores.items() if np.isfinite(values).all()}
    best = max(known, key=lambda n: known[n].mean())
    return next(n for n in sorted(known) if n == best or not is_better(known[n], known[best]))


def _mean_and_error(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
