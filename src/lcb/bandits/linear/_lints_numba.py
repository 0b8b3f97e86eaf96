"""Compiled linear Thompson Sampling for many users at once; makes the same choices as `LinTS`.

The arm is drawn by drawing a point, so only that point's expected rewards are computed.
"""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import arm_scores, pick_best, solve_lower
from lcb.bandits.linear._ridge_numba import add_reward, factor, solve_upper
from lcb.runtime._copies_numba import copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_lints(states, contexts, rewards, uniforms, arms, points):  # type: ignore[no-untyped-def]
    """Update `states` (B, d (d + 1)) in place, choose the `arms` (B, T) below 0; return False if A is singular.

    `points` (n_points, d) are scale * z_i.
    """
    n_arms, d = contexts.shape[2:]
    scores, lower, theta = np.empty(n_arms), np.empty((d, d)), np.empty(d)
    for u in range(len(states)):
        state = states[u].reshape(d, d + 1)
        for t in range(arms.shape[1]):
            context, arm = contexts[u, t], arms[u, t]
            if arm < 0:
                if not factor(state, lower):
                    return False
                place = uniforms[u, t] * len(points)
                copy_vector(state[:, d], theta)
                solve_lower(lower, theta)
                theta += points[int(place)]
                solve_upper(lower, theta)
                best = arm_scores(context, theta, scores)
                arm = arms[u, t] = pick_best(scores, best, place - int(place))
            add_reward(state, context[arm], rewards[u, t, arm])
    return True
