"""Compiled restricted Gibbs scan of a split-merge move."""

from __future__ import annotations

import numpy as np

from lcb.learners.gibbs._gibbs_numba import LOG_DET, N_EXTRA, eliminate, evidence
from lcb.learners.shared._exp_numba import COMPILED
from lcb.runtime.compiled import njit


@njit(**COMPILED)
def restricted_scan(  # type: ignore[no-untyped-def]
    rows, members, side, forced, sums, size, log_evidence, floor, hyper, share, uniform
):
    """Draw one of two sides for each of `members` given all others; return the log probability of the outcome.

    `side` -1 is a member without a side yet.  If `forced` is not empty, it is the outcome.
    """
    p, two = rows.shape[1], 2
    work, extra, moved = np.empty((p, two)), np.empty((N_EXTRA, two)), np.empty(two)
    log_probability = 0.0
    for m in range(len(members)):
        u, old = members[m], side[m]
        for k in range(p):
            x = rows[u, k]
            work[k, 0] = sums[k, 0] - x if old == 0 else sums[k, 0] + x
            work[k, 1] = sums[k, 1] - x if old == 1 else sums[k, 1] + x
        eliminate(work, extra, floor, two)
        evidence(extra[LOG_DET], work[-2], work[-1], hyper, two, moved)
        n_0, n_1 = size[0] - (old == 0), size[1] - (old == 1)
        gain_0 = log_evidence[0] - moved[0] if old == 0 else moved[0] - log_evidence[0]
        gain_1 = log_evidence[1] - moved[1] if old == 1 else moved[1] - log_evidence[1]
        log_odds = np.log(n_1 + share) + gain_1 - np.log(n_0 + share) - gain_0  # of side 1
        if len(forced):
            new = forced[m]
        else:
            new = 1 if uniform[m] * (1.0 + np.exp(-log_odds)) < 1.0 else 0
        against = -log_odds if new == 1 else log_odds
        log_probability -= against + np.log1p(np.exp(-against)) if against > 0 else np.log1p(np.exp(against))
        if new == old:
            continue
        for k in range(p):
            x = rows[u, k]
            sums[k, new] += x
            if old >= 0:
                sums[k, old] -= x
        log_evidence[new] = moved[new]
        size[new] += 1.0
        if old >= 0:
            log_evidence[old] = moved[old]
            size[old] -= 1.0
        side[m] = new
    return log_probability
