"""Compiled parts of ILOVETOCONBANDITS: breaking ties, the coordinate descent, and serving many users at once."""

from __future__ import annotations

import math

import numpy as np

from lcb.bandits._kernels_numba import pick
from lcb.bandits.over_policies.iltcb import COUNT, MU, N_ARMS, RENEWED, REWARDED, WEIGHTS
from lcb.runtime._copies_numba import copy_vector
from lcb.runtime.compiled import EXACT, njit

PSI = 100.0  # the publication's
_LEAST = 1e-10  # a step is taken if D / K is above this; less is rounding


@njit(**EXACT)
def break_ties(xi, codes):  # type: ignore[no-untyped-def]
    """Return the policies (N, K) without ties, and set `codes`; an empty array if one has unequal probabilities.

    Arms that the same policies choose are one choice.  A policy that ties between several choices takes the one that
    most policies choose, of those the one that the first policies choose.  A code is the number of the first policy
    with the same choice, plus N times (the number of arms in the choice - 1).
    """
    n_policies, n_arms = xi.shape
    choice = np.empty(n_policies, np.int64)
    settle = False
    for h in range(n_policies):
        ties, likeliest = 0, 0
        for a in range(n_arms):
            if xi[h, a] != 0.0:
                ties += 1
                likeliest = a
        for a in range(n_arms):
            if xi[h, a] != 0.0 and not abs(xi[h, a] * ties - 1.0) < 1e-9:
                return xi[:0]
        if ties == 0:
            return xi[:0]
        choice[h] = likeliest
        settle |= ties > 1
    if not settle:
        for h in range(n_policies):
            g = 0
            while choice[g] != choice[h]:
                g += 1
            codes[h] = g
        return xi
    out = np.zeros_like(xi)
    for h in range(n_policies):
        best = choice[h]
        for a in range(n_arms):
            if xi[h, a] != 0.0 and _is_preferred(xi, a, best):
                best = a
        size = 0
        for a in range(n_arms):
            size += _is_same_choice(xi, a, best)
        for a in range(n_arms):
            if _is_same_choice(xi, a, best):
                out[h, a] = 1.0 / size
        choice[h] = best
        g = 0
        while not _is_same_choice(xi, choice[g], best):
            g += 1
        codes[h] = g + n_policies * (size - 1)
    return out


@njit(**EXACT)
def _is_same_choice(xi, a, b):  # type: ignore[no-untyped-def]
    """Whether the same policies choose both arms."""
    differ = 0
    for h in range(len(xi)):
        differ += (xi[h, a] != 0.0) != (xi[h, b] != 0.0)
    return differ == 0


@njit(**EXACT)
def _is_preferred(xi, a, b):  # type: ignore[no-untyped-def]
    """Whether more policies choose a than b; if as many, whether the first that differs chooses a."""
    more, first = 0, 0
    for h in range(len(xi)):
        difference = int(xi[h, a] != 0.0) - int(xi[h, b] != 0.0)
        more += difference
        if first == 0:
            first = difference
    return more > 0 or (more == 0 and first > 0)


@njit(**EXACT)
def descend(kept, b, n_arms, mu, q):  # type: ignore[no-untyped-def]
    """Change weights `q` (N,) until they solve (OP) on the contexts of `kept` (M, N): Algorithm 2 with Q_init = q.

    From 0 it takes at most 4 ln(1 / (K mu)) / mu steps (Theorem 3).
    """
    n_contexts, n_policies = kept.shape
    first = np.empty(kept.shape, np.int64)
    share = np.empty(kept.shape)
    for i in range(n_contexts):
        for h in range(n_policies):
            code = int(kept[i, h])
            first[i, h] = code % n_policies
            share[i, h] = 1.0 / (code // n_policies + 1)
    room = 1.0 - n_arms * mu
    mass, v, s = np.empty(n_policies), np.empty(n_policies), np.empty(n_policies)
    while True:
        total = 0.0
        for h in range(n_policies):
            total += q[h] * (2 * n_arms + b[h])
        if total > 2 * n_arms:
            q *= 2 * n_arms / total
        v[:] = 0.0
        s[:] = 0.0
        for i in range(n_contexts):
            mass[:] = 0.0
            for h in range(n_policies):
                mass[first[i, h]] += q[h]
            for h in range(n_policies):
                inverse = 1.0 / (mu + room * mass[first[i, h]] * share[i, h])
                v[h] += inverse
                s[h] += share[i, h] * inverse * inverse
        v /= n_contexts
        s /= n_contexts
        most = 0.0
        for h in range(n_policies):
            most = max(most, v[h] - 2 * n_arms - b[h])
        if most <= _LEAST * n_arms:
            return
        h = 0
        while v[h] - 2 * n_arms - b[h] < (1 - 1e-9) * most:  # the first of those equal up to rounding
            h += 1
        q[h] += (2 * v[h] - 2 * n_arms - b[h]) / (2 * room * s[h])


@njit(**EXACT)
def is_due(state, epoch):  # type: ignore[no-untyped-def]
    """Whether the last decision ended an epoch and the weights are not yet renewed; `epoch` 0: after 1, 2, 4, 8, ..."""
    count = int(state[COUNT])
    if count == state[RENEWED]:
        return False
    return count % epoch == 0 if epoch > 0 else count & (count - 1) == 0


@njit(**EXACT)
def renew(state, n_policies, fixed_mu, delta):  # type: ignore[no-untyped-def]
    """Set mu and the weights in `state` at the end of an epoch; the best policies get what the descent leaves of 1."""
    count, n_arms = int(state[COUNT]), int(state[N_ARMS])
    weights, sums = state[WEIGHTS : WEIGHTS + n_policies], state[WEIGHTS + n_policies : WEIGHTS + 2 * n_policies]
    kept = state[WEIGHTS + 2 * n_policies :].reshape(-1, n_policies)
    if fixed_mu > 0:
        mu = min(fixed_mu, 1.0 / n_arms)
    else:
        mu = min(0.5 / n_arms, math.sqrt(math.log(16.0 * count * count * n_policies / delta) / (n_arms * count)))
    best = sums.max()
    b = (best - sums) / (max(state[REWARDED], 1.0) * PSI * mu)
    weights[:] = 0.0
    descend(kept[: min(count, len(kept))], b, n_arms, mu, weights)
    ties = 0
    for h in range(n_policies):
        ties += sums[h] == best
    left = max(1.0 - weights.sum(), 0.0) / ties
    for h in range(n_policies):
        if sums[h] == best:
            weights[h] += left
    state[MU] = mu
    state[RENEWED] = count


@njit(**EXACT)
def advise(xi, arm, advice):  # type: ignore[no-untyped-def]
    """Set `advice` = [K, each policy's probability of the arm (N), codes (N)]; False if a policy is not valid."""
    n_policies, n_arms = xi.shape
    xi = break_ties(xi, advice[n_policies + 1 :])
    if len(xi) == 0:
        return False
    advice[0] = n_arms
    copy_vector(xi[:, arm], advice[1 : n_policies + 1])
    return True


@njit(**EXACT)
def decide(state, xi, most_uniform, uniform, p, advice):  # type: ignore[no-untyped-def]
    """Draw an arm by `uniform` and set `p` (K,) and `advice` as above; return -1 if a policy is not valid."""
    n_policies, n_arms = xi.shape
    xi = break_ties(xi, advice[n_policies + 1 :])
    if len(xi) == 0:
        return -1
    mu = min(state[MU], most_uniform / n_arms)
    p[:] = 0.0
    for h in range(n_policies):
        weight = state[WEIGHTS + h]
        for a in range(n_arms):
            p[a] += weight * xi[h, a]
    total = 0.0
    for a in range(n_arms):
        p[a] = mu + (1 - n_arms * mu) * p[a]
        total += p[a]
    arm = pick(p, uniform * total)
    advice[0] = n_arms
    copy_vector(xi[:, arm], advice[1 : n_policies + 1])
    return arm


@njit(**EXACT)
def count_decision(state, advice):  # type: ignore[no-untyped-def]
    """Count a decision in `state`, and keep its context."""
    n_policies = len(advice) // 2
    kept = state[WEIGHTS + 2 * n_policies :].reshape(-1, n_policies)
    copy_vector(advice[n_policies + 1 :], kept[int(state[COUNT]) % len(kept)])
    state[COUNT] += 1
    state[N_ARMS] = max(state[N_ARMS], advice[0])


@njit(**EXACT)
def count_reward(state, advice, share):  # type: ignore[no-untyped-def]
    """Add a reward to `state`; `share` = r / p."""
    n_policies = len(advice) // 2
    state[REWARDED] += 1
    for h in range(n_policies):
        state[WEIGHTS + n_policies + h] += share * advice[1 + h]


@njit(**EXACT)
def serve_iltcb(  # type: ignore[no-untyped-def]
    states, advice, rewards, uniforms, arms, first, n_uniform, low, width, fixed_mu, delta, epoch
):
    """Run the steps of `advice` (B, steps, N, K), from `first` on; updates `states` and fills `arms` (B, T).

    Returns False if a policy has unequal probabilities.
    """
    n_users, n_steps, n_policies, n_arms = advice.shape
    most_uniform = 1.0 if fixed_mu > 0 else 0.5
    p, noted = np.empty(n_arms), np.empty(1 + 2 * n_policies)
    for u in range(n_users):
        state = states[u]
        for i in range(n_steps):
            t = first + i
            if is_due(state, epoch):
                renew(state, n_policies, fixed_mu, delta)
            if t < n_uniform:
                arm = int(uniforms[u, t] * n_arms)
                propensity = 1.0 / n_arms
                if not advise(advice[u, i], arm, noted):
                    return False
            else:
                arm = decide(state, advice[u, i], most_uniform, uniforms[u, t], p, noted)
                if arm < 0:
                    return False
                propensity = p[arm]
            arms[u, t] = arm
            count_decision(state, noted)
            count_reward(state, noted, (rewards[u, t, arm] - low) / width / propensity)
    return True
