"""The scores of arms with item effects, compiled: one pass in place of many NumPy calls.

`weight` is item_bonus squared; `horizon`, `noise` and `share` are those of `lcb.models.item_effects`.  Both functions
return the first and the last of the best arms, and the share of decisions in which the bonus of items counts.
"""

from __future__ import annotations

import numpy as np

from lcb.runtime.compiled import EXACT, njit

_CHECKED = EXACT | {"error_model": "python"}  # a division by 0 is an error
_RISE = 4.0  # of the rule with horizon 0
_NOISIER = 1.5  # clicks on an item that is liked more have more noise than those on the others
_FEW = 3.0  # unknown items that may take every offer
_LOG_16_PI = float(np.log(16 * np.pi))


@njit(**_CHECKED)
def add_effects_to_scores(scores, means, effect, variance, weight, horizon, noise, share):  # type: ignore[no-untyped-def]
    """Add effects to `scores`, means plus a bonus; if the bonus of items is limited, `scores` stay as they were."""
    level = _average(variance, weight, horizon)
    limited = share < 1.0 and weight > 0.0
    given = scores.copy() if limited else scores
    for k in range(len(scores)):
        own = weigh_variance(variance[k], level, weight, horizon, noise)
        if own > 0.0:
            bonus = scores[k] - means[k]
            scores[k] = means[k] + effect[k] + np.sqrt(bonus * bonus + own)
        else:
            scores[k] += effect[k]
    first, last = _find_bounds(scores)
    if not limited:
        return first, last, 1.0
    best, highest = first, given[first] + effect[first]
    for k in range(len(scores)):
        if given[k] + effect[k] > highest:
            best, highest = k, given[k] + effect[k]
    limit = 1.0 if best == first else _limit(scores, variance, best, share)
    if limit < 1.0:
        scores[:] = given
    return first, last, limit


@njit(**_CHECKED)
def score_by_classes(w, expected, bonus, effect, variance, weight, horizon, noise, share, found):  # type: ignore[no-untyped-def]
    """Set `found` to the means and scores of arms of `expected` (N, K) under classes of weights `w`, (3, K).

    The last row has the scores without the bonus of items, if that is limited.
    """
    means, scores, plain = found[0], found[1], found[2]
    level = _average(variance, weight, horizon)
    for k in range(len(means)):
        means[k] = w[0] * expected[0, k]
    for h in range(1, len(w)):
        for k in range(len(means)):
            means[k] += w[h] * expected[h, k]
    for k in range(len(means)):
        apart = expected[0, k] - means[k]
        spread = w[0] * (apart * apart)
        for h in range(1, len(w)):
            apart = expected[h, k] - means[k]
            spread += w[h] * (apart * apart)
        plain[k] = spread
        own = weigh_variance(variance[k], level, weight, horizon, noise)
        if own > 0.0:
            scores[k] = means[k] + effect[k] + np.sqrt(bonus * bonus * spread + own)
        else:
            scores[k] = means[k] + bonus * np.sqrt(spread) + effect[k]
    first, last = _find_bounds(scores)
    if not (share < 1.0 and weight > 0.0):
        return first, last, 1.0
    best, highest = first, means[first] + bonus * np.sqrt(plain[first]) + effect[first]
    for k in range(len(means)):
        if scores[k] > highest:  # without the bonus it is not higher
            score = means[k] + bonus * np.sqrt(plain[k]) + effect[k]
            if score > highest:
                best, highest = k, score
    limit = 1.0 if best == first else _limit(scores, variance, best, share)
    if limit < 1.0:
        for k in range(len(means)):
            plain[k] = means[k] + bonus * np.sqrt(plain[k]) + effect[k]
    return first, last, limit


@njit(**_CHECKED)
def _limit(scores, variance, best, share):  # type: ignore[no-untyped-def]
    """Return the share of decisions for the arms lifted above the arm `best`, which is the best without the bonus."""
    n = 0.0
    for k in range(len(scores)):
        if scores[k] > scores[best]:
            n += weigh_lifted(variance[k], variance[best])
    return limit_share(n, share)


@njit(**_CHECKED)
def weigh_lifted(variance, of_best):  # type: ignore[no-untyped-def]
    """Return how far an item is unknown, from 0 to 1, beside an arm of the variance `of_best`."""
    return 1.0 - of_best / variance if variance > of_best else 0.0


@njit(**_CHECKED)
def limit_share(n_lifted, share):  # type: ignore[no-untyped-def]
    """Return the share of decisions in which the bonus of items counts, where it lifts so many unknown arms."""
    return max(share, _FEW / n_lifted) if n_lifted > _FEW else 1.0


@njit(**_CHECKED)
def _average(variance, weight, horizon):  # type: ignore[no-untyped-def]
    """Return the mean of the variances, which the rule with horizon 0 needs; else 0."""
    total = 0.0
    if weight > 0.0 and horizon == 0.0:
        for k in range(len(variance)):
            total += variance[k]
    return total / len(variance)


@njit(**_CHECKED)
def weigh_variance(variance, level, weight, horizon, noise):  # type: ignore[no-untyped-def]
    """Return the square of the bonus of an item of this variance, among arms of the mean variance `level`."""
    own = weight * variance
    if own > 0.0 and horizon > 0.0:
        return _NOISIER * own * square_index(horizon * variance / noise)
    if variance > level * (1.0 + 1e-9) > 0.0:  # where all are equal, their mean may be a little less
        return own * (1.0 + _RISE * np.log(variance / level))
    return own


@njit(**_CHECKED)
def square_index(s):  # type: ignore[no-untyped-def]
    """Return the square of what Gittins' index of a normal arm adds to its mean, in standard deviations.

    `s` is horizon Var / noise, as many rewards as are still to come for each that the variance is worth.  The
    approximation is that of Brezzi & Lai (2002), "Optimal learning and experimentation in bandit problems".
    """
    if s > 15.0:
        t = np.log(s)
        return 2.0 * t - np.log(t) - _LOG_16_PI
    if s > 5.0:
        psi = 0.77 - 0.58 / np.sqrt(s)
    elif s > 1.0:
        psi = 0.63 - 0.26 / np.sqrt(s)
    elif s > 0.2:
        psi = 0.49 - 0.11 / np.sqrt(s)
    else:
        return s / 2.0
    return psi * psi


@njit(**_CHECKED)
def _find_bounds(scores):  # type: ignore[no-untyped-def]
    """Return the first and the last arm of the best score; that of a score that is not a number, if there is one."""
    first = last = 0
    best = -np.inf
    for k in range(len(scores)):
        if scores[k] > best:
            best, first, last = scores[k], k, k
        elif scores[k] == best:
            last = k
        elif scores[k] != scores[k]:
            return k, k
    return first, last
