"""Compiled steps of the mixture: the density of a user's rewards in a class, and Gibbs sweeps over users.

The statistics of a user or of a class are packed as in `lcb.stats.UserStats`: the upper triangle of sum x x', sum r x,
sum r^2, count.  `prior` is the prior of a class: its mean (d,), its variance (of each weight) and the noise.
"""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def factorise(matrix):  # type: ignore[no-untyped-def]
    """Replace the lower triangle by its Cholesky root; return half the log determinant.

    Features of very different sizes can round a pivot to 0 or below; it is then 1e-15 of its diagonal element.
    """
    d, half_log_det = len(matrix), 0.0
    for j in range(d):
        least = 1e-15 * matrix[j, j]
        for k in range(j):
            factor = matrix[j, k]
            if factor == 0.0:  # as for one-hot features
                continue
            for i in range(j, d):
                matrix[i, j] -= matrix[i, k] * factor
        pivot = np.sqrt(max(matrix[j, j], least))
        matrix[j, j] = pivot * pivot
        half_log_det += np.log(pivot)
        for i in range(j, d):
            matrix[i, j] /= pivot
    return half_log_det


@njit(**EXACT)
def _solve_root(root, y):  # type: ignore[no-untyped-def]
    for i in range(len(y)):
        for k in range(i):
            y[i] -= root[i, k] * y[k]
        y[i] /= root[i, i]


@njit(**EXACT)
def describe_class(sums, prior_mean, variance, noise, precision, mean, work):  # type: ignore[no-untyped-def]
    """Set the `precision` (lower triangle) and `mean` of the weights of a class; return half its log determinant."""
    d = len(mean)
    at, place = d * (d + 1) // 2, 0
    for i in range(d):
        mean[i] = sums[at + i] / noise + prior_mean[i] / variance
        for j in range(i, d):
            precision[j, i] = work[j, i] = sums[place] / noise
            place += 1
        precision[i, i] += 1 / variance
        work[i, i] = precision[i, i]
    half_log_det = factorise(work)
    _solve_root(work, mean)
    for i in range(d - 1, -1, -1):
        for k in range(i + 1, d):
            mean[i] -= work[k, i] * mean[k]
        mean[i] /= work[i, i]
    return half_log_det


@njit(**EXACT)
def log_predictive(user, noise, precision, mean, half_log_det, work, y):  # type: ignore[no-untyped-def]
    """Return the log density of a user's rewards in a class, its weights integrated out."""
    d = len(mean)
    at, place = d * (d + 1) // 2, 0
    square = user[at + d]
    for i in range(d):
        y[i] = user[at + i]
        square -= mean[i] * user[at + i]
    for i in range(d):
        for j in range(i, d):
            value = user[place]
            work[j, i] = precision[j, i] + value / noise
            y[i] -= value * mean[j]
            if j > i:
                y[j] -= value * mean[i]
            place += 1
    for i in range(d):
        square -= mean[i] * y[i]  # y is the moment of the residuals now, and this their square sum
        y[i] /= noise
    half_with_user = factorise(work)
    _solve_root(work, y)
    explained = 0.0
    for i in range(d):
        explained += y[i] * y[i]
    constant = user[at + d + 1] * np.log(2 * np.pi * noise)
    return half_log_det - half_with_user + 0.5 * (explained - square / noise - constant)


@njit(**EXACT)
def draw_seats(  # type: ignore[no-untyped-def]
    rows, weights, label, order, uniforms, sums, mass, mass_weights, counts, prior, concentration
):
    """Draw the class of each user of `order`, one after another, given the classes of all others; all in place.

    A user who is seated leaves their class first.  `mass` (slots,) is the prior weight of each class: the sum of
    `mass_weights` of its users.  `sums` (slots, p) are their statistics times `weights`.  Slots without users (`counts`
    0) are free for new classes.  Return the number of users done: fewer than all if no slot is free any more.
    """
    prior_mean, variance, noise = prior
    d, slots, p = len(prior_mean), len(mass), rows.shape[1]
    precision, mean, half = np.empty((slots + 1, d, d)), np.empty((slots + 1, d)), np.empty(slots + 1)
    work, y, log_w = np.empty((d, d)), np.empty(d), np.empty(slots + 1)
    for h in range(slots):
        if counts[h] > 0:
            half[h] = describe_class(sums[h], prior_mean, variance, noise, precision[h], mean[h], work)
    half[slots] = describe_class(np.zeros(p), prior_mean, variance, noise, precision[slots], mean[slots], work)
    for q in range(len(order)):
        u = order[q]
        before = label[u]
        free = -1
        for h in range(slots - 1, -1, -1):
            if counts[h] == 0 or (h == before and counts[h] == 1):
                free = h
        if free < 0:
            return q
        if before >= 0:
            _add(sums[before], rows[u], -weights[u])
            mass[before] -= mass_weights[u]
            counts[before] -= 1
            if counts[before] == 0:
                mass[before] = 0.0
                sums[before] = 0.0
            else:
                half[before] = describe_class(
                    sums[before], prior_mean, variance, noise, precision[before], mean[before], work
                )
        for h in range(slots):
            log_w[h] = -np.inf
            if counts[h] > 0:
                log_w[h] = np.log(max(mass[h], 1e-300))
                log_w[h] += log_predictive(rows[u], noise, precision[h], mean[h], half[h], work, y)
        log_w[slots] = np.log(concentration)
        log_w[slots] += log_predictive(rows[u], noise, precision[slots], mean[slots], half[slots], work, y)
        drawn = _draw(log_w, uniforms[q])
        if drawn == slots:
            drawn = free
        label[u] = drawn
        _add(sums[drawn], rows[u], weights[u])
        mass[drawn] += mass_weights[u]
        counts[drawn] += 1
        half[drawn] = describe_class(sums[drawn], prior_mean, variance, noise, precision[drawn], mean[drawn], work)
    return len(order)


@njit(**EXACT)
def _add(sums, row, weight):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        sums[k] += weight * row[k]


@njit(**EXACT)
def _draw(log_w, uniform):  # type: ignore[no-untyped-def]
    """Draw an index in proportion to exp(log_w)."""
    top, total = log_w.max(), 0.0
    for h in range(len(log_w)):
        total += np.exp(log_w[h] - top)
    wanted, cumulative, drawn = uniform * total, 0.0, 0
    for h in range(len(log_w)):
        share = np.exp(log_w[h] - top)
        if share > 0.0:
            cumulative += share
            drawn = h
            if cumulative > wanted:
                break
    return drawn
