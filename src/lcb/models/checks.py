"""Checks of the parameters of latent models: shapes, finite numbers, covariances that are positive definite."""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.errors import ModelError
from lcb.stats import n_packed


def check_covariance(covariance: Floats, beta: Floats) -> Floats:
    n_classes, d = beta.shape
    values = np.array(covariance, dtype=np.float64, order="C")
    if values.shape != (n_classes, d, d):
        raise ModelError(f"covariance has shape {values.shape}, beta {beta.shape}; wanted (N, d, d) and (N, d)")
    if not np.isfinite(values).all():
        raise ModelError(f"covariance has {int((~np.isfinite(values)).sum())} values that are not finite numbers")
    size = np.einsum("hii->hi", values)
    if (size <= 0).any() or not np.allclose(values, values.swapaxes(1, 2), rtol=1e-9, atol=1e-12 * size.max()):
        raise ModelError("covariance is not symmetric with a positive diagonal; weight_covariance makes one")
    root = np.sqrt(size)
    if not _is_positive_definite(values / (root[:, :, None] * root[:, None, :])):
        raise ModelError("covariance is not positive definite; weight_covariance makes one that is")
    values.setflags(write=False)
    return values


def _is_positive_definite(correlations: Floats) -> bool:
    try:
        pivots = np.diagonal(np.linalg.cholesky(correlations), axis1=1, axis2=2)
    except np.linalg.LinAlgError:
        return False
    # a root with a tiny pivot may be due to rounding; the eigenvalues then decide
    return bool(pivots.min() > 1e-6) or bool(np.linalg.eigvalsh(correlations).min() > 0)


def check_sums(sums: Floats, beta: Floats) -> Floats:
    values = np.array(sums, dtype=np.float64)
    if values.shape != (len(beta), n_packed(beta.shape[1])) or not np.isfinite(values).all():
        raise ModelError(
            f"sums of shape {values.shape} for weights of shape {beta.shape}, or not finite; the learner 'mixture' "
            "makes them"
        )
    values.setflags(write=False)
    return values


def check_likelihood(likelihood: str, levels: tuple[float, float] | None) -> None:
    if likelihood not in ("gaussian", "bernoulli"):
        raise ModelError(f"likelihood={likelihood!r}; it is 'gaussian' or 'bernoulli'")
    if (likelihood == "bernoulli") != (levels is not None):
        raise ModelError(
            f"likelihood={likelihood!r} with levels {levels}; a Bernoulli likelihood, and only it, has two"
        )
    if levels is not None and not (len(levels) == 2 and np.isfinite(levels).all() and levels[0] < levels[1]):
        raise ModelError(f"levels {levels}; give the two rewards, the lower first")
