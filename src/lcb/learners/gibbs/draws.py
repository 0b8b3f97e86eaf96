"""Results of a sampler: the traces of its chains, and one model made of them (see `_consensus.py`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.errors import ConvergenceWarning, InputError, MissingExtra
from lcb.learners.gibbs._consensus import assign_most_probable, find_consensus
from lcb.learners.gibbs.diagnostics import LARGEST_RHAT, ess, rhat
from lcb.models import Fit, LatentModels
from lcb.models.prior import Prior
from lcb.stats import UserStats

if TYPE_CHECKING:
    from lcb.learners.gibbs._partition import Design, Partition

Concentration = float | tuple[float, float]


class Chain:
    """The record of one chain."""

    def __init__(
        self, n_sweeps: int, n_burn: int, watch: NDArray[np.intp], keep_every: int, drop_empty: bool = False
    ) -> None:
        self.n_burn, self.watch, self.keep_every, self.drop_empty = n_burn, watch, keep_every, drop_empty
        self.n_classes = np.zeros(n_sweeps, np.int64)
        self.log_joint, self.concentration, self.sigma2 = np.zeros((3, n_sweeps))
        self.watched = np.zeros((n_sweeps - n_burn, len(watch)), np.int32)
        self.kept: list[tuple[Floats, Floats]] = []  # statistics of the classes and their users

    def record(self, sweep: int, state: Partition, log_prior: float) -> None:
        self.n_classes[sweep] = len(state.occupied)
        self.log_joint[sweep] = state.log_joint() + log_prior
        self.concentration[sweep], self.sigma2[sweep] = state.concentration, state.sigma2
        if sweep >= self.n_burn:
            self.watched[sweep - self.n_burn] = state.label[self.watch]
            if (sweep - self.n_burn) % self.keep_every == 0:
                sums, size = state.classes()
                some = size > 0 if self.drop_empty else np.ones(len(size), bool)
                self.kept.append((sums[:, some], size[some]))


@dataclass(frozen=True, eq=False)
class GibbsFit(Fit):
    """Models and the draws they were made from.  Traces are (chains, sweeps), burn-in included."""

    label: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))  # users' likeliest classes, if here
    n_burn: int = 0
    n_classes: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))
    log_joint: Floats = field(default_factory=lambda: np.empty((0, 0)))
    concentration: Floats = field(default_factory=lambda: np.empty((0, 0)))
    sigma2: Floats | None = None  # if the variance is shared
    watch: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    watched: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))  # (draws, watched users)

    @cached_property
    def n_classes_posterior(self) -> dict[int, float]:
        """The probability of each number of occupied classes."""
        values, counts = np.unique(self.n_classes[:, self.n_burn :], return_counts=True)
        return dict(zip(values.tolist(), (counts / counts.sum()).tolist(), strict=True))

    @property
    def draws(self) -> dict[str, Floats]:
        """The traces that do not depend on labels, after burn-in, each (chains, draws)."""
        kept = {"n_classes": self.n_classes, "log_joint": self.log_joint, "concentration": self.concentration}
        if self.sigma2 is not None:
            kept["sigma2"] = self.sigma2
        return {name: np.asarray(values[:, self.n_burn :], float) for name, values in kept.items()}

    @cached_property
    def rhat(self) -> dict[str, float]:
        return {name: rhat(values) for name, values in self.draws.items()}

    @cached_property
    def ess(self) -> dict[str, float]:
        return {name: ess(values) for name, values in self.draws.items()}

    def co_assignment(self) -> Floats:
        """Return the probability that two watched users share a class, (watched, watched)."""
        if not len(self.watch):
            raise InputError("no users were watched; give their positions as watch= when fitting")
        together = np.zeros((len(self.watch), len(self.watch)))
        for labels in self.watched:
            together += labels[:, None] == labels
        return together / len(self.watched)

    def to_arviz(self) -> Any:
        """Return the draws as arviz.InferenceData."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # arviz announces its next version on import
                import arviz
        except ImportError:
            raise MissingExtra("arviz", "diagnostics") from None
        return arviz.from_dict(posterior=self.draws)


def summarise(stats: UserStats, prior: Prior, design: Design, chains: Sequence[Chain], shared: bool) -> GibbsFit:
    """Make one model from all chains; warn if the chains do not agree."""
    models, chosen = find_consensus(stats, prior, design, [chain.kept for chain in chains], shared)
    return describe(models, chosen, chains, assign_most_probable(models, stats), shared)


def describe(
    models: LatentModels, chosen: int, chains: Sequence[Chain], label: NDArray[np.intp], shared: bool
) -> GibbsFit:
    """Return the fit with the draws of all chains; warn if they do not agree."""
    result = GibbsFit(
        models,
        chains[chosen].log_joint,
        converged=True,
        label=label,
        n_burn=chains[0].n_burn,
        n_classes=np.stack([chain.n_classes for chain in chains]),
        log_joint=np.stack([chain.log_joint for chain in chains]),
        concentration=np.stack([chain.concentration for chain in chains]),
        sigma2=np.stack([chain.sigma2 for chain in chains]) if shared else None,
        watch=chains[0].watch,
        watched=np.concatenate([chain.watched for chain in chains]),
    )
    worst = max(result.rhat, key=lambda name: result.rhat[name])
    if result.rhat[worst] <= LARGEST_RHAT:
        return result
    warnings.warn(
        f"the chains do not agree on {worst}: R-hat {result.rhat[worst]:.3g}, wanted {LARGEST_RHAT} or less; "
        "raise n_sweeps; until then the number of classes is rough",
        ConvergenceWarning,
        stacklevel=5,
    )
    return replace(result, converged=False)
