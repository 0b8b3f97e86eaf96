"""Compiled: serves users from their queues of rewards with classes of either kind, many users at once.

Each class keeps the mean and the variance of the expected reward of every arm of the user and, for personal classes,
the covariance P of the weights; a reward r of arm b with features x changes them by

    v = P x      s = x . v + s2      e = r - mean_b
    mean_a += (x_a . v) e / s        var_a -= (x_a . v)^2 / s        P -= v v' / s
    log w += -e^2 / (2 s) - log(s) / 2

An arm with one feature only (one-hot) takes one row of P and one number of v.
"""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import dot, normalise
from lcb.bandits.over_classes._personal_classes_numba import find_only_feature
from lcb.runtime._copies_numba import copy_matrix, copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_queues(queues, x, log_pi, mean0, var0, cov0, noise, density, middle, bonus, total):  # type: ignore[no-untyped-def]
    """Set total[u] to the sum of the rewards of user u in steps[u] steps.

    `queues` are begin, arm, rewards, size and steps of `Queues`.  mean0 and var0 (N, A) are of the arms' expected
    rewards, noise (N, A) of one reward.  Personal classes have cov0 (N, d, d), point classes an empty one.  Rewards of
    two values, below and above `middle`, can have density (N, A, 2), the log probability of each; it is empty for
    Gaussian rewards.
    """
    begin, arm_of, rewards, size, steps = queues
    n, personal, two_valued = len(log_pi), len(cov0) > 0, len(density) > 0
    most = np.max(begin[1:] - begin[:-1])
    mean, var, cov = np.empty((n, most)), np.empty((n, most)), cov0.copy()
    log_w, w, v, taken = np.empty(n), np.empty(n), np.empty(x.shape[1]), np.empty(most, np.int64)
    only = np.empty(len(x), np.int64)
    for a in range(len(x)):
        only[a] = find_only_feature(x[a])
    for u in range(len(begin) - 1):
        first, n_arms = begin[u], begin[u + 1] - begin[u]
        copy_vector(log_pi, log_w)
        for h in range(len(cov0)):
            copy_matrix(cov0[h], cov[h])
        taken[:] = 0
        for k in range(n_arms):
            copy_vector(mean0[:, arm_of[first + k]], mean[:, k])
            copy_vector(var0[:, arm_of[first + k]], var[:, k])
        total[u] = 0.0
        for _ in range(steps[u]):
            normalise(log_w, w)
            chosen = _best_arm(mean, var, w, bonus, taken, size[first : first + n_arms])
            arm, reward = arm_of[first + chosen], rewards[first + chosen, taken[chosen]]
            taken[chosen] += 1
            total[u] += reward
            for h in range(n):
                if two_valued:
                    log_w[h] += density[h, arm, int(reward > middle)]
                    continue
                s, e = noise[h, arm], reward - mean[h, chosen]
                if personal:
                    v[:] = 0.0
                    for i in range(len(v)):
                        if x[arm, i] != 0.0:
                            for j in range(len(v)):
                                v[j] += x[arm, i] * cov[h, i, j]
                    s += dot(x[arm], v)
                log_w[h] -= 0.5 * (e * e / s + np.log(s))
                if not personal:
                    continue
                for k in range(n_arms):
                    a = arm_of[first + k]
                    g = x[a, only[a]] * v[only[a]] if only[a] >= 0 else dot(x[a], v)
                    mean[h, k] += g * e / s
                    var[h, k] = max(var[h, k] - g * g / s, 0.0)
                for i in range(len(v)):
                    for j in range(len(v)):
                        cov[h, i, j] -= v[i] * v[j] / s


@njit(**EXACT)
def _best_arm(mean, var, w, bonus, taken, size):  # type: ignore[no-untyped-def]
    """Return the arm with rewards left whose mean plus bonus times standard deviation is the highest."""
    best, top = -1, -np.inf
    for a in range(len(size)):
        if taken[a] >= size[a]:
            continue
        centre, spread = 0.0, 0.0
        for h in range(len(w)):
            centre += w[h] * mean[h, a]
        if bonus > 0.0:
            for h in range(len(w)):
                spread += w[h] * ((mean[h, a] - centre) ** 2 + var[h, a])
        score = centre + bonus * np.sqrt(spread)
        if best < 0 or score > top:
            best, top = a, score
    return best
