"""The generated world of the paper's section "Simulation".

Users belong to latent classes; each step offers K arms with features drawn uniformly from [-1, 1]^d and scaled to
length 1; the reward of an arm is N(beta_c . x, noise^2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.models import LatentModels


def paper_classes(noise: float = 0.1, n_classes: int = 5, n_features: int = 10) -> LatentModels:
    """Return five classes of ten weights, four of them high: .5 on features 2h..2h+3, .1 elsewhere, scaled to norm 1.

    >>> paper_classes().beta[0].round(3)
    array([0.486, 0.486, 0.486, 0.486, 0.097, 0.097, 0.097, 0.097, 0.097, 0.097])
    """
    beta = np.full((n_classes, n_features), 0.1)
    for h in range(n_classes):
        beta[h, (2 * h + np.arange(4)) % n_features] = 0.5
    return equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True), noise)


def equal_classes(beta: Floats, noise: float = 0.1) -> LatentModels:
    """Return classes with weights `beta` (N, d), equally common and equally noisy."""
    n_classes = len(beta)
    return LatentModels(np.full(n_classes, 1 / n_classes), beta, np.full(n_classes, noise**2))


@dataclass(frozen=True, eq=False)
class SimulatedUsers:
    """Users of a simulated world, with the reward that every arm would give at every step."""

    label: NDArray[np.int64]  # (B,) the class of each
    contexts: Floats = field(repr=False)  # (B, T, K, d)
    means: Floats = field(repr=False)  # (B, T, K) expected reward of every arm
    rewards: Floats = field(repr=False)  # (B, T, K) the reward every arm would give

    def regret(self, arms: NDArray[np.int64]) -> Floats:
        """Return each user's expected regret against the best arm of every step, (B,)."""
        taken = np.take_along_axis(self.means, arms[..., None], axis=2)[..., 0]
        return np.asarray((self.means.max(axis=2) - taken).sum(axis=1))


@dataclass(frozen=True)
class SimulatedWorld:
    """The true classes, and the number of arms per step.

    >>> users = SimulatedWorld(paper_classes(), n_arms=20).draw(3, n_steps=4, rng=np.random.default_rng(0))
    >>> users.contexts.shape, users.rewards.shape
    ((3, 4, 20, 10), (3, 4, 20))
    """

    models: LatentModels
    n_arms: int = 20

    def __post_init__(self) -> None:
        if self.n_arms < 1:
            raise InputError(f"n_arms={self.n_arms}; a step offers at least 1 arm")

    @property
    def reward_range(self) -> tuple[float, float]:
        """± (largest possible mean + four standard deviations); few in 100,000 rewards lie outside."""
        bound = float(np.linalg.norm(self.models.beta, axis=1).max() + 4 * np.sqrt(self.models.sigma2.max()))
        return -bound, bound

    def draw(self, n_users: int, n_steps: int, rng: np.random.Generator | int) -> SimulatedUsers:
        """Draw new users with `n_steps` steps each; `rng` is a generator or a seed."""
        rng = np.random.default_rng(rng)
        models = self.models
        label = rng.choice(models.n_classes, size=n_users, p=models.pi)
        contexts = rng.uniform(-1, 1, (n_users, n_steps, self.n_arms, models.n_features))
        contexts /= np.sqrt(np.vecdot(contexts, contexts))[..., None]
        means = np.matmul(contexts, models.beta[label][:, None, :, None])[..., 0]
        return SimulatedUsers(label, contexts, *draw_rewards(models, label, means, rng))


def draw_rewards(models: LatentModels, label: Index, means: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the true means (users, T, K) and rewards drawn from them: clicks of click models, else with noise."""
    if models.levels is None:
        noise = np.sqrt(models.sigma2[label])[:, None, None]
        return means, means + noise * rng.standard_normal(means.shape)
    low, high = models.levels
    p = models.click_probability(means.copy())
    return low + (high - low) * p, np.where(rng.random(means.shape) < p, high, low)
