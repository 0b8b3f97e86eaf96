"""One step of a collapsed chain; the formulas are in `collapsed.py`."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from lcb.learners.gibbs._concentration import slice_finite
from lcb.learners.gibbs._partition import Partition
from lcb.learners.gibbs._split_merge import split_merge, urn_split_merge
from lcb.learners.gibbs.draws import Concentration
from lcb.learners.shared.concentration import escobar_west

_URN_MOVES = 8  # urn moves for each move with restricted scans


def step(
    state: Partition, concentration: Concentration, n_split_merge: int, n_scans: int, rng: np.random.Generator
) -> None:
    """Sweep over the users, try split-merge moves, draw the concentration and the shared variance."""
    state.sweep(rng)
    jump(state, n_split_merge, n_scans, rng)
    draw_concentration(state, concentration, rng)
    if state.shared:
        state.draw_sigma2(rng)


def jump(state: Partition, n_split_merge: int, n_scans: int, rng: np.random.Generator) -> None:
    """Try split-merge moves: after each with restricted scans, several with an urn."""
    if state.design.n_users > 1:
        for _ in range(n_split_merge):
            split_merge(state, rng, n_scans)
            for _ in range(_URN_MOVES):
                urn_split_merge(state, rng)


def draw_concentration(state: Partition, concentration: Concentration, rng: np.random.Generator) -> None:
    """Draw alpha given the classes, unless it is fixed."""
    if not isinstance(concentration, tuple):
        return
    alpha, sizes = state.concentration, state.size[state.occupied]
    if state.n_classes is None:
        state.concentration = escobar_west(alpha, len(sizes), state.design.n_users, concentration, rng)
    else:
        state.concentration = slice_finite(alpha, sizes, state.n_classes, concentration, rng)


def log_prior(state: Partition, concentration: Concentration) -> float:
    """Return the log density of alpha and of the shared variance, if they are drawn."""
    value = 0.0
    if isinstance(concentration, tuple):
        shape, rate = concentration
        alpha = state.concentration
        value += shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(alpha) - rate * alpha
    if state.shared:
        shape, rate = state.design.prior.shape, state.design.prior.rate
        value += shape * np.log(rate) - gammaln(shape) - (shape + 1) * np.log(state.sigma2) - rate / state.sigma2
    return float(value)
