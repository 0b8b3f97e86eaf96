"""Compiled parts of mmTS: the posterior of a user's classes, one decision, and serving many users at once.

Weights are computed as differences from the learned beta_h, to avoid cancellation.  With L L' the precision of a class
and L y the moment of its residuals, the mean is beta + L'^-1 y and a draw is beta + L'^-1 (y + z), z standard normal:
the score of an arm is beta . x + (L^-1 x) . (y + z).
"""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import add_packed, dot, normalise, pick, pick_best, solve_lower
from lcb.runtime._copies_numba import copy_vector
from lcb.runtime.compiled import EXACT, njit

_LEAST = 1e-15  # a class with less weight is left out


@njit(**EXACT)
def log_posterior(state, terms, log_w, roots, scaled):  # type: ignore[no-untyped-def]
    """Set `log_w` (N,), up to a constant, the lower triangles of `roots` (N, d, d) and `scaled` = y (N, d)."""
    precision, beta, inverse, constant, log_noise = terms
    n, d = beta.shape
    at = d * (d + 1) // 2
    for h in range(n):
        root, y = roots[h], scaled[h]
        for i in range(d):
            y[i] = state[at + i]
        square = state[-2] - dot(beta[h], y)
        place = 0
        for i in range(d):
            for j in range(i, d):
                root[j, i] = precision[h, j, i] + state[place] * inverse[h]
                y[i] -= state[place] * beta[h, j]
                if j > i:
                    y[j] -= state[place] * beta[h, i]
                place += 1
        square -= dot(beta[h], y)  # the square sum of the residuals r - beta . x, because y is their moment
        _cholesky(root)
        for i in range(d):
            y[i] *= inverse[h]
        solve_lower(root, y)
        log_w[h] = constant[h] - state[-1] * log_noise[h] - 0.5 * square * inverse[h] + 0.5 * dot(y, y)
        for i in range(d):
            log_w[h] -= np.log(root[i, i])


@njit(**EXACT)
def keep_likely(log_w, weights):  # type: ignore[no-untyped-def]
    """Normalise `log_w` in place, and set `weights` to its exponentials; those of nearly no weight are 0."""
    normalise(log_w, weights)
    total = 0.0
    for h in range(len(log_w)):
        if weights[h] < _LEAST:
            weights[h] = 0.0
        total += weights[h]
    for h in range(len(log_w)):
        weights[h] /= total


@njit(**EXACT)
def posterior(state, terms, weights, roots, scaled):  # type: ignore[no-untyped-def]
    """Set `weights` (N,), the lower triangles of `roots` (N, d, d) and `scaled` = y (N, d)."""
    log_w = np.empty(len(weights))
    log_posterior(state, terms, log_w, roots, scaled)
    keep_likely(log_w, weights)


@njit(**EXACT)
def weights_of_many(states, terms, weights):  # type: ignore[no-untyped-def]
    """Set `weights` (B, N) to those of each of `states` (B, p)."""
    n, d = terms[1].shape
    roots, scaled = np.empty((n, d, d)), np.empty((n, d))
    for i in range(len(states)):
        posterior(states[i], terms, weights[i], roots, scaled)


@njit(**EXACT)
def _cholesky(root):  # type: ignore[no-untyped-def]
    """Factor in place; only the lower triangle is read and written.

    Features of very different sizes can round a pivot to 0 or below; it is then 1e-15 of its diagonal element.
    """
    d = len(root)
    for j in range(d):
        least = 1e-15 * root[j, j]
        for k in range(j):
            for i in range(j, d):
                root[i, j] -= root[i, k] * root[j, k]
        root[j, j] = max(root[j, j], least)
        pivot = np.sqrt(root[j, j])
        for i in range(j, d):
            root[i, j] /= pivot


@njit(**EXACT)
def add_reward(state, x, reward):  # type: ignore[no-untyped-def]
    """Add one reward to statistics as `UserStats` packs them."""
    add_packed(state, x, reward)
    state[-2] += reward * reward
    state[-1] += 1


@njit(**EXACT)
def _draw(weights, n_points, uniform):  # type: ignore[no-untyped-def]
    """Draw a class and a point by one uniform number; return them and a new uniform number from the rest."""
    h = pick(weights, uniform)
    for g in range(h):
        uniform -= weights[g]
    rest = min(max(uniform / weights[h], 0.0), 1 - 2.0**-53) * n_points
    return h, int(rest), rest - int(rest)


@njit(**EXACT)
def choose_mmts(state, context, uniform, terms, points, distribution):  # type: ignore[no-untyped-def]
    """Choose an arm, and add the probability of every arm to `distribution` (K,), which must be zeros."""
    n_arms, d = context.shape
    n, n_points = len(terms[1]), points.shape[1]
    weights, roots, scaled = np.empty(n), np.empty((n, d, d)), np.empty((n, d))
    posterior(state, terms, weights, roots, scaled)
    h_drawn, j_drawn, rest = _draw(weights, n_points, uniform)
    scores, best, v, arm = np.empty((n_arms, n_points)), np.empty(n_points), np.empty(d), -1
    for h in range(n):
        if weights[h] == 0.0:
            continue
        for k in range(n_arms):
            copy_vector(context[k], v)
            solve_lower(roots[h], v)
            scores[k, :] = dot(terms[1][h], context[k]) + dot(v, scaled[h])
            for i in range(d):
                for j in range(n_points):
                    scores[k, j] += v[i] * points[i, j]
        copy_vector(scores[0], best)
        for k in range(1, n_arms):
            for j in range(n_points):
                best[j] = max(best[j], scores[k, j])
        for j in range(n_points):
            ties = 0
            for k in range(n_arms):
                ties += scores[k, j] == best[j]
            share = weights[h] / n_points / ties
            for k in range(n_arms):
                if scores[k, j] == best[j]:
                    distribution[k] += share
        if h == h_drawn:
            arm = pick_best(scores[:, j_drawn], best[j_drawn], rest)
    return arm


@njit(**EXACT)
def serve_mmts(states, contexts, rewards, uniforms, arms, terms, points):  # type: ignore[no-untyped-def]
    """Update `states` in place and choose the `arms` (B, T) that are below 0; only the drawn point is scored."""
    n_arms, d = contexts.shape[2:]
    n, n_points = len(terms[1]), points.shape[1]
    weights, roots, scaled = np.empty(n), np.empty((n, d, d)), np.empty((n, d))
    scores, v, drawn = np.empty(n_arms), np.empty(d), np.empty(d)
    for u in range(len(states)):
        state = states[u]
        for t in range(arms.shape[1]):
            context, arm = contexts[u, t], arms[u, t]
            if arm < 0:
                posterior(state, terms, weights, roots, scaled)
                h, j, rest = _draw(weights, n_points, uniforms[u, t])
                for i in range(d):
                    drawn[i] = scaled[h, i] + points[i, j]
                best = -np.inf
                for k in range(n_arms):
                    copy_vector(context[k], v)
                    solve_lower(roots[h], v)
                    scores[k] = dot(terms[1][h], context[k]) + dot(v, drawn)
                    best = max(best, scores[k])
                arm = arms[u, t] = pick_best(scores, best, rest)
            add_reward(state, context[arm], rewards[u, t, arm])
