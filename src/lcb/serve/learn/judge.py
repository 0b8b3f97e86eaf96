"""Compares new models with the served version on held-out users.

    score      = sum_u log p(rewards of u | models) / sum_u count_u                      u: held out, class unknown
    difference = score - baseline                                             baseline: the version served now
    error      = sqrt( U / (U - 1) sum_u (d_u - difference count_u)^2 ) / sum_u count_u   d_u: u's own difference

New models whose difference is below 0 are stored but not served.  Classes of one kind that have a noise each are
compared with classes of another kind that share one by giving all the mean noise: noise that differs describes clicks
better, and chooses no better.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lcb.arrays import Floats
from lcb.event_log import EventLog
from lcb.models import LatentModels


def judge(
    models: LatentModels,
    active: LatentModels | None,
    version: int,
    held_out: EventLog,
    seen_by_active: EventLog | None = None,
) -> tuple[bool, str, float | None, float | None]:
    """Return whether to serve the new models, the reason, their score and the baseline.

    `active` are the models of the served version number `version`; None if there are none or they cannot be read.
    `seen_by_active` are the same users, with the rewards less the item effects of that version.
    """
    if held_out.n_users == 0:
        return True, "no users were held out to compare versions by", None, None
    if active is not None and active.personal != models.personal:
        models, active = share_one_noise(models), share_one_noise(active)
    new, count = models.user_scores(held_out), held_out.stats.count.astype(np.float64)
    score = float(new.sum() / count.sum())
    by = f"{held_out.n_users} held-out users score {score:.4f} per reward"
    if active is None:
        why = f"the version served before, {version}, cannot be read" if version else "the first version"
        return True, f"{why}: {by}", score, None
    old = with_likelihood_of(models, active).user_scores(held_out if seen_by_active is None else seen_by_active)
    baseline = float(old.sum() / count.sum())
    difference, error = paired_difference(new - old, count)
    both = f"{by}, under version {version} {baseline:.4f}"
    size = f"by {abs(difference):.4f} ± {error:.4f} (one standard error)"
    if difference < 0:
        return False, f"kept aside: {both}, worse {size}", score, baseline
    return True, f"{both}, better {size}", score, baseline


def with_likelihood_of(models: LatentModels, active: LatentModels) -> LatentModels:
    """Give `active` the likelihood of `models`, because a density cannot be compared with a probability."""
    kept = active if active.personal and models.levels is None else active.without_spread()
    return replace(
        kept, likelihood=models.likelihood, levels=models.levels, features=models.features, item_effects=None
    )


def share_one_noise(models: LatentModels) -> LatentModels:
    """Return the models with the mean noise of their classes in every class.

    >>> share_one_noise(LatentModels([0.75, 0.25], np.zeros((2, 1)), [0.1, 0.2])).sigma2
    array([0.125, 0.125])
    """
    return replace(models, sigma2=np.full(models.n_classes, models.pi @ models.sigma2))


def paired_difference(difference: Floats, count: Floats) -> tuple[float, float]:
    """Return the mean difference per reward and its standard error over users; the arguments are (U,).

    >>> paired_difference(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    (2.0, 1.0)
    """
    n, total = len(count), float(count.sum())
    mean = float(difference.sum()) / total
    rest = difference - mean * count
    return mean, math.sqrt(n / max(n - 1, 1) * float(rest @ rest)) / total
