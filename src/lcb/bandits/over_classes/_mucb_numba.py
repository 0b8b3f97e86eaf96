"""Compiled mUCB for many users at once; makes the same choices as `MUCB`."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import arm_scores, pick_best
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_mucb(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, beta, bound, epsilon, n_uniform
):
    """Update `states` (B, 2 N) in place and fill `arms` (B, T)."""
    n_users, n_steps, n_arms, _ = contexts.shape
    n = len(beta)
    promised, own_best, best, excess = np.empty((n, n_arms)), np.empty(n), np.empty(n_arms), np.empty(n)
    for u in range(n_users):
        count, gap = states[u, :n], states[u, n:]
        for t in range(n_steps):
            for h in range(n):
                own_best[h] = arm_scores(contexts[u, t], beta[h], promised[h])
                excess[h] = gap[h] - bound[h] * np.sqrt(count[h])
            allowed = max(0.0, excess.min())
            at_random = t < n_uniform
            if at_random:
                arm = int(uniforms[u, t] * n_arms)
            else:
                best[:] = -np.inf
                for h in range(n):
                    if excess[h] <= allowed:
                        for k in range(n_arms):
                            best[k] = max(best[k], promised[h, k])
                arm = pick_best(best, best.max(), uniforms[u, t])
            arms[u, t] = arm
            for h in range(n):
                if at_random:
                    credited = promised[h, arm] == own_best[h]
                else:
                    credited = excess[h] <= allowed and promised[h, arm] == best[arm]
                if credited:
                    count[h] += 1
                    gap[h] += promised[h, arm] - epsilon - rewards[u, t, arm]
