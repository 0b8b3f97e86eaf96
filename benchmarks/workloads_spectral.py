"""The data the spectral learner is measured on, and the error it is measured by.

simulation   5 classes, 10 features of length 1, Gaussian rewards (sigma .1): weights .8 on four features, .1 elsewhere
clicks       5 classes, 6 features >= 0 of length 1: a click with probability .05 + x.beta, .6 on one feature
             and .02 elsewhere; the reward is the click less .05, so that it is linear in the features
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from lcb.arrays import Floats


@dataclass(frozen=True, eq=False)
class Rows:
    user: NDArray[np.intp]
    x: Floats
    reward: Floats
    beta: Floats  # of the classes the users were drawn from


def simulation(n_users: int, n_steps: int, seed: int, sigma: float = 0.1) -> Rows:
    rng = np.random.default_rng(seed)
    beta = np.full((5, 10), 0.1)
    for h in range(5):
        beta[h, [(2 * h + j) % 10 for j in range(4)]] = 0.8
    label = rng.integers(0, 5, n_users)
    x = _unit(rng.uniform(-1, 1, (n_users * n_steps, 10)))
    user = np.repeat(np.arange(n_users), n_steps)
    mean = (x * beta[label[user]]).sum(axis=1)
    return Rows(user, x, mean + sigma * rng.standard_normal(len(mean)), beta)


def clicks(n_users: int, n_steps: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    beta = np.full((5, 6), 0.02)
    beta[range(5), range(5)] = 0.6
    label = rng.integers(0, 5, n_users)
    x = _unit(rng.standard_normal((n_users * n_steps, 6)) ** 2)
    user = np.repeat(np.arange(n_users), n_steps)
    chance = np.clip(0.05 + (x * beta[label[user]]).sum(axis=1), 0.01, 0.99)
    return Rows(user, x, (rng.random(len(chance)) < chance) - 0.05, beta)


def max_error(found: Floats, beta: Floats) -> float:
    """The largest distance of a class to its estimate, classes matched so that the sum is smallest."""
    distance = np.linalg.norm(beta[:, None] - found[None], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))
