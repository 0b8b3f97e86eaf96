"""Draws of the concentration alpha given the users' classes.

Dirichlet process, alpha ~ Gamma(shape, rate), k classes among U users (Escobar & West 1995):

    eta ~ Beta(alpha + 1, U)      alpha ~ Gamma(shape + k, r) or Gamma(shape + k - 1, r),   r = rate - log eta
    with odds (shape + k - 1) : U r

With a given number of classes N, the counts n_h have likelihood

    Gamma(alpha) / Gamma(U + alpha) * prod_h Gamma(n_h + alpha/N) / Gamma(alpha/N)

and log alpha is drawn by slice sampling with stepping out (Neal 2003).
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.learners.gibbs._partition import log_partition

_LOWEST, _HIGHEST = -30.0, 30.0  # of log alpha


def escobar_west(
    alpha: float, n_occupied: int, n_users: int, prior: tuple[float, float], rng: np.random.Generator
) -> float:
    """Draw alpha for the Dirichlet process."""
    shape, rate = prior
    rate_n = rate - np.log(max(rng.beta(alpha + 1, n_users), 1e-300))
    odds = (shape + n_occupied - 1) / (n_users * rate_n)
    extra = rng.random() * (1 + odds) < odds
    return _clip(rng.gamma(shape + n_occupied - (0 if extra else 1)) / rate_n)


def slice_finite(
    alpha: float, sizes: Floats, n_classes: int, prior: tuple[float, float], rng: np.random.Generator
) -> float:
    """Draw alpha for a given number of classes, of which those with users have `sizes`."""
    shape, rate = prior

    def log_density(log_alpha: float) -> float:
        if not _LOWEST <= log_alpha <= _HIGHEST:
            return -np.inf
        value = float(np.exp(log_alpha))
        return shape * log_alpha - rate * value + log_partition(sizes, value, n_classes)

    here = float(np.log(alpha))
    level = log_density(here) + np.log(rng.random())
    low = here - rng.random()
    high = low + 1.0
    while log_density(low) > level:
        low -= 1.0
    while log_density(high) > level:
        high += 1.0
    while True:
        log_alpha = rng.uniform(low, high)
        if log_density(log_alpha) > level or high - low < 1e-12:
            return float(np.exp(log_alpha))
        low, high = (log_alpha, high) if log_alpha < here else (low, log_alpha)


def _clip(alpha: float) -> float:
    return float(np.clip(alpha, np.exp(_LOWEST), np.exp(_HIGHEST)))
