"""Chooses the number of classes that predicts held-out users best.

Each number has two scores of every held-out user: the log predictive density of their rewards, their class unknown, and
how well each reward is predicted from the others (`left_out`; not for personal classes, nor where there are statistics
only).  More classes are better if both scores are, by more than one standard error of the difference, paired by user;
if the second is by four, the density need only be higher, because single rewards far off make its error large.
The smallest number to which the one with the highest density is not better is chosen.  Numbers are doubled until two in
a row are no better, or one of at least 16; then numbers between the neighbours of the best are tried, then smaller ones
while they are as good.  Numbers that differ by less than an eighth are not told apart.

More than one class is a finding of its own: people differ.  The best of several numbers is easily better than one by an
error, so it must be by two; where the held-out users do not tell by four, every user is held out once, which loses few
true classes in small logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.learners.shared.left_out import score_left_out
from lcb.learners.shared.users import Users
from lcb.models import LatentModels
from lcb.progress import Progress, silent
from lcb.words import format_count

_HELD_OUT = 0.3  # share of the users
_USUAL_TRIALS = 12  # numbers of classes tried, to estimate the time left
MOST_USERS = 10_000  # more users are not used to choose the number
_APART = 8  # numbers that differ by less than n / 8 are not tried
_MANY = 16  # classes from which on one number that is no better ends the doubling
_SURE, _LEAST = 4.0, 2.0  # standard errors by which more classes are better: beyond doubt; than one, at least
_PARTS = 4  # of the other users, each held out too where the first were not sure

Learn = Callable[[EventLog, int], LatentModels]
Scores = dict[int, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class NumberOfClasses:
    """A number of classes and why it was chosen."""

    n_classes: int
    scores: Scores  # of each number tried: the mean held-out density per user, and the error of its gap to the best
    why: str
    models: LatentModels  # so many classes, learned from `learning`
    own_scores: HeldOut  # of the users `held_out`
    learning: EventLog
    held_out: EventLog


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The scores of each held-out user, (users,)."""

    density: Floats  # -inf: these classes cannot be learned
    left_out: Floats | None

    @classmethod
    def score(cls, models: LatentModels, held_out: EventLog) -> HeldOut:
        left_out = score_left_out(models, held_out) if isinstance(models, LatentModels) else None
        return cls(models.user_scores(held_out), left_out)

    def beats(self, other: HeldOut) -> bool:
        """Whether both scores are better than those of `other`: by a standard error, or the second by four."""
        denser = is_better(other.density, self.density)
        if self.left_out is None or other.left_out is None:
            return denser
        if denser:
            return is_better(other.left_out, self.left_out)
        return self.density.mean() > other.density.mean() and _count_errors(self.rise_over(other)) > _SURE

    def rise_over(self, other: HeldOut) -> Floats:
        """Return by how much each user is predicted better than by `other`."""
        if self.left_out is None or other.left_out is None:
            return self.density - other.density
        return self.left_out - other.left_out


def choose_n_classes(
    log: EventLog | Users,
    learn: Learn,
    *,
    rng: np.random.Generator,
    most: int | None = None,
    progress: Progress = silent,
) -> NumberOfClasses:
    """Choose the number of classes for these users; `learn` learns so many from some of them.

    The error in `scores` is the standard error of the difference to the best number, paired by user: the one that
    decides.
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

    scores: dict[int, HeldOut] = {}
    learned: dict[int, LatentModels] = {}

    def score(n_classes: int) -> HeldOut:
        if n_classes not in scores:
            progress("choosing the number of classes", len(scores), _USUAL_TRIALS)
            try:
                learned[n_classes] = learn(learning, n_classes)
                scores[n_classes] = HeldOut.score(learned[n_classes], held_out)
            except InputError:
                if n_classes == 1:
                    raise
                scores[n_classes] = HeldOut(np.full(held_out.n_users, -np.inf), None)
        return scores[n_classes]

    score(1)
    best, n, misses = 1, 2, 0
    while n <= most and misses < 2:
        if score(n).beats(score(best)):
            best, misses = n, 0
        else:
            misses += 2 if n >= _MANY else 1
        n = min(2 * n, most) if n < most else most + 1
    tried = sorted(scores)
    low = tried[max(0, tried.index(best) - 1)]
    high = tried[min(len(tried) - 1, tried.index(best) + 1)]
    _narrow(score, low, best, high)
    chosen = _find_fewest(score, scores)
    known = {n: scores[n].density for n in sorted(scores) if np.isfinite(scores[n].density).all()}
    best = max(known, key=lambda n: float(known[n].mean()))
    means = {n: (float(value.mean()), _mean_and_error(known[best] - value)[1]) for n, value in known.items()}
    why = _explain(chosen, best, means)
    if chosen > 1:
        rise = scores[chosen].rise_over(scores[1])
        if _count_errors(rise) < _SURE:
            parts = [part for part in np.array_split(order[n_held_out:], _PARTS) if len(part)]
            rise = np.concatenate([rise, *(_hold_out(log, learn, order, part, chosen) for part in parts)])
        if _count_errors(rise) < _LEAST:
            why = (
                f"{format_count(chosen, 'class', 'are')} better than one by {_count_errors(rise):.1f} standard errors "
                f"when every user is held out once, and {_LEAST:g} are asked for"
            )
            chosen = 1
    why = f"{format_count(chosen, 'class')}: {why}"
    return NumberOfClasses(chosen, means, why, learned[chosen], scores[chosen], learning, held_out)


def _hold_out(log: EventLog | Users, learn: Learn, users: Index, held_out: Index, n_classes: int) -> Floats:
    """Return by how much `n_classes` learned from the other users predict these better than one class."""
    here, others = log.take(held_out), log.take(np.setdiff1d(users, held_out))
    one, many = (HeldOut.score(learn(others, n), here) for n in (1, n_classes))
    return many.rise_over(one)


def _explain(chosen: int, best: int, means: Scores) -> str:
    (mean, error), top = means[chosen], means[best][0]
    tried = f"tried {', '.join(map(str, means))}"
    if chosen == best:
        return f"the best held-out log likelihood per user ({mean:.3f}; {tried})"
    gap = f"{mean:.3f}, {top - mean:.3f} ± {error:.3f} below that of {best}; {tried}"
    if top - mean <= error:
        return f"the fewest within one standard error of the best held-out log likelihood per user ({gap})"
    return (
        "the fewest that predict a held-out user's rewards from the others as well as the number with the best "
        f"log likelihood per user does ({gap})"
    )


def _narrow(score: Callable[[int], HeldOut], low: int, best: int, high: int) -> None:
    """Try numbers between the neighbours of the best until none is left, or ten have been tried."""
    for _ in range(10):
        left, right = (low + best) // 2, (best + high + 1) // 2
        candidates = [n for n in (left, right) if n not in (low, best, high) and _are_apart(n, best)]
        if not candidates:
            return
        for n in candidates:
            if score(n).density.mean() > score(best).density.mean():
                low, best, high = (low, n, best) if n < best else (best, n, high)
                break
            low, high = (n, high) if n < best else (low, n)


def _find_fewest(score: Callable[[int], HeldOut], scores: dict[int, HeldOut]) -> int:
    """Return the smallest number to which the best is not better, trying smaller ones by bisection."""
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


def _pick_smallest(scores: dict[int, HeldOut]) -> int:
    known = {n: own for n, own in scores.items() if np.isfinite(own.density).all()}
    best = max(known, key=lambda n: known[n].density.mean())
    return next(n for n in sorted(known) if n == best or not known[best].beats(known[n]))


def _mean_and_error(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _count_errors(rise: Floats) -> float:
    """Return the mean in units of its standard error, infinite if the error is 0 and the mean is not."""
    mean, error = _mean_and_error(rise)
    if error > 0:
        return mean / error
    return float(np.copysign(np.inf, mean)) if mean else 0.0
