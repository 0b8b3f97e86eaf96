"""The state [A, b], (d, d + 1), flattened, of linear bandits that solve A theta = b at every decision.

    A = ridge I + sum x x'        b = sum r x

Unlike rank-one updates of an inverse, these sums accumulate no rounding errors and do not depend on the order of
rewards.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.decision import Decision, check_reward
from lcb.errors import InputError
from lcb.stats import UserStats

_LEAST_RELATIVE_RIDGE = 1e-12


def start(n_features: int, ridge: float) -> Floats:
    return np.eye(n_features, n_features + 1).ravel() * ridge


def train(stats: UserStats, ridge: float) -> Floats:
    """Return the state after all rewards of a log."""
    total = stats.total
    gram = ridge * np.eye(stats.n_features) + total.gram[0]
    return np.concatenate([gram, total.moment[0][:, None]], axis=1).ravel()


def update(state: Floats, decision: Decision, reward: float) -> Floats:
    check_reward(reward)
    x = decision.x
    row = np.empty(len(x) + 1)
    row[:-1] = x
    row[-1] = reward
    return state + (x[:, None] * row).ravel()


@cache
def load_lapack() -> Any:
    """Import SciPy's LAPACK, which takes a fifth of a second; most commands and many services never need it."""
    from scipy.linalg import lapack

    return lapack


def inverse_factor(gram: Floats) -> Floats:
    """Return R, lower triangular, with R' R = `gram`^-1.

    It inverts the Cholesky factor instead of solving with it, because solving for many arms would start BLAS threads.
    """
    lapack = load_lapack()
    lower, failed_at = lapack.dpotrf(gram, lower=1, clean=1)
    if failed_at:
        return _inverse_factor_of_nearly_singular(gram)
    return lapack.dtrtri(lower, lower=1, overwrite_c=1)[0]


def _inverse_factor_of_nearly_singular(gram: Floats) -> Floats:
    """Return R for a sum beside which the ridge was lost to rounding, so that huge features cannot stop decisions.

    The ridge is put back relative to the features: `gram` is scaled to a diagonal of 1 plus the first of 1e-12,
    1e-11, ... that leaves it positive definite.
    """
    diagonal = np.diagonal(gram)
    largest = np.abs(gram).max()
    if not 0 < largest < np.inf:
        raise build_singular_error()
    scale = np.sqrt(np.where(diagonal > 0, diagonal, _LEAST_RELATIVE_RIDGE * largest))
    scaled = np.clip(gram / scale[:, None] / scale, -1.0, 1.0)
    ridge = _LEAST_RELATIVE_RIDGE
    while True:  # ends at the latest where the diagonal dominates
        np.fill_diagonal(scaled, 1.0 + ridge)
        lower, failed_at = load_lapack().dpotrf(scaled, lower=1, clean=1)
        if not failed_at:
            return np.asarray(load_lapack().dtrtri(lower, lower=1, overwrite_c=1)[0] / scale)
        ridge *= 10


def build_singular_error() -> InputError:
    return InputError("the features are so large that adding the ridge changes nothing; scale them, or raise the ridge")


def check_features(n_features: int) -> None:
    if n_features < 1:
        raise InputError(f"n_features={n_features}; there must be at least 1")


def check_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name}={value}; it must be a positive number")


def check_not_negative(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value}; it must be 0 or more")
