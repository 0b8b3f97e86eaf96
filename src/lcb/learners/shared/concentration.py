"""A draw of the concentration alpha of a Dirichlet process given the users' classes (Escobar & West 1995).

With alpha ~ Gamma(shape, rate) and k classes among U users:

    eta ~ Beta(alpha + 1, U)      alpha ~ Gamma(shape + k, r) or Gamma(shape + k - 1, r),   r = rate - log eta
    with odds (shape + k - 1) : U r
"""

from __future__ import annotations

import numpy as np

LOWEST, HIGHEST = -30.0, 30.0  # of log alpha


def escobar_west(
    alpha: float, n_occupied: int, n_users: float, prior: tuple[float, float], rng: np.random.Generator
) -> float:
    """Draw alpha, given its last value; `n_users` may be a sum of weights."""
    shape, rate = prior
    rate_n = rate - np.log(max(rng.beta(alpha + 1, n_users), 1e-300))
    odds = (shape + n_occupied - 1) / (n_users * rate_n)
    extra = rng.random() * (1 + odds) < odds
    drawn = rng.gamma(shape + n_occupied - (0 if extra else 1)) / rate_n
    return float(np.clip(drawn, np.exp(LOWEST), np.exp(HIGHEST)))
