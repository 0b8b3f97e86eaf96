"""Compiled: serves users of known labels with classes of either kind, many users at once.

A user's labels for an arm are drawn without replacement, by a hash of (seed, user, arm, number of the label): every
candidate gets the same labels.  For personal classes each class keeps the mean and the variance of every arm's expected
reward and the covariance P of the weights; a reward r of arm b with features x changes them by

    v = P x      s = x . v + s2      e = r - mean_b
    mean_a += (x_a . v) e / s        var_a -= (x_a . v)^2 / s        P -= v v' / s
    log w += -e^2 / (2 s) - log(s) / 2
"""

from __future__ import annotations

import numpy as np

from lcb._compiled import njit
from lcb.bandits._kernels_numba import COMPILED, dot, normalise


@njit(**COMPILED)
def serve_labels(high, low, steps, seed, levels, x, log_pi, mean0, var0, cov0, noise, density, bonus, total):  # type: ignore[no-untyped-def]
    """Set total[u] to the sum of the rewards of user u in steps[u] steps.

    high, low (U, A) are the numbers of the two labels, mean0 and var0 (N, A) of the arms' expected rewards.  Personal
    classes have cov0 (N, d, d) and noise (A,); point classes an empty cov0 and density (N, A, 2), log p of each label.
    """
    n, n_arms = mean0.shape
    personal = len(cov0) > 0
    mean, var, cov = mean0.copy(), var0.copy(), cov0.copy()
    log_w, w, v = np.empty(n), np.empty(n), np.empty(x.shape[1])
    left_high, left, n_taken = np.empty(n_arms), np.empty(n_arms), np.empty(n_arms, np.int64)
    for u in range(len(high)):
        log_w[:] = log_pi
        left_high[:] = high[u]
        left[:] = high[u] + low[u]
        n_taken[:] = 0
        if personal:
            mean[:], var[:], cov[:] = mean0, var0, cov0
        total[u] = 0.0
        for _ in range(steps[u]):
            normalise(log_w, w)
            arm = _best_arm(mean, var, w, bonus, left)
            uniform = _hash(seed, u, arm, n_taken[arm])
            is_high = uniform * left[arm] < left_high[arm]
            left_high[arm] -= is_high
            left[arm] -= 1
            n_taken[arm] += 1
            reward = levels[int(is_high)]
            total[u] += reward
            for h in range(n):
                if not personal:
                    log_w[h] += density[h, arm, int(is_high)]
                    continue
                for i in range(len(v)):
                    v[i] = dot(cov[h, i], x[arm])
                s, e = dot(x[arm], v) + noise[arm], reward - mean[h, arm]
                log_w[h] -= 0.5 * (e * e / s + np.log(s))
                for a in range(n_arms):
                    g = dot(x[a], v)
                    mean[h, a] += g * e / s
                    var[h, a] = max(var[h, a] - g * g / s, 0.0)
                for i in range(len(v)):
                    for j in range(len(v)):
                        cov[h, i, j] -= v[i] * v[j] / s


@njit(**COMPILED)
def _best_arm(mean, var, w, bonus, left):  # type: ignore[no-untyped-def]
    """Return the arm with labels left whose mean plus bonus times standard deviation is the highest."""
    best, top = -1, -np.inf
    for a in range(mean.shape[1]):
        if left[a] < 1:
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


@njit(**COMPILED)
def _hash(seed, user, arm, number):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1) from four integers (SplitMix64)."""
    z = np.uint64(seed)
    for part in (user, arm, number):
        z = (z + np.uint64(part)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * 2.0**-53
