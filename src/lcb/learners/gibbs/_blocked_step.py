"""One step of the blocked sampler; the formulas are in `blocked.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.learners.gibbs import _gibbs_numba as kernels
from lcb.learners.gibbs._blocked_numba import draw_classes
from lcb.learners.gibbs._collapsed_step import draw_concentration, jump
from lcb.learners.gibbs._partition import Partition
from lcb.learners.gibbs.draws import Concentration
from lcb.models import LatentModels
from lcb.stats import UserStats

BLOCK = 1024  # users whose statistics and likelihoods stay in the cache together
SPAN = 8 * BLOCK  # users a thread takes at a time; fixed spans make the sums independent of the number of threads
_LOWEST = -600.0  # lower values of log pi are raised to this

Map = Callable[[Callable[[slice], Any], Sequence[slice]], list[Any]]


def step(
    state: Partition,
    concentration: Concentration,
    n_split_merge: int,
    n_scans: int,
    map_spans: Map,
    rng: np.random.Generator,
) -> None:
    """Draw parameters given classes and classes given parameters; then the same moves as a collapsed chain."""
    models, log_pi = draw_models(state, rng)
    assign(state, models, log_pi, map_spans, rng)
    jump(state, n_split_merge, n_scans, rng)
    draw_concentration(state, concentration, rng)
    if state.shared:
        state.draw_sigma2(rng)


def draw_models(state: Partition, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw parameters and pi given the users; return the packed parameters (N, p) and log pi (N,)."""
    sums, size = state.classes()
    classes = UserStats(sums, len(state.design.floor))
    if state.shared:
        beta = state.design.prior.draw_beta(classes, np.full(len(size), state.sigma2), rng)
        sigma2 = np.full(len(size), state.sigma2)
    else:
        beta, sigma2 = state.design.prior.draw(classes, rng)
    models = LatentModels(np.full(len(size), 1 / len(size)), beta, sigma2)
    return np.ascontiguousarray(models.packed().T, state.design.rows.dtype), draw_log_pi(size + state.share, rng)


def draw_log_pi(weights: Floats, rng: np.random.Generator) -> Floats:
    """Return the log of a Dirichlet draw, exact also for weights so small that the draw itself would be 0."""
    log_gamma = np.log(rng.standard_gamma(weights + 1)) + np.log1p(-rng.random(len(weights))) / weights
    return np.maximum(log_gamma - np.logaddexp.reduce(log_gamma), _LOWEST)


def assign(state: Partition, models: Floats, log_pi: Floats, map_spans: Map, rng: np.random.Generator) -> None:
    """Draw every user's class given the models, in threads."""
    design = state.design
    n_users, p = design.rows.shape
    uniform, label = rng.random((n_users,)), np.empty(n_users, np.int32)

    def work(span: slice) -> tuple[Floats, Floats]:
        for first in range(span.start, span.stop, BLOCK):
            here = slice(first, min(first + BLOCK, span.stop))
            draw_classes(models @ design.rows[here].T, log_pi, uniform[here], label[here])
        sums, size = np.zeros((p, len(models))), np.zeros(len(models))
        kernels.add_rows(design.rows[span], label[span], sums, size)
        return sums, size

    spans = [slice(i, min(i + SPAN, n_users)) for i in range(0, n_users, SPAN)]
    parts = map_spans(work, spans)
    state.adopt(label, np.sum([part[0] for part in parts], axis=0), np.sum([part[1] for part in parts], axis=0))
