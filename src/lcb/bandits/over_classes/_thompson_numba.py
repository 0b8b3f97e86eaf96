"""Compiled Generalized Thompson Sampling for many users at once; makes the same choices as `GeneralizedThompson`.

The arm is drawn by drawing a class, so only that class's expected rewards are computed.
"""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import (
    SQUARE,
    arm_scores,
    dot,
    log_density,
    normalise,
    pick,
    pick_best,
    pick_softmax,
    pick_uniform,
)
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_thompson(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, beta, density, n_uniform, eta, uniform_share, temperature
):
    """Update `states` (B, N) in place and fill `arms` (B, T); temperature 0 is greedy."""
    n_users, n_steps, n_arms, _ = contexts.shape
    scores, w = np.empty(n_arms), np.empty(len(beta))
    kind, constant, slope, low, high, edge = density
    for u in range(n_users):
        log_w = states[u]
        normalise(log_w, w)
        for t in range(n_steps):
            arm, uniform = pick_uniform(uniforms[u, t], 1.0 if t < n_uniform else uniform_share, n_arms)
            if arm < 0:
                h = pick(w, uniform)
                for g in range(h):
                    uniform -= w[g]
                uniform = min(max(uniform / w[h], 0.0), 1 - 2.0**-53)
                best = arm_scores(contexts[u, t], beta[h], scores)
                if temperature == 0.0:
                    arm = pick_best(scores, best, uniform)
                else:
                    arm = pick_softmax(scores, best, temperature, uniform)
            arms[u, t] = arm
            reward = rewards[u, t, arm]
            for h in range(len(beta)):
                expected = dot(beta[h], contexts[u, t, arm])
                if kind == SQUARE:
                    log_w[h] -= eta * (reward - expected) ** 2
                else:
                    log_w[h] += eta * log_density(kind, expected, reward, constant[h], slope[h], low, high, edge)
            normalise(log_w, w)
