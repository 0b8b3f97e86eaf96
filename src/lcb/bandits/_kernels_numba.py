"""Small functions shared by the compiled bandits."""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import EXACT, njit

GAUSSIAN, BERNOULLI, SQUARE = 0, 1, 2  # kinds of loss that update the weights of classes
_LOWEST = -700.0  # exp of anything lower is slow, and taken as 0


@njit(**EXACT)
def dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit(**EXACT)
def arm_scores(context, weights, scores):  # type: ignore[no-untyped-def]
    """Set scores[k] = weights . x_k; return the highest."""
    best = -np.inf
    for k in range(len(context)):
        total = 0.0
        for j in range(len(weights)):
            total += weights[j] * context[k, j]
        scores[k] = total
        best = max(best, total)
    return best


@njit(**EXACT)
def pick_uniform(uniform, share, n_arms):  # type: ignore[no-untyped-def]
    """Return a uniform arm with probability `share`, else -1, and then an independent uniform number."""
    if uniform < share:
        return int(uniform / share * n_arms), 0.0
    return -1, (uniform - share) / (1 - share)


@njit(**EXACT)
def pick_best(scores, best, uniform):  # type: ignore[no-untyped-def]
    """Return an arm with the best score, as `Decision.best` does; ties are drawn uniformly."""
    ties = 0.0
    for k in range(len(scores)):
        ties += 1.0 if scores[k] == best else 0.0
    skip = int(uniform * ties)
    k = 0
    while k < len(scores) - 1 and (scores[k] != best or skip > 0):
        skip -= scores[k] == best
        k += 1
    return k


@njit(**EXACT)
def pick_softmax(scores, best, temperature, uniform):  # type: ignore[no-untyped-def]
    """Draw an arm in proportion to exp(score / temperature); overwrites `scores`."""
    total = 0.0
    for k in range(len(scores)):
        scores[k] = np.exp((scores[k] - best) / temperature)
        total += scores[k]
    return pick(scores, uniform * total)


@njit(**EXACT)
def pick(p, wanted):  # type: ignore[no-untyped-def]
    """Return the first index whose cumulative sum is above `wanted`."""
    cumulative, last = 0.0, 0
    for k in range(len(p)):
        if p[k] > 0:
            cumulative += p[k]
            last = k
            if cumulative > wanted:
                break
    return last


@njit(**EXACT)
def normalise(log_w, w):  # type: ignore[no-untyped-def]
    """Normalise log weights in place, and set `w` to their exponentials, which sum to 1."""
    top = log_w[0]
    for h in range(1, len(log_w)):
        top = max(top, log_w[h])
    for h in range(len(log_w)):
        w[h] = log_w[h] - top
    total = 0.0
    for h in range(len(log_w)):
        w[h] = np.exp(w[h]) if w[h] > _LOWEST else 0.0
        total += w[h]
    shift = top + np.log(total)
    for h in range(len(log_w)):
        log_w[h] -= shift
        w[h] /= total


@njit(**EXACT)
def log_density(kind, expected, reward, constant, slope, low, high, edge):  # type: ignore[no-untyped-def]
    """Return what `LatentModels.log_density` does, for one class whose expected reward is `expected`."""
    if kind == GAUSSIAN:
        return constant - slope * (reward - expected) ** 2
    z = (expected - low) / (high - low)
    p = z
    if z < edge:
        p = edge**2 / (2 * edge - z)
    elif z > 1 - edge:
        p = 1 - edge**2 / (z - 1 + 2 * edge)
    click = (reward - low) / (high - low)
    return click * np.log(p) + (1 - click) * np.log(1 - p)


@njit(**EXACT)
def solve_lower(lower, y):  # type: ignore[no-untyped-def]
    """y = C^-1 y, where C is the lower triangle of `lower` (d, d)"""
    for i in range(len(y)):
        total = y[i]
        for k in range(i):
            total -= lower[i, k] * y[k]
        y[i] = total / lower[i, i]


@njit(**EXACT)
def add_packed(packed, x, reward):  # type: ignore[no-untyped-def]
    """Add one reward to the first numbers of `packed`: the upper triangle of sum x x', then sum r x."""
    d, place = len(x), 0
    for i in range(d):
        for j in range(i, d):
            packed[place] += x[i] * x[j]
            place += 1
    for i in range(d):
        packed[place + i] += reward * x[i]
