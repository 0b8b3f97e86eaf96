"""Compiled sweep of collapsed Gibbs; the formulas are in `collapsed.py`.

A class is a column of summed statistics, with the prior precision added to its gram.  For one user, the columns of all
classes with the user added (and of the user's own class without) are eliminated at once: the inner loops run over
classes, so that they are vectorised.  A pivot of precision + gram is at least that of the precision alone; it is
clipped there, so that rounding cannot make it negative.
"""

from __future__ import annotations

import math

import numpy as np

from lcb.learners.shared._exp_numba import COMPILED, fast_exp
from lcb.runtime.compiled import njit

LANES = 8  # columns are padded to a multiple of this
_GROUP = 8  # pivots multiplied before their log is taken
# rows of the working columns beside the statistics
INVERSE, FACTOR, DET, LOG_DET, N_EXTRA = 0, 1, 2, 3, 4


@njit(**COMPILED)
def eliminate(work, extra, floor, n):  # type: ignore[no-untyped-def]
    """Eliminate `n` columns of statistics in place: set log determinants in `extra[LOG_DET]`, and replace square_sum by
    the part that the class's own regression does not explain (at least 0).
    """
    d = len(floor)
    n_gram = d * (d + 1) // 2
    inverse, factor, det, log_det = extra[INVERSE], extra[FACTOR], extra[DET], extra[LOG_DET]
    square_sum = work[n_gram + d]
    for h in range(n):
        det[h] = 1.0
        log_det[h] = 0.0
    start = 0
    for j in range(d):
        pivot, moment, least = work[start], work[n_gram + j], floor[j]
        for h in range(n):
            value = max(pivot[h], least)
            inverse[h] = 1.0 / value
            det[h] *= value
        for h in range(n):
            square_sum[h] -= moment[h] * moment[h] * inverse[h]
        target = start + d - j
        for i in range(j + 1, d):
            column = work[start + i - j]
            for h in range(n):
                factor[h] = column[h] * inverse[h]
            for k in range(i - j, d - j):
                left, right = work[target], work[start + k]
                for h in range(n):
                    left[h] -= factor[h] * right[h]
                target += 1
            left = work[n_gram + i]
            for h in range(n):
                left[h] -= factor[h] * moment[h]
        start += d - j
        if j % _GROUP == _GROUP - 1 or j == d - 1:
            for h in range(n):
                log_det[h] += np.log(det[h])
                det[h] = 1.0
    for h in range(n):
        square_sum[h] = max(square_sum[h], 0.0)


@njit(**COMPILED)
def evidence(log_det, unexplained, count, hyper, n, out):  # type: ignore[no-untyped-def]
    """Set `out` to the log evidence of `n` eliminated columns; `hyper` is `Design.hyper`."""
    constant, shape, rate, sigma2 = hyper[0], hyper[1], hyper[2], hyper[3]
    if sigma2 > 0.0:  # one variance for all classes, given
        slope, log_sigma2 = 0.5 / sigma2, np.log(2 * np.pi * sigma2)
        for h in range(n):
            out[h] = constant - 0.5 * log_det[h] - slope * unexplained[h] - 0.5 * log_sigma2 * count[h]
        return
    for h in range(n):
        a_n = shape + 0.5 * count[h]
        out[h] = (
            constant
            + math.lgamma(a_n)
            - a_n * np.log(rate + 0.5 * unexplained[h])
            - 0.5 * log_det[h]
            - 0.9189385332046727 * count[h]
        )


@njit(**COMPILED)
def class_evidence(sums, work, extra, floor, hyper, n, out):  # type: ignore[no-untyped-def]
    """Set `out` to the log evidence of the first `n` classes."""
    for k in range(len(sums)):
        for h in range(n):
            work[k, h] = sums[k, h]
    eliminate(work, extra, floor, n)
    evidence(extra[LOG_DET], work[-2], work[-1], hyper, n, out)


@njit(**COMPILED)
def evidence_of(sums, floor, hyper):  # type: ignore[no-untyped-def]
    """Return the log evidence of every column of `sums`."""
    out = np.empty(sums.shape[1])
    class_evidence(sums, np.empty(sums.shape), np.empty((N_EXTRA, len(out))), floor, hyper, len(out), out)
    return out


@njit(**COMPILED)
def add_members(rows, members, label, sums, size):  # type: ignore[no-untyped-def]
    """Add the statistics of `members` to the columns of their `label`."""
    for m in range(len(members)):
        u, h = members[m], label[m]
        size[h] += 1.0
        for k in range(rows.shape[1]):
            sums[k, h] += rows[u, k]


@njit(**COMPILED)
def add_rows(rows, label, sums, size):  # type: ignore[no-untyped-def]
    """Add every user's statistics to its class's column."""
    for u in range(len(rows)):
        h = label[u]
        size[h] += 1.0
        for k in range(rows.shape[1]):
            sums[k, h] += rows[u, k]


@njit(**COMPILED)
def alone(rows, precision, floor, log_det, unexplained):  # type: ignore[no-untyped-def]
    """Set `log_det` and `unexplained` of each user in a class of its own."""
    p = rows.shape[1]
    work, extra = np.empty((p, LANES)), np.empty((N_EXTRA, LANES))
    for first in range(0, len(rows), LANES):
        n = min(LANES, len(rows) - first)
        for k in range(p):
            for h in range(LANES):
                work[k, h] = precision[k] + (rows[first + h, k] if h < n else 0.0)
        eliminate(work, extra, floor, LANES)
        for h in range(n):
            log_det[first + h] = extra[LOG_DET, h]
            unexplained[first + h] = work[-2, h]


@njit(**COMPILED)
def sweep(  # type: ignore[no-untyped-def]
    rows,
    alone_log_det,
    alone_unexplained,
    label,
    sums,
    size,
    log_evidence,
    floor,
    hyper,
    share,
    log_new,
    uniform,
    first,
    n_slots,
):
    """Draw the class of every user from `first` on, given all others.

    Class h has weight size_h + `share`, a new one exp(`log_new`) (-inf: never).  The last column stays empty.
    Returns the user at whom the columns ran out (the number of users, if they did not), and the columns in use.
    """
    n_users, p = rows.shape
    capacity = sums.shape[1]
    last = capacity - 1
    work, extra = np.empty((p, capacity)), np.empty((N_EXTRA, capacity))
    moved, weight, log_size = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    new = np.empty(1)
    own_log_det, own_unexplained, own_count = np.empty(1), np.empty(1), np.empty(1)
    for h in range(capacity):
        log_size[h] = np.log(size[h] + share)
    free = 0
    for u in range(first, n_users):
        old = label[u]
        n = (n_slots + LANES - 1) // LANES * LANES
        for k in range(p):
            x = rows[u, k]
            for h in range(n):
                work[k, h] = sums[k, h] + x
            work[k, old] = sums[k, old] - x
        eliminate(work, extra, floor, n)
        evidence(extra[LOG_DET], work[-2], work[-1], hyper, n, moved)
        for h in range(n):
            weight[h] = log_size[h] + moved[h] - log_evidence[h]
        left = size[old] - 1.0
        weight[old] = np.log(left + share) + log_evidence[old] - moved[old]
        fresh = -1
        if log_new > -np.inf:
            if left == 0.0:
                fresh = old
            else:
                while free < last and size[free] > 0.0:
                    free += 1
                if free == last:
                    return u, n_slots
                fresh = free
            own_log_det[0], own_unexplained[0] = alone_log_det[u], alone_unexplained[u]
            own_count[0] = rows[u, p - 1]
            evidence(own_log_det, own_unexplained, own_count, hyper, 1, new)
            weight[fresh] = log_new + new[0]
        n_weights = max(n_slots, fresh + 1)
        top = -np.inf
        for h in range(n_weights):
            top = max(top, weight[h])
        total = 0.0
        for h in range(n_weights):
            weight[h] = fast_exp(weight[h] - top)
        for h in range(n_weights):
            total += weight[h]
        target, chosen = uniform[u] * total, -1
        for h in range(n_weights):
            if weight[h] > 1e-290:  # classes with less are impossible
                chosen = h
                target -= weight[h]
                if target < 0.0:
                    break
        if chosen == old:
            continue
        joined = new[0] if chosen == fresh else moved[chosen]
        for k in range(p):
            x = rows[u, k]
            sums[k, old] -= x
            sums[k, chosen] += x
        log_evidence[old], log_evidence[chosen] = moved[old], joined
        size[old] = left
        size[chosen] += 1.0
        log_size[old], log_size[chosen] = np.log(left + share), np.log(size[chosen] + share)
        label[u] = chosen
        n_slots = max(n_slots, chosen + 1)
        if left == 0.0:
            free = min(free, old)
            log_evidence[old] = log_evidence[last]
            for k in range(p):  # clear rounding errors
                sums[k, old] = sums[k, last]
    return n_users, n_slots
