"""Small worlds that tests share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from lcb.evaluate.world import World, paper_classes
from lcb.models import LatentModels
from lcb.stats import UserStats

settings.register_profile("no deadline: machines are noisy", deadline=None)
settings.load_profile("no deadline: machines are noisy")


def rows_of(models: LatentModels, n_users: int, n_rows: int, seed: int):
    """Users of these classes with uniform arms: user (n,), x (n, d), reward (n,), label (users,)."""
    rng = np.random.default_rng(seed)
    users = World(models, n_arms=1).draw(n_users, n_rows, rng)
    names = np.repeat(np.arange(n_users), n_rows)
    return names, users.contexts.reshape(len(names), -1), users.rewards.ravel(), users.label


def stats_of(models: LatentModels, n_users: int, n_rows: int, seed: int) -> tuple[UserStats, np.ndarray]:
    names, x, reward, label = rows_of(models, n_users, n_rows, seed)
    return UserStats.from_rows(names, x, reward), label


def largest_error(found: np.ndarray, true: np.ndarray) -> float:
    """Largest distance between true weights and found ones after the best matching."""
    from scipy.optimize import linear_sum_assignment

    distance = np.linalg.norm(true[:, None] - found[None], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def models() -> LatentModels:
    return paper_classes()
