"""Compiled LinUCB for many users at once; makes the same choices as `LinUCB`."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import pick_best
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_linucb(states, contexts, rewards, uniforms, arms, width):  # type: ignore[no-untyped-def]
    """Update `states` (B, d (d + 1)) in place and choose the `arms` (B, T) that are below 0."""
    n_arms, d = contexts.shape[2:]
    scores, products, w = np.empty(n_arms), np.empty((n_arms, d + 1)), np.empty(d + 1)
    for u in range(len(states)):
        state = states[u].reshape(d, d + 1)
        for t in range(arms.shape[1]):
            context, arm = contexts[u, t], arms[u, t]
            if arm < 0:
                np.dot(context, state, products)
                best = -np.inf
                for k in range(n_arms):
                    spread = 0.0
                    for j in range(d):
                        spread += products[k, j] * context[k, j]
                    scores[k] = products[k, d] + width * np.sqrt(max(spread, 0.0))
                    best = max(best, scores[k])
                arm = arms[u, t] = pick_best(scores, best, uniforms[u, t])
            np.dot(context[arm], state, w)
            along, spread = 1.0, 0.0
            for j in range(d):
                along += w[j] * context[arm, j]
                spread += w[j] * context[arm, j]
            if not spread > 0:
                continue
            w[d] -= rewards[u, t, arm]
            for i in range(d):
                scaled = w[i] / along
                for j in range(d + 1):
                    state[i, j] -= scaled * w[j]
