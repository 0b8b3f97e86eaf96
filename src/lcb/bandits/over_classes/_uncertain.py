"""Shared by mmTS and personal classes: classes with uncertain weights, and the user's statistics as the state."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lcb.arrays import Floats, lay_out
from lcb.models import LatentModels
from lcb.stats import n_packed

Terms = tuple[Floats, Floats, Floats, Floats, Floats]


class UncertainClasses:
    """Base class: a user of class h has weights drawn from N(models.beta_h, models.covariance_h)."""

    models: LatentModels

    def start(self) -> Floats:
        return np.zeros(n_packed(self.models.n_features))

    def weights(self, state: Floats) -> Floats:
        """Return the posterior probability of each class, (N,)."""
        return self._posterior(state)[0]

    def weights_of_many(self, states: Floats) -> Floats:
        """Return the same for many states, (B, N); the last bits may differ."""
        from lcb.bandits.over_classes._mmts_numba import weights_of_many

        weights = np.empty((len(states), len(self.models.beta)))
        weights_of_many(lay_out(states), self._terms, weights)
        return weights

    def means(self, state: Floats) -> Floats:
        """Return the expected weights of the user in each class, (N, d)."""
        _, roots, scaled = self._posterior(state)
        return np.asarray(self.models.beta + np.linalg.solve(np.tril(roots).swapaxes(1, 2), scaled[..., None])[..., 0])

    @cached_property
    def _terms(self) -> Terms:
        """The prior's precision (N, d, d), beta (N, d), 1 / sigma2 (N,), log pi + log|precision| / 2 (N,) and
        log(2 pi sigma2) / 2 (N,).
        """
        models = self.models
        assert models.covariance is not None
        precision = np.linalg.inv(models.covariance)
        constant = models.log_pi + 0.5 * np.linalg.slogdet(precision)[1]
        return precision, models.beta, 1 / models.sigma2, constant, -models.gaussian[0]

    def _posterior(self, state: Floats) -> tuple[Floats, Floats, Floats]:
        """Return `weights` (N,), the Cholesky roots L of the precisions (N, d, d), and L' (means - beta) (N, d)."""
        from lcb.bandits.over_classes._mmts_numba import posterior

        n, d = self.models.beta.shape
        weights, roots, scaled = np.empty(n), np.empty((n, d, d)), np.empty((n, d))
        posterior(lay_out(state), self._terms, weights, roots, scaled)
        return weights, roots, scaled
