"""Compiled parts of personal classes: the scores of a context's arms, and serving many users at once.

The posterior of a user is that of mmTS: with L L' the precision of class h and L y the moment of its residuals, the
weights have mean beta + L'^-1 y and covariance (L L')^-1, so an arm has mean beta . x + v . y and variance v . v with
v = L^-1 x.

Serving keeps the normal distribution N(m_h, P_h) of each class while it serves a user, because a reward changes it by
one row (a Kalman step), where the posterior from the statistics needs a Cholesky factor of each class:

    e = r - m_h . x     s = x' P_h x + s2_h     log w_h -= e^2 / 2s + log(s) / 2     m_h += P_h x e / s
    P_h -= P_h x x' P_h / s

The mean and the variance of an arm over all classes are those of one vector and one matrix, m . x and x' C x with

    m = sum_h w_h m_h     C = sum_h w_h (P_h + (m_h - m)(m_h - m)')

Where every arm has one feature only (one-hot), just the diagonal of C is made, and P_h x is one row of P_h.

The statistics stay the state: the distributions are made from them at a user's first decision, and again after
`STEPS_KEPT` rewards or a reward that would lose digits, so that rounding does not add up.
"""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import dot, pick_best, pick_uniform, solve_lower
from lcb.bandits.over_classes._mmts_numba import add_reward, keep_likely, log_posterior
from lcb.runtime._copies_numba import copy_matrix, copy_vector
from lcb.runtime.compiled import EXACT, njit

STEPS_KEPT = 100  # rewards after which the distributions are made from the statistics again
_LEAST_NOISE = 1e-6  # of a reward's variance; below it, the subtraction from P_h loses too many digits


@njit(**EXACT)
def score_arms(context, terms, bonus, weights, roots, scaled, scores, means):  # type: ignore[no-untyped-def]
    """Set means[k], of the expected reward, and scores[k] = mean + bonus * standard deviation; return the best."""
    beta = terms[1]
    v, mean, variance, best = np.empty(beta.shape[1]), np.empty(len(beta)), np.empty(len(beta)), -np.inf
    for k in range(len(context)):
        centre, spread = 0.0, 0.0
        for h in range(len(beta)):
            if weights[h] == 0.0:
                continue
            copy_vector(context[k], v)
            solve_lower(roots[h], v)
            mean[h], variance[h] = dot(beta[h], context[k]) + dot(v, scaled[h]), dot(v, v)
            centre += weights[h] * mean[h]
        for h in range(len(beta)):
            if weights[h] > 0.0:
                spread += weights[h] * ((mean[h] - centre) ** 2 + variance[h])
        scores[k], means[k] = centre + bonus * np.sqrt(spread), centre
        best = max(best, scores[k])
    return best


@njit(**EXACT)
def find_scale(x, arms, scales):  # type: ignore[no-untyped-def]
    """Return the factor of the features and the reward of an arm; 1 for an arm that is not in `arms`."""
    for a in range(len(arms)):
        j = 0
        while j < len(x) and arms[a, j] == x[j]:
            j += 1
        if j == len(x):
            return scales[a]
    return 1.0


@njit(**EXACT)
def find_normals(state, terms, log_w, means, covariances):  # type: ignore[no-untyped-def]
    """Set `log_w` (N,), `means` (N, d) and `covariances` (N, d, d) of the classes from the user's statistics."""
    beta = terms[1]
    n, d = beta.shape
    roots, scaled, v = np.empty((n, d, d)), np.empty((n, d)), np.empty((d, d))
    log_posterior(state, terms, log_w, roots, scaled)
    for h in range(n):
        v[:] = 0.0  # the rows are those of L'^-1
        for i in range(d):
            v[i, i] = 1.0
            solve_lower(roots[h], v[i])
            means[h, i] = beta[h, i] + dot(v[i], scaled[h])
        for i in range(d):
            for j in range(i + 1):
                covariances[h, i, j] = covariances[h, j, i] = dot(v[i], v[j])


@njit(**EXACT)
def add_to_normals(x, reward, inverse, log_w, means, covariances, gain):  # type: ignore[no-untyped-def]
    """Add one reward to every class; return False if digits were lost, so that `find_normals` must be used."""
    d, accurate = len(x), True
    for h in range(len(log_w)):
        covariance, noise = covariances[h], 1 / inverse[h]
        gain[:] = 0.0
        for i in range(d):
            if x[i] != 0.0:
                for j in range(d):
                    gain[j] += x[i] * covariance[i, j]
        size, error = dot(gain, x) + noise, reward - dot(means[h], x)
        accurate = accurate and noise > _LEAST_NOISE * size
        log_w[h] -= 0.5 * (error * error / size + np.log(size))
        for i in range(d):
            step = gain[i] / size
            means[h, i] += step * error
            for j in range(d):
                covariance[i, j] -= step * gain[j]
    return accurate


@njit(**EXACT)
def find_only_feature(x):  # type: ignore[no-untyped-def]
    """Return the place of the only feature that is not 0; -1 if there are several, or none."""
    only = -1
    for j in range(len(x)):
        if x[j] != 0.0:
            if only >= 0:
                return -1
            only = j
    return only


@njit(**EXACT)
def score_normals(  # type: ignore[no-untyped-def]
    context, only, bonus, weights, means, covariances, mean, spread, scores
):
    """Set `scores` as `score_arms` does; return the best.

    `only` (K,), `mean` (d,) and `spread` (d, d) are scratch: the only feature of each arm, and m and C of all classes.
    """
    d, best, one_hot = len(mean), -np.inf, True
    mean[:], spread[:] = 0.0, 0.0
    for k in range(len(context)):
        only[k] = find_only_feature(context[k]) if one_hot else -1
        one_hot = only[k] >= 0
    for h in range(len(weights)):
        for i in range(d):
            mean[i] += weights[h] * means[h, i]
    for h in range(len(weights)):
        if weights[h] == 0.0:
            continue
        for i in range(d):
            apart = means[h, i] - mean[i]
            if one_hot:
                spread[i, i] += weights[h] * (covariances[h, i, i] + apart * apart)
                continue
            for j in range(d):
                spread[i, j] += weights[h] * (covariances[h, i, j] + apart * (means[h, j] - mean[j]))
    for k in range(len(context)):
        centre, variance = 0.0, 0.0
        if one_hot:
            i = only[k]
            centre, variance = context[k, i] * mean[i], context[k, i] * spread[i, i] * context[k, i]
        else:
            for i in range(d):
                row = 0.0
                for j in range(d):
                    row += spread[i, j] * context[k, j]
                variance += context[k, i] * row
                centre += context[k, i] * mean[i]
        scores[k] = centre + bonus * np.sqrt(max(variance, 0.0))
        best = max(best, scores[k])
    return best


@njit(**EXACT)
def serve_personal_classes(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, terms, known_arms, scales, n_uniform, uniform_share, bonus
):
    """Update `states` in place and fill `arms` (B, T)."""
    n_users, n_steps, n_arms, d = contexts.shape
    n = len(terms[1])
    first_log_w, first_means, first_covariances = np.empty(n), np.empty((n, d)), np.empty((n, d, d))
    find_normals(np.zeros(states.shape[1]), terms, first_log_w, first_means, first_covariances)
    log_w, means, covariances = np.empty(n), np.empty((n, d)), np.empty((n, d, d))
    weights, mean, spread = np.empty(n), np.empty(d), np.empty((d, d))
    scores, x, gain, only = np.empty(n_arms), np.empty(d), np.empty(d), np.empty(n_arms, np.int64)
    for u in range(n_users):
        state, n_kept = states[u], -1  # rewards added to the distributions, or -1 if they must be made first
        for t in range(n_steps):
            arm, rest = pick_uniform(uniforms[u, t], 1.0 if t < n_uniform else uniform_share, n_arms)
            if arm < 0:
                if n_kept < 0 and state[-1] == 0.0:
                    copy_vector(first_log_w, log_w)
                    copy_matrix(first_means, means)
                    for h in range(n):
                        copy_matrix(first_covariances[h], covariances[h])
                    n_kept = 0
                elif n_kept < 0:
                    find_normals(state, terms, log_w, means, covariances)
                    n_kept = 0
                keep_likely(log_w, weights)
                best = score_normals(contexts[u, t], only, bonus, weights, means, covariances, mean, spread, scores)
                arm = pick_best(scores, best, rest)
            arms[u, t] = arm
            scale = find_scale(contexts[u, t, arm], known_arms, scales)
            for j in range(d):
                x[j] = scale * contexts[u, t, arm, j]
            reward = scale * rewards[u, t, arm]
            add_reward(state, x, reward)
            if n_kept >= 0:
                accurate = add_to_normals(x, reward, terms[2], log_w, means, covariances, gain)
                n_kept = n_kept + 1 if accurate and n_kept < STEPS_KEPT else -1
