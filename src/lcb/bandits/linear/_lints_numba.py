"""Linear Thompson Sampling for many users at once, compiled: the twin of its `choose` and `update`.

The arm is drawn by drawing a point, so only that point's expected rewards are needed.
"""

from __future__ import annotations

import numpy as np

from lcb._compiled import njit
from lcb.bandits._kernels_numba import COMPILED, arm_scores, pick_best
from lcb.bandits.linear._ridge_numba import add_reward, factor, solve_lower, solve_upper


@njit(**COMPILED)
def serve_lints(states, contexts, rewards, uniforms, arms, points, n_uniform):  # type: ignore[no-untyped-def]
    """`states` (B, d (d + 1)) are updated in place, `arms` (B, T) receives what was played; False where A is singular.

    `points` (n_points, d) are scale * z_i.
    """
    n_users, n_steps, n_arms, d = contexts.shape
    scores, lower, theta = np.empty(n_arms), np.empty((d, d)), np.empty(d)
    for u in range(n_users):
        state = states[u].reshape(d, d + 1)
        for t in range(n_steps):
            context = contexts[u, t]
            if t < n_uniform:
                arm = int(uniforms[u, t] * n_arms)
            else:
                if not factor(state, lower):
                    return False
                place = uniforms[u, t] * len(points)
                theta[:] = state[:, d]
                solve_lower(lower, theta)
                theta += points[int(place)]
                solve_upper(lower, theta)
                best = arm_scores(context, theta, scores)
                arm = pick_best(scores, best, place - int(place))
            arms[u, t] = arm
            add_reward(state, context[arm], rewards[u, t, arm])
    return True
