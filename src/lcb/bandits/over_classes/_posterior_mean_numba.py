"""Posterior mean for many users at once, compiled: the twin of its `choose` and `update`."""

from __future__ import annotations

import numpy as np

from lcb._compiled import njit
from lcb.bandits._kernels_numba import COMPILED, arm_scores, dot, log_density, normalise, pick_best


@njit(**COMPILED)
def serve_posterior_mean(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, beta, density, n_uniform, uniform_share
):
    """`states` (B, N) are updated in place, `arms` (B, T) receives what was played."""
    n_users, n_steps, n_arms, d = contexts.shape
    kind, constant, slope, low, high, edge = density
    scores, mean, w = np.empty(n_arms), np.empty(d), np.empty(len(beta))
    for u in range(n_users):
        log_w = states[u]
        normalise(log_w, w)
        for t in range(n_steps):
            share = 1.0 if t < n_uniform else uniform_share
            if uniforms[u, t] < share:
                arm = int(uniforms[u, t] / share * n_arms)
            else:
                mean[:] = 0.0
                for h in range(len(beta)):
                    for j in range(d):
                        mean[j] += w[h] * beta[h, j]
                best = arm_scores(contexts[u, t], mean, scores)
                arm = pick_best(scores, best, (uniforms[u, t] - share) / (1 - share))
            arms[u, t] = arm
            for h in range(len(beta)):
                expected = dot(beta[h], contexts[u, t, arm])
                log_w[h] += log_density(kind, expected, rewards[u, t, arm], constant[h], slope[h], low, high, edge)
            normalise(log_w, w)
