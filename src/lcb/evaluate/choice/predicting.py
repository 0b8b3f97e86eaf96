"""Scores candidates by the later rewards of held-out users, given their earlier ones.

    score_u = log p(all rewards of u) - log p(first half of them)            class and weights of u unknown

Without rows (statistics only) the score is log p(all rewards of u).  Rewards of two values are scored by the Gaussian
density for both kinds of classes, because a density cannot be compared with a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lcb.arrays import Floats
from lcb.evaluate.choice.candidates import Classes
from lcb.event_log import EventLog
from lcb.progress import Progress, count_up
from lcb.stats import UserStats

_HELD_OUT = 0.3  # share of the users


def predict_later_rewards(
    log: EventLog, tried: Sequence[Classes], bonus: float, rng: np.random.Generator, progress: Progress
) -> dict[tuple[Classes, float], Floats]:
    """Return, by classes and `bonus`, the score of each held-out user (users,)."""
    order = rng.permutation(log.n_users)
    n_held_out = max(2, round(_HELD_OUT * len(order)))
    past, held_out = log.take(order[n_held_out:]), log.take(order[:n_held_out])
    earlier = _take_earlier(held_out)
    done = count_up(progress, "predicting held-out users", len(tried))
    scores: dict[tuple[Classes, float], Floats] = {}
    for i, one in enumerate(tried):
        models = one.learn_trial(past, rng)
        if models.levels is not None:
            models = replace(models, likelihood="gaussian", levels=None)
        scores[one, bonus] = models.user_scores(held_out.stats)
        if earlier is not None:
            scores[one, bonus] -= models.user_scores(earlier)
        done(i + 1)
    return scores


def _take_earlier(log: EventLog) -> UserStats | None:
    """Return the statistics of the first half of each user's rows; None if the log has no rows."""
    if log.rows is None:
        return None
    owner, x, reward = log.rows
    order = np.argsort(owner, kind="stable")
    count = np.bincount(owner, minlength=log.n_users)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    first = order[place < (np.repeat(count, count) + 1) // 2]
    return UserStats.from_rows(owner[first], x[first], reward[first], features=log.stats.features)
