"""Convergence diagnostics: split R-hat and effective sample size of scalar draws (Vehtari et al. 2021).

Draws are (chains, draws).  Both are computed on normal scores of the ranks, so that heavy tails do not matter; R-hat
compares the halves of all chains (1: they agree), the effective sample size sums autocorrelations by Geyer's initial
monotone sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import rankdata

from lcb.arrays import Floats

LARGEST_RHAT = 1.1  # of chains that agree; above it the samplers warn


def rhat(draws: ArrayLike) -> float:
    """Return rank-normalised split R-hat, the larger of bulk and folded; 1.0 if all draws are equal.

    >>> rng = np.random.default_rng(0)
    >>> bool(rhat(rng.normal(size=(2, 1000))) < 1.01), bool(rhat(rng.normal(size=(2, 1000)) + [[0.0], [3.0]]) > 1.5)
    (True, True)
    """
    halves = _split_halves(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_score_ranks(halves)), _rhat(_score_ranks(folded)))


def ess(draws: ArrayLike) -> float:
    """Return the effective number of independent draws (bulk).

    >>> bool(1500 < ess(np.random.default_rng(0).normal(size=(2, 1000))) < 2500)
    True
    """
    halves = _score_ranks(_split_halves(draws))
    n = halves.shape[1]
    if np.ptp(halves) == 0:
        return float(halves.size)
    centred = halves - halves.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + halves.mean(axis=1).var(ddof=1)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: n - n % 2].reshape(-1, 2)
    sums = pairs.sum(axis=1)
    end = int(np.argmax(sums < 0)) if (sums < 0).any() else len(sums) - 1
    tau = 2 * np.minimum.accumulate(sums[:end]).sum() - 1 + max(pairs[end, 0], 0.0)
    return float(halves.size / max(tau, 1 / np.log10(halves.size)))


def _split_halves(draws: ArrayLike) -> Floats:
    values = np.atleast_2d(np.asarray(draws, dtype=np.float64))
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _score_ranks(values: Floats) -> Floats:
    ranks = rankdata(values, method="average").reshape(values.shape)
    return np.asarray(ndtri((ranks - 0.375) / (values.size + 0.25)))


def _rhat(halves: Floats) -> float:
    n = halves.shape[1]
    within, between = halves.var(axis=1, ddof=1).mean(), halves.mean(axis=1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else np.inf
    return float(np.sqrt((n - 1) / n + between / within))
