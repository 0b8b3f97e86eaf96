"""A draw of the concentration alpha given the users' classes, for a given number of classes N.

The counts n_h have likelihood

    Gamma(alpha) / Gamma(U + alpha) * prod_h Gamma(n_h + alpha/N) / Gamma(alpha/N)

and log alpha is drawn by slice sampling with stepping out (Neal 2003).
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.learners.gibbs._partition import log_partition
from lcb.learners.shared.concentration import HIGHEST, LOWEST


def slice_finite(
    alpha: float, sizes: Floats, n_classes: int, prior: tuple[float, float], rng: np.random.Generator
) -> float:
    """Draw alpha for a given number of classes, of which those with users have `sizes`."""
    shape, rate = prior

    def log_density(log_alpha: float) -> float:
        if not LOWEST <= log_alpha <= HIGHEST:
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
