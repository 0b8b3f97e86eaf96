"""Compiled CoFineUCB for many users at once; makes the same choices as `CoarseFineUCB`."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import dot, pick_best, solve_lower
from lcb.bandits.linear._ridge_numba import add_reward, factor, solve_upper
from lcb.runtime._copies_numba import copy_matrix, copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def serve_coarse_fine(  # type: ignore[no-untyped-def]
    states, contexts, rewards, uniforms, arms, subspace, ridges, width, ridge
):
    """Update `states` (B, d (d + 1)) in place, choose the `arms` (B, T) below 0; return False if M is singular.

    `subspace` is U (d, k), `ridges` (k, k) is M~ - U' M U.
    """
    n_arms, d = contexts.shape[2:]
    k = subspace.shape[1]
    scores, lower, solved, target = np.empty(n_arms), np.empty((d, d)), np.empty(d), np.empty(d)
    coarse_gram, coarse_lower, coarse = np.empty((k, k)), np.empty((k, k)), np.empty(k)
    for u in range(len(states)):
        state = states[u].reshape(d, d + 1)
        for t in range(arms.shape[1]):
            context, arm = contexts[u, t], arms[u, t]
            if arm < 0:
                _coarse_gram(state, subspace, ridges, coarse_gram)
                if not (factor(state, lower) and factor(coarse_gram, coarse_lower)):
                    return False
                _project(subspace, state[:, d], coarse)
                solve_lower(coarse_lower, coarse)
                solve_upper(coarse_lower, coarse)
                for i in range(d):
                    target[i] = state[i, d] + ridge * dot(subspace[i], coarse)
                best = -np.inf
                for a in range(n_arms):
                    copy_vector(context[a], solved)
                    solve_lower(lower, solved)
                    fine = np.sqrt(dot(solved, solved))
                    solve_upper(lower, solved)
                    _project(subspace, solved, coarse)
                    solve_lower(coarse_lower, coarse)
                    scores[a] = dot(solved, target) + width * (fine + ridge * np.sqrt(dot(coarse, coarse)))
                    best = max(best, scores[a])
                arm = arms[u, t] = pick_best(scores, best, uniforms[u, t])
            add_reward(state, context[arm], rewards[u, t, arm])
    return True


@njit(**EXACT)
def _project(subspace, x, into):  # type: ignore[no-untyped-def]
    """into = U' x"""
    into[:] = 0.0
    for i in range(len(x)):
        for j in range(len(into)):
            into[j] += subspace[i, j] * x[i]


@njit(**EXACT)
def _coarse_gram(state, subspace, ridges, into):  # type: ignore[no-untyped-def]
    """into = U' M U + ridges"""
    d, k = subspace.shape
    copy_matrix(ridges, into)
    for i in range(d):
        for j in range(k):
            total = 0.0
            for m in range(d):
                total += state[i, m] * subspace[m, j]
            for n in range(k):
                into[n, j] += subspace[i, n] * total
