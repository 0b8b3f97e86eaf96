"""Scores classes by how well they predict each reward of a user from the user's other rewards.

    error_u = mean over the user's rewards of (r_i - sum_h w_h m_h(x_i))^2       w: posterior given all rewards but r_i

A likelihood also rises if classes describe the noise better: ratings have less of it near 1 and 5, and few rewards are
Gaussian, so people who are all alike seem to be of several kinds.  This error falls only where what is known of a user
tells what they like.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats, Index
from lcb.event_log import EventLog
from lcb.models import LatentModels

_BLOCK = 1 << 16  # rewards at a time


def score_left_out(models: LatentModels, log: EventLog) -> Floats | None:
    """Return minus the error of each user, (users,); None of personal classes, and of a log without rewards or counts.

    >>> log = EventLog.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[0.9, 0.9, 0.1, 0.1])
    >>> one, two = LatentModels([1.0], [[0.5]], [0.01]), LatentModels([0.5, 0.5], [[0.9], [0.1]], [0.01, 0.01])
    >>> score_left_out(one, log).round(3), score_left_out(two, log).round(3)
    (array([-0.16, -0.16]), array([-0., -0.]))
    """
    if models.personal:
        return None
    if models.levels is not None:
        return _score_clicks(models, log)
    return None if log.rows is None else _score_rows(models, *log.rows, log.n_users)


def _score_rows(models: LatentModels, owner: Index, x: Floats, reward: Floats, n_users: int) -> Floats:
    constant, slope = models.gaussian
    joint = np.tile(models.log_pi, (n_users, 1))
    parts = [slice(i, i + _BLOCK) for i in range(0, len(owner), _BLOCK)]
    for part in parts:
        density = constant - slope * (reward[part, None] - x[part] @ models.beta.T) ** 2
        for h in range(models.n_classes):
            joint[:, h] += np.bincount(owner[part], density[:, h], n_users)
    error = np.zeros(n_users)
    for part in parts:
        mean = x[part] @ models.beta.T
        density = constant - slope * (reward[part, None] - mean) ** 2
        miss = reward[part] - _predict(joint[owner[part]] - density, mean)
        error += np.bincount(owner[part], miss**2, n_users)
    return -error / np.bincount(owner, minlength=n_users)


def _score_clicks(models: LatentModels, log: EventLog) -> Floats | None:
    clicks = log.clicks
    if clicks is None:
        return None
    p = models.click_probability(clicks.arms @ models.beta.T)
    log_p, log_q = np.log(p), np.log(1 - p)
    outcomes = (clicks.clicked, log_p, clicks.high), (clicks.passed, log_q, clicks.low)
    joint = models.log_pi + (clicks.clicked @ log_p + clicks.passed @ log_q)
    mean = clicks.low + (clicks.high - clicks.low) * p
    error, total = np.zeros(log.n_users), np.zeros(log.n_users)
    for count, density, reward in outcomes:
        pairs = count.tocoo()
        for i in range(0, len(pairs.data), _BLOCK):
            user, arm, n = pairs.row[i : i + _BLOCK], pairs.col[i : i + _BLOCK], pairs.data[i : i + _BLOCK]
            miss = reward - _predict(joint[user] - density[arm], mean[arm])
            error += np.bincount(user, n * miss**2, log.n_users)
            total += np.bincount(user, n, log.n_users)
    return -error / total


def _predict(log_weight: Floats, mean: Floats) -> Floats:
    """Return the mean (n, N) of classes with these log weights (n, N), (n,)."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return np.asarray((weight * mean).sum(axis=1) / weight.sum(axis=1))
