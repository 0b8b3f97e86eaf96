"""The data that benchmarks learn from, and how a learned answer is scored.

S   5 classes, d 10, features on the unit sphere, Gaussian noise .1; class h has weight .8 on features 2h..2h+3, .1 else
M   30 classes, d 6, clicks: features non-negative of length 1, P(click) = .05 + beta . x held inside [.01, .99];
    a class likes 1 to 3 of 6 topics (weight .6, else .02); the reward is the click less .05
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from lcb.stats import UserStats

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Workload:
    x: Array  # (users, rows, d)
    reward: Array  # (users, rows)
    label: NDArray[np.int64]
    beta: Array

    def stats(self) -> UserStats:
        n_users, n_rows, d = self.x.shape
        return UserStats.from_rows(np.repeat(np.arange(n_users), n_rows), self.x.reshape(-1, d), self.reward.ravel())


def classes(kind: str) -> Array:
    if kind == "S":
        beta = np.full((5, 10), 0.1)
        for h in range(5):
            beta[h, (2 * h + np.arange(4)) % 10] = 0.8
        return beta
    liked = [topics for n in (1, 2, 3) for topics in itertools.combinations(range(6), n)]
    beta = np.full((30, 6), 0.02)
    for h, i in enumerate(np.random.default_rng(7).permutation(len(liked))[:30]):
        beta[h, list(liked[i])] = 0.6
    return beta


def make(kind: str, n_users: int, n_rows: int = 20, seed: int = 0) -> Workload:
    rng, beta = np.random.default_rng(seed), classes(kind)
    label = rng.integers(0, len(beta), n_users)
    shape = (n_users, n_rows, beta.shape[1])
    x = rng.uniform(-1, 1, shape) if kind == "S" else rng.standard_normal(shape) ** 2
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    mean = np.einsum("utd,ud->ut", x, beta[label])
    if kind == "S":
        reward = mean + 0.1 * rng.standard_normal(mean.shape)
    else:
        reward = (rng.random(mean.shape) < np.clip(0.05 + mean, 0.01, 0.99)) - 0.05
    return Workload(x, reward, label, beta)


def largest_error(found: Array, true: Array) -> float:
    """Largest L2 error of a class after the best matching."""
    distance = np.linalg.norm(true[:, None] - found[None], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())
