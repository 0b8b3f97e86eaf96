"""The normal distributions of the classes for one user, kept from reward to reward as compiled serving keeps them.

A reward changes them by one row, in O(N d^2), and arms are scored by one vector and one matrix for all classes.
`PersonalClasses.choose` makes them from the user's statistics at every decision, in O(N (d^3 + K d^2)).  Results are
the same but for rounding.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.over_classes._mmts_numba import keep_likely
from lcb.bandits.over_classes._personal_classes_numba import (
    STEPS_KEPT,
    add_to_normals,
    find_normals,
    score_normals,
)
from lcb.bandits.over_classes.personal_classes import PersonalClasses


class KeptNormals:
    """For a bandit without noise per arm, and a user with these statistics.

    >>> from lcb.models import LatentModels
    >>> models = LatentModels(pi=[1.0], beta=[[0.5, 0.5]], sigma2=[0.01], covariance=[np.diag([0.0001, 0.04])])
    >>> bandit = PersonalClasses(models)
    >>> kept = KeptNormals(bandit, bandit.start())
    >>> kept.score(np.eye(2)), kept.add(np.array([0.0, 1.0]), 0.3)
    (array([0.505, 0.6  ]), True)
    >>> kept.means.round(3)
    array([[0.5 , 0.34]])
    """

    def __init__(self, bandit: PersonalClasses, state: Floats) -> None:
        models = bandit.models
        assert models.covariance is not None
        assert models.arms is None
        n, d = models.beta.shape
        self.bandit, self._n = bandit, 0
        self.log_w, self.means, self.covariances = models.log_pi.copy(), models.beta.copy(), models.covariance.copy()
        if state[-1] > 0:
            find_normals(state, bandit._terms, self.log_w, self.means, self.covariances)
        self._inverse = 1 / models.sigma2
        self._weights, self._mean, self._spread, self._gain = np.empty(n), np.empty(d), np.empty((d, d)), np.empty(d)

    def score(self, context: Floats) -> Floats:
        """Return the expected reward plus the bonus of each arm, (K,)."""
        scores, only = np.empty(len(context)), np.empty(len(context), np.int64)
        keep_likely(self.log_w, self._weights)
        score_normals(
            np.ascontiguousarray(context), only, self.bandit.bonus, self._weights, self.means, self.covariances,
            self._mean, self._spread, scores,
        )  # fmt: skip
        return scores

    def add(self, x: Floats, reward: float) -> bool:
        """Add a reward; return False if rounding adds up, so that all must be made from the statistics again."""
        self._n += 1
        accurate = add_to_normals(
            np.ascontiguousarray(x), reward, self._inverse, self.log_w, self.means, self.covariances, self._gain
        )
        return bool(accurate) and self._n < STEPS_KEPT
