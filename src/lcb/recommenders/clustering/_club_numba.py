"""Compiled rounds of CLUB; `club.py` has the formulas."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import add_packed, pick_best
from lcb.recommenders.clustering._graph_numba import cut, neighbours, split
from lcb.recommenders.clustering._ridge_numba import ucb_scores, weights
from lcb.runtime._copies_numba import add_vector, copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def far_apart(users, i, other):  # type: ignore[no-untyped-def]
    """||theta_i - theta_l|| > radius_i + radius_l"""
    distance, reach = 0.0, users.radius[i] + users.radius[other]
    for j in range(users.theta.shape[1]):
        gap = users.theta[i, j] - users.theta[other, j]
        distance += gap * gap
    return distance > reach * reach


@njit(**EXACT)
def width_at(t, width, log_bonus):  # type: ignore[no-untyped-def]
    """Return the factor of sqrt(x' A^-1 x) in round t = 1, 2, ..."""
    return width * np.sqrt(np.log(t + 1)) if log_bonus else width


@njit(**EXACT)
def _neighbourhood(i, graph, users, components):  # type: ignore[no-untyped-def]
    """Return the sums of a user and its neighbours; they are cached until another user is served or rewarded."""
    if components.n[0] != i:
        components.n[0] = i
        found, total = components.room[3], users.stats[i].copy()
        for k in range(neighbours(graph, i, found) - 1, -1, -1):  # in the order of memory
            if users.n_rewards[found[k]] > 0:
                total += users.stats[found[k]]
        copy_vector(total, components.sums[0])
    return components.sums[0]


@njit(**EXACT)
def scores_for(i, graph, users, components, one_hop, ridge, width, context, scores):  # type: ignore[no-untyped-def]
    """Set every arm's upper confidence bound from the sums of the component, or of the user and its neighbours."""
    sums = _neighbourhood(i, graph, users, components) if one_hop else components.sums[components.label[i]]
    return ucb_scores(sums, ridge, width, context, scores)


@njit(**EXACT)
def delete_edges(i, graph, users, components, one_hop):  # type: ignore[no-untyped-def]
    """Test the edges of user `i`, delete those that are too long, and split the component if it falls apart."""
    found = components.room[3]
    n_deleted = 0
    for k in range(neighbours(graph, i, found)):
        other = found[k]
        if far_apart(users, i, other):
            cut(graph, i, other)
            found[n_deleted] = other
            n_deleted += 1
    if not one_hop:
        if n_deleted > 0:
            split(graph, i, found[:n_deleted], components, users.stats)
    elif components.n[0] == i:
        for other in found[:n_deleted]:
            add_vector(users.stats[other], -1.0, components.sums[0])


@njit(**EXACT)
def delete_past_edges(n_past, graph, users):  # type: ignore[no-untyped-def]
    """Test every edge among the first `n_past` users once."""
    found = np.empty(len(users.n_rewards), np.int64)
    for i in range(n_past):
        for k in range(neighbours(graph, i, found)):
            if i < found[k] < n_past and far_apart(users, i, found[k]):
                cut(graph, i, found[k])


@njit(**EXACT)
def estimate(i, users, ridge, threshold):  # type: ignore[no-untyped-def]
    """Set theta_i and radius_i from the user's own sums."""
    d = users.theta.shape[1]
    weights(users.stats[i], ridge, np.empty((d, d)), users.theta[i])
    users.radius[i] = threshold * np.sqrt((1 + np.log(1 + users.n_rewards[i])) / (1 + users.n_rewards[i]))


@njit(**EXACT)
def learn(i, users, components, one_hop, ridge, threshold, x, reward):  # type: ignore[no-untyped-def]
    """Add a reward to the sums of the user and of its component, or of its neighbourhood."""
    add_packed(users.stats[i], x, reward)
    users.n_rewards[i] += 1
    if not one_hop:
        add_packed(components.sums[components.label[i]], x, reward)
    elif components.n[0] == i:
        add_packed(components.sums[0], x, reward)
    else:
        components.n[0] = -1
    estimate(i, users, ridge, threshold)


@njit(**EXACT)
def serve_club(  # type: ignore[no-untyped-def]
    play, n_decisions, graph, users, components, one_hop, ridge, threshold, width, log_bonus
):
    """Serve users one after another, each through all steps; fills `play.arms`."""
    places, contexts, rewards, uniforms, arms = play
    scores = np.empty(contexts.shape[2])
    for u, t in np.ndindex(arms.shape):
        n_decisions += 1
        i, context, wide = places[u], contexts[u, t], width_at(n_decisions, width, log_bonus)
        best = scores_for(i, graph, users, components, one_hop, ridge, wide, context, scores)
        arm = arms[u, t] = pick_best(scores, best, uniforms[u, t])
        delete_edges(i, graph, users, components, one_hop)
        learn(i, users, components, one_hop, ridge, threshold, context[arm], rewards[u, t, arm])
