"""The data of one line in a chart: means and standard errors of one algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean and standard error of one algorithm `at` each number of users or steps.

    A single run has no standard error: give NaN at every place, and the line has no band.

    >>> Curve("lcb", at=[50, 100], mean=[4.1, 2.8], se=[0.1, 0.1]).algorithm
    'lcb'
    """

    algorithm: str
    at: Sequence[float] | Floats
    mean: Sequence[float] | Floats
    se: Sequence[float] | Floats

    def __post_init__(self) -> None:
        n, n_means, n_errors = len(self.at), len(self.mean), len(self.se)
        if n == 0 or n_means != n or n_errors != n:
            came = f"curve {self.algorithm} has {n} places, {n_means} means and {n_errors} standard errors"
            raise InputError(f"{came}; give as many of each, and at least one")
        se = np.asarray(self.se, dtype=np.float64)
        known = (np.isfinite(se) & (se >= 0)).all()
        if not np.isfinite([*self.at, *self.mean]).all() or not (known or np.isnan(se).all()):
            raise InputError(
                f"curve {self.algorithm} has a value that is not finite, or a standard error below 0; "
                "drop such places; for a single run give NaN as every standard error"
            )
