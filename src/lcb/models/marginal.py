"""Likelihood of a user's rewards when users of one class differ: their weights are N(beta_h, covariance_h).

Rewards enter divided by their noise: `gram` = sum x x' / sigma2, `moment` = sum r x / sigma2 and `constant` =
sum log(2 pi sigma2) + sum r^2 / sigma2.  With z = moment - gram beta_h and L = covariance_h^-1 + gram

    -2 log p(rewards | class h) = constant - beta_h . moment - beta_h . z - z' L^-1 z + log|L| + log|covariance_h|

The noise is one number, or one per arm where every user's rewards are counted by arm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lcb.arrays import Floats, Index
from lcb.event_log import Clicks
from lcb.stats import UserStats, upper

_LOG_2PI = float(np.log(2 * np.pi))
_BLOCK = 1024  # users at a time
_LEAST = 1e-12  # of the mean squared reward: less noise than this is lost in rounding


@dataclass(frozen=True, eq=False)
class Totals:
    """The rewards of many users in all."""

    count: Floats  # (A,) rewards with each noise
    square: float  # sum of their squares

    @property
    def least(self) -> Floats:
        """The least noise that is computable, (A,)."""
        return np.full(len(self.count), _LEAST * self.square / self.count.sum())

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.count + other.count, self.square + other.square)


class SharedNoise:
    """The rewards of many users by their statistics, with one noise for all: A = 1."""

    def __init__(self, stats: UserStats) -> None:
        self.stats, self.n_users = stats, stats.n_users
        self.arms: Floats | None = None

    def total(self) -> Totals:
        """Return the numbers of rewards and the squares of all users."""
        count = np.array([self.stats.count.sum(dtype=np.float64)])
        return Totals(count, float(self.stats.packed[-2].sum(dtype=np.float64)))

    def take(self, users: Index) -> SharedNoise:
        """Return the users at these positions."""
        return SharedNoise(self.stats.take(users))

    def divide(self, sigma2: Floats, users: slice) -> tuple[Floats, Floats, Floats]:
        """Upper triangles of `gram` (n, d (d + 1) / 2), `moment` (n, d) and `constant` (n,) under noise (A,)."""
        packed, d = self._take(users), self.stats.n_features
        constant = packed[:, -1] * (_LOG_2PI + np.log(sigma2[0])) + packed[:, -2] / sigma2[0]
        packed /= sigma2[0]
        return packed[:, : -d - 2], packed[:, -d - 2 : -2], constant

    def sum_residuals(self, users: slice, mean: Floats, square: Floats) -> Floats:
        """Expected squared residuals for each noise, (A,), of users with weights of mean (n, d) and E[w w']."""
        packed, d = self._take(users), self.stats.n_features
        fitted = np.sum(packed[:, : -d - 2] * square * count_twice(d)) - 2 * np.sum(packed[:, -d - 2 : -2] * mean)
        return np.array([packed[:, -2].sum() + fitted])

    def _take(self, users: slice) -> Floats:
        return np.array(self.stats.packed[:, users].T, np.float64, order="C")


class NoisePerArm:
    """The same by counts of two-valued rewards of a fixed set of A arms, with a noise for each arm."""

    def __init__(self, clicks: Clicks) -> None:
        self.arms, self.n_users = clicks.arms, clicks.clicked.shape[0]
        self.clicks = clicks
        rows, columns = upper(self.arms.shape[1])
        self._products = self.arms[:, rows] * self.arms[:, columns]

    def total(self) -> Totals:
        clicks = self.clicks
        n_clicked, n_passed = (np.asarray(part.sum(axis=0), np.float64) for part in (clicks.clicked, clicks.passed))
        return Totals(n_clicked + n_passed, float(clicks.high**2 * n_clicked.sum() + clicks.low**2 * n_passed.sum()))

    def take(self, users: Index) -> NoisePerArm:
        """Return the users at these positions, with all arms."""
        return NoisePerArm(replace(self.clicks, clicked=self.clicks.clicked[users], passed=self.clicks.passed[users]))

    def divide(self, sigma2: Floats, users: slice) -> tuple[Floats, Floats, Floats]:
        count, total, square = self._take(users)
        constant = count @ (_LOG_2PI + np.log(sigma2)) + square @ (1 / sigma2)
        return (count / sigma2) @ self._products, (total / sigma2) @ self.arms, constant

    def sum_residuals(self, users: slice, mean: Floats, square: Floats) -> Floats:
        count, total, squares = self._take(users)
        fitted = square @ (self._products * count_twice(self.arms.shape[1])).T
        return np.asarray((squares - 2 * total * (mean @ self.arms.T) + count * fitted).sum(axis=0))

    def _take(self, users: slice) -> tuple[Floats, Floats, Floats]:
        """Rewards, their sum and the sum of their squares for each user and arm, (n, A)."""
        low, high = self.clicks.low, self.clicks.high
        clicked, passed = self.clicks.clicked[users].toarray(), self.clicks.passed[users].toarray()
        return clicked + passed, high * clicked + low * passed, high**2 * clicked + low**2 * passed


Rewards = SharedNoise | NoisePerArm


def count_twice(n_features: int) -> Floats:
    """Return how often each entry of a packed upper triangle is in the whole matrix: 1 on the diagonal, else 2."""
    rows, columns = upper(n_features)
    return np.where(rows == columns, 1.0, 2.0)


def marginal_log_likelihood(rewards: Rewards, sigma2: Floats, beta: Floats, covariance: Floats) -> Floats:
    """Log density of all rewards of each user under each class, the user's own weights integrated out, (users, N).

    >>> stats = UserStats.from_rows(user=[0, 0], x=[[1.0], [1.0]], reward=[1.0, 0.0])
    >>> marginal_log_likelihood(SharedNoise(stats), np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))).round(4)
    array([[-2.7205]])
    """
    precision = np.linalg.inv(covariance)
    log_size = np.linalg.slogdet(covariance)[1]
    found = np.empty((rewards.n_users, len(beta)))
    rows, columns = upper(beta.shape[1])
    for begin in range(0, rewards.n_users, _BLOCK):
        users = slice(begin, min(begin + _BLOCK, rewards.n_users))
        packed, moment, constant = rewards.divide(sigma2, users)
        gram = np.empty((len(packed), beta.shape[1], beta.shape[1]))
        gram[:, rows, columns] = gram[:, columns, rows] = packed
        for h, mean in enumerate(beta):
            z = moment - gram @ mean
            root = _factor(precision[h] + gram)
            y = np.linalg.solve(root, z[..., None])[..., 0]
            log_root = np.log(np.einsum("uii->ui", root)).sum(axis=1)
            square = constant - moment @ mean - z @ mean - np.square(y).sum(axis=1)
            found[users, h] = -0.5 * (square + log_size[h]) - log_root
    return found


def _factor(matrices: Floats) -> Floats:
    """Return the Cholesky factors of positive definite matrices, (n, d, d).

    Rounding can take that from the matrix of a user with features of 1e9 and fewer rewards than features.  Then all get
    a ridge of the size of the rounding, or of ten times as much if need be.

    >>> x = np.array([3e8, 1e9 / 3, 7e8])
    >>> bool(np.isfinite(_factor((np.eye(3) + np.outer(x, x))[None])).all())
    True
    """
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        ridge = np.spacing(np.einsum("uii->u", matrices))
        for _ in range(8):
            try:
                return np.linalg.cholesky(matrices + ridge[:, None, None] * np.eye(matrices.shape[1]))
            except np.linalg.LinAlgError:
                ridge = 10 * ridge
        raise
