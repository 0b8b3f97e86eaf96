"""Compiled rounds of SCLUB; `sclub.py` has the formulas."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import add_packed, pick_best
from lcb.recommenders.clustering._ridge_numba import ucb_scores, weights
from lcb.runtime._copies_numba import add_vector, copy_matrix, copy_vector
from lcb.runtime.compiled import EXACT, njit


@njit(**EXACT)
def spread_of(count):  # type: ignore[no-untyped-def]
    """F(T) = sqrt((1 + ln(1 + T)) / (1 + T))"""
    return np.sqrt((1 + np.log(1 + count)) / (1 + count))


@njit(**EXACT)
def _distance(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(a)):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return np.sqrt(total)


@njit(**EXACT)
def estimate(these, i, ridge):  # type: ignore[no-untyped-def]
    """Set theta and F(T) of a user or a cluster from its sums."""
    d = these.theta.shape[1]
    weights(these.sums[i], ridge, np.empty((d, d)), these.theta[i])
    these.spread[i] = spread_of(these.n_rewards[i])


@njit(**EXACT)
def learn(i, users, clusters, ridge, x, reward):  # type: ignore[no-untyped-def]
    """Add a reward to the user and its cluster."""
    j = users.label[i]
    add_packed(users.sums[i], x, reward)
    add_packed(clusters.sums[j], x, reward)
    users.n_rewards[i] += 1
    clusters.n_rewards[j] += 1
    estimate(users, i, ridge)
    estimate(clusters, j, ridge)


@njit(**EXACT)
def begin_phase(n_past, users, clusters):  # type: ignore[no-untyped-def]
    """Mark all users but past ones as unchecked, and store every cluster's estimate."""
    clusters.n_checked[:] = 0
    for i in range(len(users.label)):
        users.checked[i] = i < n_past
        clusters.n_checked[users.label[i]] += users.checked[i]
    copy_matrix(clusters.theta, clusters.pivot)
    copy_vector(clusters.spread, clusters.pivot_spread)


@njit(**EXACT)
def _is_outlier(i, tau, users, clusters, threshold, frequency):  # type: ignore[no-untyped-def]
    """Whether the user's estimate is far from the cluster's, or its frequency from that of another member."""
    j = users.label[i]
    reach = threshold * (users.spread[i] + clusters.pivot_spread[j])
    if _distance(users.theta[i], clusters.pivot[j]) > reach:
        return True
    allowed = 2 * frequency * spread_of(tau) * tau
    for other in range(len(users.label)):
        if users.label[other] == j and abs(users.n_rewards[i] - users.n_rewards[other]) > allowed:
            return True
    return False


@njit(**EXACT)
def _split_off(i, users, clusters, ridge):  # type: ignore[no-untyped-def]
    """Move the user from its cluster to a new one with the lowest free number."""
    old, new = users.label[i], 0
    while clusters.size[new] > 0:
        new += 1
    clusters.n_ids[0] = max(clusters.n_ids[0], new + 1)
    users.label[i] = new
    copy_vector(users.sums[i], clusters.sums[new])
    copy_vector(users.theta[i], clusters.theta[new])
    copy_vector(users.theta[i], clusters.pivot[new])
    clusters.n_rewards[new] = users.n_rewards[i]
    clusters.spread[new] = users.spread[i]
    clusters.pivot_spread[new] = users.spread[i]
    clusters.size[new] = 1
    clusters.n_checked[new] = users.checked[i]
    add_vector(users.sums[i], -1.0, clusters.sums[old])
    clusters.n_rewards[old] -= users.n_rewards[i]
    clusters.size[old] -= 1
    clusters.n_checked[old] -= users.checked[i]
    estimate(clusters, old, ridge)


@njit(**EXACT)
def _is_checked(j, clusters):  # type: ignore[no-untyped-def]
    return clusters.size[j] > 0 and clusters.n_checked[j] == clusters.size[j]


@njit(**EXACT)
def _merge_into(first, second, users, clusters, ridge):  # type: ignore[no-untyped-def]
    for i in range(len(users.label)):
        if users.label[i] == second:
            users.label[i] = first
    add_vector(clusters.sums[second], 1.0, clusters.sums[first])
    clusters.n_rewards[first] += clusters.n_rewards[second]
    clusters.size[first] += clusters.size[second]
    clusters.n_checked[first] += clusters.n_checked[second]
    clusters.size[second] = 0
    clusters.n_checked[second] = 0
    estimate(clusters, first, ridge)


@njit(**EXACT)
def _find_pair(changed, allowed, clusters, threshold):  # type: ignore[no-untyped-def]
    """Return the first pair of similar checked clusters, one of them in `changed`; (-1, -1) if there is none.

    `clusters.gap` becomes the least difference in rewards per user of two clusters with similar estimates.
    """
    first, second = -1, -1
    for j in changed:
        if not _is_checked(j, clusters):
            continue
        own = clusters.n_rewards[j] / clusters.size[j]
        for other in range(clusters.n_ids[0]):
            if other == j or not _is_checked(other, clusters):
                continue
            close = threshold / 2 * (clusters.spread[j] + clusters.spread[other])
            if _distance(clusters.theta[j], clusters.theta[other]) >= close:
                continue
            gap = abs(own - clusters.n_rewards[other] / clusters.size[other])
            a, b = min(j, other), max(j, other)
            if gap >= allowed:
                clusters.gap[0] = min(clusters.gap[0], gap)
            elif first < 0 or a < first or (a == first and b < second):
                first, second = a, b
    return first, second


@njit(**EXACT)
def _merge(changed, tau, users, clusters, ridge, threshold, frequency):  # type: ignore[no-untyped-def]
    """Merge similar checked clusters until no two are similar; only those in `changed` need comparing.

    The allowed difference in frequency grows with time, so if it exceeds `clusters.gap` all are compared again.
    """
    allowed = frequency * spread_of(tau) * tau
    if allowed > clusters.gap[0]:
        clusters.gap[0] = np.inf
        changed = np.arange(clusters.n_ids[0])
    first, second = _find_pair(changed, allowed, clusters, threshold)
    while first >= 0:
        _merge_into(first, second, users, clusters, ridge)
        changed = np.append(changed, first)
        first, second = _find_pair(changed, allowed, clusters, threshold)


@njit(**EXACT)
def settle(i, tau, users, clusters, ridge, threshold, frequency):  # type: ignore[no-untyped-def]
    """Split, check and merge after rewards of user `i`."""
    old = users.label[i]
    if clusters.size[old] > 1 and _is_outlier(i, tau, users, clusters, threshold, frequency):
        _split_off(i, users, clusters, ridge)
    new = users.label[i]
    if not users.checked[i]:
        users.checked[i] = True
        clusters.n_checked[new] += 1
    _merge(np.array([old, new]), tau, users, clusters, ridge, threshold, frequency)


@njit(**EXACT)
def serve_sclub(  # type: ignore[no-untyped-def]
    play, tau, phase_end, n_past, users, clusters, ridge, threshold, frequency, width
):
    """Serve users one after another, each through all steps; fills `play.arms`, returns the end of the phase."""
    places, contexts, rewards, uniforms, arms = play
    scores = np.empty(contexts.shape[2])
    for u, t in np.ndindex(arms.shape):
        i, context = places[u], contexts[u, t]
        best = ucb_scores(clusters.sums[users.label[i]], ridge, width, context, scores)
        arm = arms[u, t] = pick_best(scores, best, uniforms[u, t])
        learn(i, users, clusters, ridge, context[arm], rewards[u, t, arm])
        tau += 1
        settle(i, tau, users, clusters, ridge, threshold, frequency)
        if tau >= phase_end:
            begin_phase(n_past, users, clusters)
            phase_end = 2 * phase_end + 2
    return phase_end
