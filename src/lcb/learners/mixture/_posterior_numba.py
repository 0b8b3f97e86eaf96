"""Compiled steps of the mixture: what the sums of classes imply for their weights, and EM steps of the hyperparameters.

Sums of a class are packed as in `lcb.stats.UserStats`.  `lcb.learners.mixture.sample` has the formulas.
"""

from __future__ import annotations

import numpy as np

from lcb.learners.mixture._seats_numba import factorise
from lcb.runtime._copies_numba import copy_matrix, copy_vector
from lcb.runtime.compiled import EXACT, njit

_LEAST_NOISE = 1e-6  # of the mean square of the rewards


@njit(**EXACT)
def invert(matrix, out, work):  # type: ignore[no-untyped-def]
    """Set `out` to the inverse of a positive definite matrix, of which the lower triangle is used and replaced."""
    d = len(matrix)
    factorise(matrix)
    for i in range(d):  # rows of the inverse of the Cholesky root
        work[i, :] = 0.0
        work[i, i] = 1.0
        for k in range(i):
            factor = matrix[i, k]
            if factor == 0.0:  # as for one-hot features
                continue
            for j in range(k + 1):
                work[i, j] -= factor * work[k, j]
        for j in range(i + 1):
            work[i, j] /= matrix[i, i]
    out[:] = 0.0
    for i in range(d):
        for j in range(i + 1):
            factor = work[i, j]
            if factor == 0.0:
                continue
            for k in range(j + 1):
                out[j, k] += factor * work[i, k]
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]


@njit(**EXACT)
def _invert_precision(sums, variance, noise, gram, out, work):  # type: ignore[no-untyped-def]
    """Set `out` to (A / noise + I / variance)^-1.

    Where features are so large that rounding would lose the second part, by eigenvalues, which then stay within 1e-10
    of the largest, so that the result is positive definite.
    """
    d, place, trace = len(gram), 0, 0.0
    for i in range(d):
        for j in range(i, d):
            gram[i, j] = gram[j, i] = sums[place] / noise
            place += 1
        trace += gram[i, i]
    if variance * trace < 1e10:
        for i in range(d):
            gram[i, i] += 1 / variance
        invert(gram, out, work)
        return
    values, vectors = np.linalg.eigh(gram)
    inverse = 1 / (np.maximum(values, 0.0) + 1 / variance)
    copy_matrix((vectors * np.maximum(inverse, 1e-10 * inverse.max())) @ vectors.T, out)


@njit(**EXACT)
def find_posterior(sums, variance, noise, scale):  # type: ignore[no-untyped-def]
    """Return V (H, d, d), V_m (d, d), m (d,), means (H, d) and covariances (H, d, d) of classes with `sums` (H, p)."""
    n, d = len(sums), int((np.sqrt(8 * sums.shape[1] - 7) - 3) / 2 + 0.5)  # p = d (d + 1) / 2 + d + 2
    at = d * (d + 1) // 2
    v, means, covariances = np.empty((n, d, d)), np.zeros((n, d)), np.empty((n, d, d))
    precision, moment, v_mean = np.eye(d) / scale, np.zeros(d), np.empty((d, d))
    gram, work, mean = np.empty((d, d)), np.empty((d, d)), np.zeros(d)
    for h in range(n):
        _invert_precision(sums[h], variance, noise, gram, v[h], work)
        for i in range(d):
            for j in range(d):
                precision[i, j] -= v[h, i, j] / variance**2
                means[h, i] += v[h, i, j] * sums[h, at + j] / noise
            precision[i, i] += 1 / variance
            moment[i] += means[h, i] / variance
    invert(precision, v_mean, work)
    for i in range(d):
        for j in range(d):
            mean[i] += v_mean[i, j] * moment[j]
    for h in range(n):
        for i in range(d):
            for j in range(d):
                means[h, i] += v[h, i, j] * mean[j] / variance
        _add_from_mean(v[h], v_mean, variance, work, covariances[h])
    return v, v_mean, mean, means, covariances


@njit(**EXACT)
def _add_from_mean(v, v_mean, variance, work, covariance):  # type: ignore[no-untyped-def]
    """Set `covariance` to V + V V_m V / variance^2, exactly symmetric."""
    d = len(v)
    work[:] = 0.0
    for i in range(d):
        for k in range(d):
            factor = v[i, k] / variance**2
            if factor == 0.0:
                continue
            for j in range(d):
                work[i, j] += factor * v_mean[k, j]
    for i in range(d):
        for j in range(i + 1):
            total = v[i, j]
            for k in range(d):
                total += work[i, k] * v[j, k]
            covariance[i, j] = covariance[j, i] = total


@njit(**EXACT)
def step_hyperparameters(sums, variance, noise, scale):  # type: ignore[no-untyped-def]
    """Return the noise, variance and scale after an EM step, and the mean of classes before it."""
    v, v_mean, mean, means, covariances = find_posterior(sums, variance, noise, scale)
    n, d = means.shape
    at = d * (d + 1) // 2
    residual, square, count, spread, size = 0.0, 0.0, 0.0, 0.0, 0.0
    toward = np.empty((d, d))
    for h in range(n):
        place = 0
        for i in range(d):
            residual -= 2 * means[h, i] * sums[h, at + i]
            for j in range(i, d):
                twice = 1.0 if i == j else 2.0
                residual += twice * sums[h, place] * (means[h, i] * means[h, j] + covariances[h, i, j])
                place += 1
            size += means[h, i] ** 2 + covariances[h, i, i]
            spread += (means[h, i] - mean[i]) ** 2 + v[h, i, i]
            for j in range(d):
                toward[i, j] = v[h, i, j] / variance - (1.0 if i == j else 0.0)
        for i in range(d):
            for k in range(d):
                total = 0.0
                for j in range(d):
                    total += toward[i, j] * v_mean[j, k]
                spread += total * toward[i, k]
        square += sums[h, at + d]
        count += sums[h, at + d + 1]
    new_scale = size / (n * d)
    new_noise = max((residual + square + noise) / (count + 1), _LEAST_NOISE * square / max(count, 1e-300))
    return new_noise, (spread + d * new_scale) / ((n + 2) * d), new_scale, mean


@njit(**EXACT)
def describe_samples(sums, recent, first, hyper):  # type: ignore[no-untyped-def]
    """Return pi, beta, noise and covariance of the classes of all samples, each with its new class last.

    Classes first[s] to first[s + 1] are those of sample s; `hyper` (samples, 4) has its variance, noise, scale
    and concentration.
    """
    d = int((np.sqrt(8 * sums.shape[1] - 7) - 3) / 2 + 0.5)
    n_samples = len(hyper)
    n = len(sums) + n_samples
    pi, beta, noise, covariance = np.empty(n), np.empty((n, d)), np.empty(n), np.empty((n, d, d))
    for s in range(n_samples):
        begin, end = first[s], first[s + 1]
        _, v_mean, mean, means, covariances = find_posterior(sums[begin:end], hyper[s, 0], hyper[s, 1], hyper[s, 2])
        here, new = begin + s, end + s
        total = (recent[begin:end].sum() + hyper[s, 3]) * n_samples
        for h in range(end - begin):
            pi[here + h] = recent[begin + h] / total
            copy_matrix(covariances[h], covariance[here + h])
        pi[new] = hyper[s, 3] / total
        copy_matrix(means, beta[here:new])
        copy_vector(mean, beta[new])
        copy_matrix(v_mean, covariance[new])
        for i in range(d):
            covariance[new, i, i] += hyper[s, 0]
        noise[here : new + 1] = hyper[s, 1]
    return pi, beta, noise, covariance
