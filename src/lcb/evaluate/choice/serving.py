"""Serves users who were not learned from, on their own labels, with every candidate.

The users are split in two halves; classes learned from one half serve the other.  A user is served for at most half as
many steps as they have labels, because a user whose labels are all taken gives every candidate the same reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.evaluate.choice.candidates import Classes
from lcb.event_log import Clicks, EventLog
from lcb.models import LatentModels
from lcb.progress import Progress, count_up

_MOST_ARMS = 256
_FEWEST_LABELS = 4  # of a user who is served


def can_serve(log: EventLog) -> bool:
    """Whether rewards are counted on a small set of arms, with several labels for most users."""
    if log.clicks is None or len(log.clicks.arms) > _MOST_ARMS:
        return False
    return bool(np.median(log.stats.count) >= _FEWEST_LABELS)


def serve_held_out(
    log: EventLog,
    able: NDArray[np.bool_],
    tried: Sequence[Classes],
    bonuses: Sequence[float],
    n_steps: int,
    rng: np.random.Generator,
    progress: Progress,
) -> dict[tuple[Classes, float], Floats]:
    """Return, by classes and bonus, the mean reward of each user who is `able` (users,), the same users for all."""
    halves = np.array_split(rng.permutation(log.n_users), 2)
    seed = int(rng.integers(2**62))
    done = count_up(progress, "serving held-out users", 2 * len(tried))
    found: dict[tuple[Classes, float], list[Floats]] = {(one, c): [] for one in tried for c in bonuses}
    for i, (learning, held_out) in enumerate((halves, halves[::-1])):
        past, labels = log.take(learning), _labels_of(log, held_out[able[held_out]])
        for j, one in enumerate(tried):
            models = one.learn_trial(past, rng)
            for bonus in bonuses:
                found[one, bonus].append(serve(models, bonus, labels, n_steps, seed + i))
            done(i * len(tried) + j + 1)
    return {one: np.concatenate(parts) for one, parts in found.items()}


def _labels_of(log: EventLog, users: Index) -> Clicks:
    """Return the labels of the users who have enough, with all arms of the log."""
    assert log.clicks is not None
    users = users[log.stats.count[users] >= _FEWEST_LABELS]
    clicks = log.clicks
    return Clicks(clicks.arms, clicks.clicked[users], clicks.passed[users], clicks.low, clicks.high)


def serve(models: LatentModels, bonus: float, labels: Clicks, n_steps: int, seed: int) -> Floats:
    """Return the mean reward of each user under the rule of `PosteriorMean` or `PersonalClasses`, (users,)."""
    from lcb.evaluate.choice._serving_numba import serve_labels

    high, low = labels.clicked.toarray(), labels.passed.toarray()
    steps = np.minimum(n_steps, (high + low).sum(axis=1).astype(np.int64) // 2)
    total = np.empty(len(high))
    serve_labels(high, low, steps, seed, np.array([labels.low, labels.high]), *_terms(models, labels), bonus, total)
    return total / steps


def _terms(models: LatentModels, labels: Clicks) -> Iterator[Floats]:
    """Yield the arms, log pi, and the arms' mean, variance, covariance, noise and log density under each class."""
    x, mean = np.ascontiguousarray(labels.arms), models.beta @ labels.arms.T
    yield from (x, models.log_pi, np.ascontiguousarray(mean))
    if models.personal:
        assert models.covariance is not None
        yield np.einsum("ai,hij,aj->ha", x, models.covariance, x)
        yield from (np.array(models.covariance), models.noise_of(x), np.empty((0, 0, 0)))
        return
    yield from (np.zeros(mean.shape), np.empty((0, 0, 0)), np.empty(0))
    density = [[models.log_density(one, reward) for reward in (labels.low, labels.high)] for one in x]
    yield np.ascontiguousarray(np.array(density).transpose(2, 0, 1))
