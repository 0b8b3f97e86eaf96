"""Compiled posterior mean for many users at once; makes the same choices as `PosteriorMean`."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import arm_scores, dot, log_density, normalise, pick_best, pick_uniform
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_posterior_mean(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, beta, density, n_uniform, uniform_share, bonus
):
    """Update `states` (B, N) in place and fill `arms` (B, T)."""
    n_users, n_steps, n_arms, d = contexts.shape
    kind, constant, slope, low, high, edge = density
    scores, mean, w, expected = np.empty(n_arms), np.empty(d), np.empty(len(beta)), np.empty(len(beta))
    for u in range(n_users):
        log_w = states[u]
        normalise(log_w, w)
        for t in range(n_steps):
            arm, rest = pick_uniform(uniforms[u, t], 1.0 if t < n_uniform else uniform_share, n_arms)
            if arm < 0 and bonus > 0.0:
                arm = pick_best(scores, _scores_with_bonus(contexts[u, t], beta, w, bonus, expected, scores), rest)
            elif arm < 0:
                mean[:] = 0.0
                for h in range(len(beta)):
                    for j in range(d):
                        mean[j] += w[h] * beta[h, j]
                arm = pick_best(scores, arm_scores(contexts[u, t], mean, scores), rest)
            arms[u, t] = arm
            for h in range(len(beta)):
                value = dot(beta[h], contexts[u, t, arm])
                log_w[h] += log_density(kind, value, rewards[u, t, arm], constant[h], slope[h], low, high, edge)
            normalise(log_w, w)


@njit(**EXACT)
def _scores_with_bonus(context, beta, w, bonus, expected, scores):  # type: ignore[no-untyped-def]
    """Set scores[k] = mean + bonus * standard deviation of the classes' expected rewards; return the highest."""
    top = -np.inf
    for k in range(len(context)):
        mean, spread = 0.0, 0.0
        for h in range(len(beta)):
            expected[h] = dot(beta[h], context[k])
            mean += w[h] * expected[h]
        for h in range(len(beta)):
            spread += w[h] * (expected[h] - mean) ** 2
        scores[k] = mean + bonus * np.sqrt(spread)
        top = max(top, scores[k])
    return top
