"""Blocked Gibbs sampling of users that are on other machines: no user's class comes here, only the sums of the classes.

Split-merge moves change the classes of single users between two steps, so they are left out.  Every user has a place in
the random stream of the chain, so the draws do not depend on where the users are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.learners.gibbs._blocked_numba import draw_classes
from lcb.learners.gibbs._blocked_step import BLOCK, SPAN, draw_models
from lcb.learners.gibbs._collapsed_step import draw_concentration, log_prior
from lcb.learners.gibbs._consensus import find_consensus
from lcb.learners.gibbs._gibbs_numba import add_rows
from lcb.learners.gibbs._partition import Design, Partition, centre_rows
from lcb.learners.gibbs.draws import Chain, GibbsFit, describe
from lcb.learners.shared.starts import kmeans_starts
from lcb.learners.shared.users import Map, Users, sample_users, scale_prior, split
from lcb.models import LatentModels
from lcb.progress import Progress
from lcb.stats import UserStats, n_packed

if TYPE_CHECKING:
    from lcb.learners.gibbs.blocked import BlockedSettings

_START_USERS = 5_000  # users that are clustered for a "split" start
_SCORED_USERS = 20_000  # users by which two models are compared
_N_KEPT = 50  # most draws of a chain whose classes are kept


@dataclass(frozen=True, eq=False)
class Drawn:
    """The classes after a step."""

    sums: Floats  # (p, N) statistics, in the design's units
    size: Floats  # (N,) users

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.sums + other.sums, self.size + other.size)


@dataclass(frozen=True, eq=False)
class DrawClasses:
    """Draws every user's class given the models; without `stream`, takes the most probable one."""

    models: Floats  # (N, p), packed, in the design's units
    log_pi: Floats  # (N,)
    mean: Floats  # (d,) and
    unit: Floats  # (d,), the design's units
    stream: dict[str, Any] | None  # the state of the random numbers before those of the first user
    span: int | None = SPAN

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], Drawn]:
        stats, n_classes = log.stats, len(self.models)

        def draw(users: slice, first: int) -> Drawn:
            n, p = users.stop - users.start, len(stats.packed)
            uniform, label = self._draw_uniform(first, n), np.empty(n, np.int32)
            sums, size = np.zeros((p, n_classes)), np.zeros(n_classes)
            for here in split(slice(0, n), BLOCK):
                block = UserStats(stats.packed[:, users.start + here.start : users.start + here.stop], stats.n_features)
                rows = centre_rows(block, self.mean, self.unit)
                scores = self.models.astype(rows.dtype, copy=False) @ rows.T
                if uniform is None:
                    label[here] = (scores + self.log_pi[:, None]).argmax(axis=0)
                else:
                    draw_classes(scores, self.log_pi, uniform[here], label[here])
                add_rows(rows, label[here], sums, size)
            return Drawn(sums, size)

        return draw

    def _draw_uniform(self, first: int, n: int) -> Floats | None:
        if self.stream is None:
            return None
        bits = np.random.PCG64()
        bits.state = self.stream  # type: ignore[assignment]
        return np.random.Generator(bits.advance(first)).random(n)


def fit_elsewhere(
    settings: BlockedSettings,
    users: Users,
    n_classes: int,
    rng: np.random.Generator,
    progress: Progress,
    *,
    drop_empty: bool,
) -> GibbsFit:
    """Run the chains one after the other, each step on all machines."""
    if np.size(settings.watch) or not isinstance(settings.start, str | tuple):
        raise InputError("users on a cluster have no positions: leave out `watch`, and give start 'split' or 'one'")
    prior, shared = settings.prior or scale_prior(users), settings.variance == "shared"
    n_sweeps, n_burn = settings.n_sweeps, settings.n_dropped
    empty = UserStats(np.zeros((n_packed(users.n_features), 0)), users.n_features, (), users.features)
    design = Design.make(empty, prior, n_users=users.n_users, n_rewards=float(users.n_events))
    alpha, chains = settings.concentration, []
    for number, own_rng in enumerate(rng.spawn(settings.n_chains)):
        state = Partition(design, np.zeros(0, np.int32), n_classes, shared)
        state.concentration = 1.0 if isinstance(alpha, tuple) else float(alpha)
        _adopt(state, users.sums(_make_start(users, design, n_classes, settings, number, own_rng)))
        chain = Chain(n_sweeps, n_burn, np.zeros(0, np.intp), max(1, (n_sweeps - n_burn) // _N_KEPT), drop_empty)
        for sweep in range(n_sweeps):
            models, log_pi = draw_models(state, own_rng)
            stream = own_rng.bit_generator.state
            _adopt(state, users.sums(DrawClasses(models, log_pi, design.mean, design.unit, dict(stream))))
            own_rng.bit_generator.advance(users.n_users)  # type: ignore[attr-defined]
            draw_concentration(state, alpha, own_rng)
            if state.shared:
                state.draw_sigma2(own_rng)
            chain.record(sweep, state, log_prior(state, alpha))
            progress("Gibbs sweeps", number * n_sweeps + sweep + 1, settings.n_chains * n_sweeps)
        chains.append(chain)
    some = sample_users(users, np.random.default_rng(0), _SCORED_USERS).stats
    best, chosen = find_consensus(some, prior, design, [chain.kept for chain in chains], shared, users.n_users)
    return describe(best, chosen, chains, np.zeros(0, np.intp), shared)


def _adopt(state: Partition, drawn: Drawn) -> None:
    state.adopt(np.zeros(0, np.int32), drawn.sums, drawn.size)


def _make_start(
    users: Users, design: Design, n_classes: int, settings: BlockedSettings, chain: int, rng: np.random.Generator
) -> DrawClasses:
    """Return the work that puts every user into a class: of k-means on a sample, or one for all."""
    start = settings.start[chain % len(settings.start)] if isinstance(settings.start, tuple) else settings.start
    if start not in ("split", "one"):
        raise InputError(f"start={start!r}; it is 'split' or 'one'")
    sample = sample_users(users, rng, _START_USERS).stats
    label: Index = np.zeros(sample.n_users, np.intp)
    n = min(n_classes, sample.n_users)
    if start == "split":
        label = next(kmeans_starts(sample, n, settings.prior or scale_prior(users), 1, rng)).label
    rows = centre_rows(sample, design.mean, design.unit)
    sums, size = np.zeros((rows.shape[1], n_classes)), np.zeros(n_classes)
    add_rows(rows, label.astype(np.int32), sums, size)
    beta, sigma2 = design.prior.mode(UserStats(sums, users.n_features), shared=False)
    models = LatentModels(np.full(n_classes, 1 / n_classes), beta, sigma2)
    log_pi = np.where(size > 0, 0.0, -1e300)
    return DrawClasses(np.ascontiguousarray(models.packed().T), log_pi, design.mean, design.unit, None)
