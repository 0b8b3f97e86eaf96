"""Compiled parts of personal classes: the scores of a context's arms, and serving many users at once.

The posterior of a user is that of mmTS: with L L' the precision of class h and L y the moment of its residuals, the
weights have mean beta + L'^-1 y and covariance (L L')^-1, so an arm has mean beta . x + v . y and variance v . v with
v = L^-1 x.
"""

from __future__ import annotations

import numpy as np

from lcb._compiled import njit
from lcb.bandits._kernels_numba import COMPILED, dot, pick_best, pick_uniform, solve_lower
from lcb.bandits.over_classes._mmts_numba import add_reward, posterior


@njit(**COMPILED)
def score_arms(context, terms, bonus, weights, roots, scaled, scores):  # type: ignore[no-untyped-def]
    """Set scores[k] = mean + bonus * standard deviation of the expected reward; return the best."""
    beta = terms[1]
    v, mean, variance, best = np.empty(beta.shape[1]), np.empty(len(beta)), np.empty(len(beta)), -np.inf
    for k in range(len(context)):
        centre, spread = 0.0, 0.0
        for h in range(len(beta)):
            if weights[h] == 0.0:
                continue
            v[:] = context[k]
            solve_lower(roots[h], v)
            mean[h], variance[h] = dot(beta[h], context[k]) + dot(v, scaled[h]), dot(v, v)
            centre += weights[h] * mean[h]
        for h in range(len(beta)):
            if weights[h] > 0.0:
                spread += weights[h] * ((mean[h] - centre) ** 2 + variance[h])
        scores[k] = centre + bonus * np.sqrt(spread)
        best = max(best, scores[k])
    return best


@njit(**COMPILED)
def find_scale(x, arms, scales):  # type: ignore[no-untyped-def]
    """Return the factor of the features and the reward of an arm; 1 for an arm that is not in `arms`."""
    for a in range(len(arms)):
        j = 0
        while j < len(x) and arms[a, j] == x[j]:
            j += 1
        if j == len(x):
            return scales[a]
    return 1.0


@njit(**COMPILED)
def serve_personal_classes(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, terms, known_arms, scales, n_uniform, uniform_share, bonus
):
    """Update `states` in place and fill `arms` (B, T)."""
    n_users, n_steps, n_arms, d = contexts.shape
    n = len(terms[1])
    weights, roots, scaled = np.empty(n), np.empty((n, d, d)), np.empty((n, d))
    scores, x = np.empty(n_arms), np.empty(d)
    for u in range(n_users):
        state = states[u]
        for t in range(n_steps):
            arm, rest = pick_uniform(uniforms[u, t], 1.0 if t < n_uniform else uniform_share, n_arms)
            if arm < 0:
                posterior(state, terms, weights, roots, scaled)
                best = score_arms(contexts[u, t], terms, bonus, weights, roots, scaled, scores)
                arm = pick_best(scores, best, rest)
            arms[u, t] = arm
            scale = find_scale(contexts[u, t, arm], known_arms, scales)
            for j in range(d):
                x[j] = scale * contexts[u, t, arm, j]
            add_reward(state, x, scale * rewards[u, t, arm])
