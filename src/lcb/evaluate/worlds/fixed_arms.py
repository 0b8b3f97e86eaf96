"""A world of fixed arms without features: every step offers the same K arms, and a class is K expected rewards.

Arm a has the one-hot features e_a, so the context is the identity, and contextual algorithms run here too, with d = K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcb.evaluate.worlds.paper import SimulatedUsers, draw_rewards
from lcb.models import LatentModels


@dataclass(frozen=True)
class FixedArms:
    """`models.beta` (N, K) are expected rewards; rewards are Gaussian, or two-valued if `models.levels` is set.

    >>> from lcb.evaluate.worlds.paper import equal_classes
    >>> world = FixedArms(equal_classes(np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]])))
    >>> users = world.draw(2, n_steps=4, rng=np.random.default_rng(0))
    >>> world.n_arms, users.contexts.shape, users.means[:, 0]
    (3, (2, 4, 3, 3), array([[0.2, 0.8, 0.5], [0.9, 0.1, 0.5]]))
    """

    models: LatentModels

    @property
    def n_arms(self) -> int:
        return self.models.n_features

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest mean minus four standard deviations to highest plus four; few in 100,000 rewards lie outside."""
        if self.models.levels is not None:
            return self.models.levels
        spread = 4 * float(np.sqrt(self.models.sigma2.max()))
        return float(self.models.beta.min()) - spread, float(self.models.beta.max()) + spread

    def draw(self, n_users: int, n_steps: int, rng: np.random.Generator | int) -> SimulatedUsers:
        """Draw new users with `n_steps` steps each; `rng` is a generator or a seed."""
        rng = np.random.default_rng(rng)
        models, k = self.models, self.n_arms
        label = rng.choice(models.n_classes, size=n_users, p=models.pi)
        contexts = np.tile(np.eye(k), (n_users, n_steps, 1, 1))
        means = np.repeat(models.beta[label][:, None], n_steps, axis=1)
        return SimulatedUsers(label, contexts, *draw_rewards(models, label, means, rng))
