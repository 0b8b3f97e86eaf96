"""Generalized Thompson Sampling for many users at once, compiled: the twin of its `choose` and `update`.

The arm is drawn by drawing a class, so only the drawn class's expected rewards are needed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lcb.bandits._kernels_numba import COMPILED, arm_scores, dot, normalise, pick, pick_best, pick_softmax

_GAUSSIAN, _SQUARE = 0, 1


@njit(**COMPILED)
def serve_thompson(  # type: ignore[no-untyped-def]
    states,
    contexts,
    rewards,
    uniforms,
    arms,
    beta,
    constant,
    slope,
    n_uniform,
    eta,
    gamma,
    loss,
    edge,
    temperature,
):
    """`states` (B, N) are updated in place, `arms` (B, T) receives what was played; temperature 0 is greedy."""
    n_users, n_steps, n_arms, _ = contexts.shape
    scores, w = np.empty(n_arms), np.empty(len(beta))
    for u in range(n_users):
        log_w = states[u]
        normalise(log_w, w)
        for t in range(n_steps):
            share = 1.0 if t < n_uniform else gamma
            if uniforms[u, t] < share:
                arm = int(uniforms[u, t] / share * n_arms)
            else:
                uniform = (uniforms[u, t] - share) / (1 - share)
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
                if loss == _GAUSSIAN:
                    log_w[h] += eta * (constant[h] - slope[h] * (reward - expected) ** 2)
                elif loss == _SQUARE:
                    log_w[h] -= eta * (reward - expected) ** 2
                else:
                    expected = min(max(expected, edge), 1 - edge)
                    log_w[h] += eta * (reward * np.log(expected) + (1 - reward) * np.log(1 - expected))
            normalise(log_w, w)
