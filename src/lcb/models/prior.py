"""The Normal-inverse-Gamma prior of a class, and its posterior given the class's statistics.

    sigma2 ~ InverseGamma(shape, rate)      beta ~ N(mean, sigma2 * precision^-1)

With a class's summed statistics (gram, moment, square_sum, count) the posterior is of the same kind:

    precision_n = precision + gram          mean_n = precision_n^-1 (precision mean + moment)
    shape_n     = shape + count / 2
    rate_n      = rate + (square_sum + mean' precision mean - mean_n' precision_n mean_n) / 2

EM uses the mode of the posterior, a sampler draws from it.  The scale of the prior determines how many classes a
sampler finds, and keeps variances above 0; the default is scaled from the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.stats import UserStats

SAMPLE = 5_000  # users from whom a prior is scaled
_TINY = 1e-13  # smaller values, relative to their own scale, are rounding


@dataclass(frozen=True, eq=False)
class Prior:
    """`mean` (d,), `precision` (d, d), `shape`, `rate` of one class; `concentration` of the proportions.

    A number stands for a vector of equal values, or a multiple of the identity: `Prior(precision=1.0)` is the identity.
    `concentration` is the weight, in users, of equal proportions.
    """

    mean: ArrayLike = 0.0
    precision: ArrayLike = 1.0
    shape: float = 1.0
    rate: float = 1.0
    concentration: float = 1.0

    def __post_init__(self) -> None:
        for name in ("shape", "rate", "concentration"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"prior {name}={getattr(self, name)}; it must be a positive number")
        mean, precision = np.asarray(self.mean, float), np.asarray(self.precision, float)
        if not np.isfinite(mean).all():
            raise InputError("prior mean has a value that is not a finite number")
        if not np.isfinite(precision).all() or not _is_positive(precision):
            raise InputError("prior precision is not positive: give positive numbers, or a positive definite matrix")

    @classmethod
    def scaled(cls, stats: UserStats) -> Prior:
        """Return a weak prior on the scale of the data, which does not depend on the units of rewards or features.

        The mean is one regression for all.  The noise is the residual variance of a regression per user (of users with
        enough rows).  The spread of the weights is the residual variance of one regression for all beyond that noise,
        distributed over the features by their size.
        """
        if stats.n_users > SAMPLE:
            stats = stats.take(np.linspace(0, stats.n_users - 1, SAMPLE).astype(np.intp))
        total = stats.total.astype(np.float64)
        count = total.count[0]
        size = np.diag(total.gram[0]) / count  # mean square of each feature
        size = np.where(size > 0, size, 1.0)
        reward_size = total.square_sum[0] / count or 1.0  # 1 if all rewards are 0
        mean = _fit_ridge(total, size)[0]
        pooled = max(_sum_residuals(total, mean[None])[0] / count, _TINY * reward_size)

        rich = stats.take(stats.count > stats.n_features).astype(np.float64)
        noise = pooled / 2  # if no user has enough rows to separate noise from spread: half each
        if rich.n_users:
            own = _fit_ridge(rich, size)
            within = np.maximum(_sum_residuals(rich, own), 0.0).sum() / (rich.count - stats.n_features).sum()
            noise = min(max(within, _TINY * reward_size), pooled)
        spread = max(pooled - noise, pooled / 20)
        precision = np.diag(noise / spread * stats.n_features * size)
        return cls(mean=mean, precision=precision, shape=1.0, rate=noise)

    def arrays(self, n_features: int) -> tuple[Floats, Floats]:
        """Return `mean` as (d,) and `precision` as (d, d)."""
        mean, precision = np.asarray(self.mean, float), np.asarray(self.precision, float)
        if mean.shape not in ((), (n_features,)):
            raise InputError(f"prior mean has shape {mean.shape}, the data has {n_features} features")
        if precision.shape in ((), (n_features,)):
            precision = np.diag(np.broadcast_to(precision, (n_features,)))
        if precision.shape != (n_features, n_features):
            raise InputError(f"prior precision has shape {precision.shape}, the data has {n_features} features")
        return np.broadcast_to(mean, (n_features,)), precision

    def mode(self, classes: UserStats, shared: bool) -> tuple[Floats, Floats]:
        """Return the most probable (beta, sigma2) of each class given its statistics; one variance if `shared`."""
        _, beta, square = self._regress(classes)
        n, d = beta.shape
        if shared:
            sigma2 = (square.sum() + 2 * self.rate) / (classes.count.sum() + n * d + 2 * self.shape + 2)
            return beta, np.full(n, sigma2)
        return beta, (square + 2 * self.rate) / (classes.count + d + 2 * self.shape + 2)

    def draw(self, classes: UserStats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw each class's (beta, sigma2) given its statistics."""
        _, _, square = self._regress(classes)
        gamma = rng.standard_gamma(self.shape + 0.5 * classes.count)
        sigma2 = (self.rate + 0.5 * square) / np.maximum(gamma, np.finfo(float).tiny)
        return self.draw_beta(classes, sigma2, rng), sigma2

    def draw_beta(self, classes: UserStats, sigma2: Floats, rng: np.random.Generator) -> Floats:
        """Draw each class's beta given its statistics and variance."""
        precision_n, mean_n, _ = self._regress(classes)
        root = np.linalg.cholesky(precision_n)
        noise = np.linalg.solve(np.swapaxes(root, 1, 2), rng.standard_normal((*mean_n.shape, 1)))[..., 0]
        return np.asarray(mean_n + np.sqrt(sigma2)[:, None] * noise)

    def log_evidence(self, classes: UserStats, sigma2: float | None = None) -> Floats:
        """Return the log density of each class's rewards, beta (and sigma2, unless given) integrated out, (N,)."""
        from scipy.special import gammaln  # its import takes a fifth of a second, and only learning needs it

        precision_n, _, square = self._regress(classes)
        _, precision = self.arrays(classes.n_features)
        count = classes.count
        value = 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(precision_n)[1])
        value = value - 0.5 * count * np.log(2 * np.pi)
        if sigma2 is not None:
            return np.asarray(value - 0.5 * count * np.log(sigma2) - 0.5 * square / sigma2)
        shape_n, rate_n = self.shape + 0.5 * count, self.rate + 0.5 * square
        value += self.shape * np.log(self.rate) - gammaln(self.shape)
        return np.asarray(value + gammaln(shape_n) - shape_n * np.log(rate_n))

    def _regress(self, classes: UserStats) -> tuple[Floats, Floats, Floats]:
        """Return `precision_n` (N, d, d), `mean_n` (N, d) and 2 (`rate_n` - rate) (N,) of each class."""
        mean, precision = self.arrays(classes.n_features)
        precision_n = precision + classes.gram
        beta = np.linalg.solve(precision_n, (precision @ mean + classes.moment)[..., None])[..., 0]
        offset = beta - mean
        square = np.maximum(_sum_residuals(classes, beta), 0.0) + np.einsum("ni,ij,nj->n", offset, precision, offset)
        return precision_n, beta, square

    def log_density(self, pi: Floats, beta: Floats, sigma2: Floats, shared: bool) -> float:
        """Return the log density of class parameters: Dirichlet for `pi`, Normal-inverse-Gamma for the rest."""
        from scipy.special import gammaln

        n, d = beta.shape
        mean, precision = self.arrays(d)
        offset = beta - mean
        square = np.einsum("ni,ij,nj->n", offset, precision, offset)
        normal = 0.5 * (np.linalg.slogdet(precision)[1] - d * np.log(2 * np.pi * sigma2) - square / sigma2)
        variances = sigma2[:1] if shared else sigma2
        gamma = (
            self.shape * np.log(self.rate)
            - gammaln(self.shape)
            - (self.shape + 1) * np.log(variances)
            - self.rate / variances
        )
        share = self.concentration / n
        dirichlet = gammaln(n + self.concentration) - n * gammaln(1 + share) + share * np.log(pi).sum()
        return float(normal.sum() + gamma.sum() + dirichlet)


def _fit_ridge(stats: UserStats, size: Floats) -> Floats:
    """Return regression coefficients of each user, (users, d), with a ridge far below the size of the data."""
    ridge = _TINY * stats.count[:, None, None] * np.diag(size)
    return np.linalg.solve(stats.gram + ridge, stats.moment[..., None])[..., 0]


def _sum_residuals(stats: UserStats, beta: Floats) -> Floats:
    """Return the sum of squared residuals of each user (or class) under its own row of `beta`."""
    fitted = np.einsum("ni,nij,nj->n", beta, stats.gram, beta)
    return stats.square_sum - 2 * np.einsum("ni,ni->n", beta, stats.moment) + fitted


def _is_positive(precision: Floats) -> bool:
    """Whether these are positive numbers, or a positive definite matrix in any units of the features."""
    if precision.ndim < 2 or precision.shape[0] != precision.shape[1]:
        return bool((precision > 0).all())
    size = np.diag(precision)
    return bool((size > 0).all() and np.linalg.eigvalsh(precision / np.sqrt(np.outer(size, size)))[0] > 0)
