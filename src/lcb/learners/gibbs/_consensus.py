"""Makes one model from the draws of a sampler.

Labels switch from draw to draw, so draws cannot be averaged directly.  Of the kept draws with the most probable number
of classes, the reference is the one with the highest likelihood of the users (each user's class integrated out); the
other such draws of its chain are matched to it class by class, and their statistics averaged.  The better of reference
and average is returned, at the mode of (beta, sigma2).

The log joint cannot choose the reference: it is highest for few large classes, not where the posterior has its mass
(on 20,000 users of 30 noisy classes it falls by 2 % while the classes become right).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from lcb.arrays import Floats, add_up
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.stats import UserStats

if TYPE_CHECKING:
    from lcb.learners.gibbs._partition import Design

Draw = tuple[Floats, Floats]  # statistics of the classes (p, k) in the design's units, and their users (k,)
_SCORED_USERS = 20_000  # users by which two models are compared
_BLOCK = 16_384


def find_consensus(
    stats: UserStats,
    prior: Prior,
    design: Design,
    chains: Sequence[Sequence[Draw]],
    shared: bool,
    n_users: int | None = None,
) -> tuple[LatentModels, int]:
    """Return the model, largest class first, and the number of its chain; `stats` may be a sample of `n_users`."""
    n_users = n_users or stats.n_users
    counts = [int((size > 0).sum()) for draws in chains for _, size in draws]
    likely = int(np.bincount(counts).argmax())
    some = stats
    if stats.n_users > _SCORED_USERS:
        some = stats.take(np.linspace(0, stats.n_users - 1, _SCORED_USERS).astype(np.intp))

    def score(models: LatentModels) -> float:
        fit = add_up(models.user_scores(block).sum() for block in _blocks(some)) * n_users / some.n_users
        return float(fit) + prior.log_density(models.pi, models.beta, models.sigma2, shared)

    best: tuple[float, LatentModels, int, Draw] | None = None
    for chain, draws in enumerate(chains):
        for draw in draws:
            if (draw[1] > 0).sum() == likely:
                models = _take_mode(draw, design, prior, stats, shared)
                value = score(models)
                if best is None or value > best[0]:
                    best = value, models, chain, draw
    assert best is not None
    value, models, chain, reference = best
    draws = [draw for draw in chains[chain] if (draw[1] > 0).sum() == likely]
    if len(draws) > 1:
        average = _take_mode(_average(reference, draws, design), design, prior, stats, shared)
        if score(average) > value:
            models = average
    order = np.argsort(-models.pi, kind="stable")
    return LatentModels(models.pi[order], models.beta[order], models.sigma2[order], stats.features), chain


def assign_most_probable(models: LatentModels, stats: UserStats) -> NDArray[np.intp]:
    """Return each user's most probable class."""
    scores = (models.user_log_likelihood(block) + models.log_pi for block in _blocks(stats))
    return np.concatenate([block.argmax(axis=1) for block in scores])


def _blocks(stats: UserStats) -> Iterator[UserStats]:
    for first in range(0, stats.n_users, _BLOCK):
        yield UserStats(stats.packed[:, first : first + _BLOCK], stats.n_features, (), stats.features)


def _take_mode(draw: Draw, design: Design, prior: Prior, stats: UserStats, shared: bool) -> LatentModels:
    sums, size = draw
    beta, sigma2 = design.prior.mode(UserStats(sums, stats.n_features), shared)
    pi = (size + prior.concentration / len(size)) / (size.sum() + prior.concentration)
    return LatentModels(pi, design.mean + beta * design.unit, sigma2, stats.features)


def _average(reference: Draw, draws: Sequence[Draw], design: Design) -> Draw:
    """Return the mean of the draws, their classes matched to those of `reference` by the rewards they predict."""
    d = len(design.floor)
    total = UserStats(reference[0].sum(axis=1, keepdims=True), d)
    values, vectors = np.linalg.eigh(total.gram[0] / total.count[0])
    root = vectors * np.sqrt(np.maximum(values, 0.0) + 1e-9)  # rounding may leave values a little below 0

    def locate(draw: Draw) -> Floats:
        return np.asarray(design.prior.mode(UserStats(draw[0], d), shared=False)[0] @ root)

    here = locate(reference)
    sums, sizes = np.zeros_like(reference[0]), np.zeros_like(reference[1])
    for draw in draws:
        there = locate(draw)
        far = np.square(here).sum(axis=1)[:, None] - 2 * here @ there.T + np.square(there).sum(axis=1)
        _, match = linear_sum_assignment(far)
        sums += draw[0][:, match]
        sizes += draw[1][match]
    return sums / len(draws), sizes / len(draws)
