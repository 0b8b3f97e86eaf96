"""One sample of the mixture: the class of every seated user, the sums of the classes, and the hyperparameters.

    rewards of a user of class h ~ N(x . beta_h, noise)     beta_h ~ N(mean, variance I)     mean ~ N(0, scale I)
    classes of users ~ Chinese restaurant process(concentration)

Given the seats, the posterior of a class follows from A_h = sum x x' and b_h = sum r x over its users:

    V_h   = (A_h / noise + I / variance)^-1
    V_m   = (I / scale + sum_h (I / variance - V_h / variance^2))^-1     m = V_m sum_h V_h b_h / (noise variance)
    class h: mean V_h (b_h / noise + m / variance)     covariance V_h + V_h V_m V_h / variance^2
    a new class: mean m, covariance variance I + V_m

The hyperparameters are learned by EM steps; `scale` is set to the mean square of the weights, and the concentration is
drawn given the number of classes, with the prior Gamma(1, 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.learners.mixture._posterior_numba import describe_samples, find_posterior, step_hyperparameters
from lcb.learners.shared.concentration import escobar_west
from lcb.models import LatentModels
from lcb.stats import n_packed

Labels = NDArray[np.int32]
_FREE_SLOTS = 8
_CONCENTRATION = (1.0, 1.0)  # shape and rate of its prior


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The noise of rewards, the variance of weights between classes, the mean (d,) and scale of their prior, and the
    concentration: the weight of a new class, in users.
    """

    noise: float
    variance: float
    scale: float
    mean: Floats
    concentration: float = 1.0

    @property
    def prior(self) -> tuple[Floats, float, float]:
        """The prior of a class for the compiled steps."""
        return self.mean, self.variance, self.noise


@dataclass(eq=False)
class Sample:
    """The seats of all users.  A slot with `counts` 0 has no class; `label` is -1 for a user who is not seated."""

    label: Labels  # (users,)
    sums: Floats  # (slots, p), statistics of the users of each class, times their weights
    size: Floats  # (slots,), sum of the weights of the users
    recent: Floats  # (slots,), sum of the weights of the users for the shares of classes, which are forgotten faster
    counts: NDArray[np.int64]  # (slots,), users; 1 more for a class of `known`
    hyper: Hyperparameters
    known: Floats | None = None  # (N, p + 1), statistics and number of users of the first N classes, learned before

    @classmethod
    def empty(cls, n_users: int, hyper: Hyperparameters) -> Sample:
        zeros = np.zeros(_FREE_SLOTS)
        sums = np.zeros((_FREE_SLOTS, n_packed(len(hyper.mean))))
        return cls(np.full(n_users, -1, np.int32), sums, zeros, zeros.copy(), np.zeros(_FREE_SLOTS, np.int64), hyper)

    def copy(self) -> Sample:
        return Sample(
            self.label.copy(),
            self.sums.copy(),
            self.size.copy(),
            self.recent.copy(),
            self.counts.copy(),
            self.hyper,
            self.known,
        )

    @property
    def occupied(self) -> Index:
        return np.flatnonzero(self.counts)

    def rebuild(self, rows: Floats, weights: Floats, recent: Floats, of_known: tuple[float, float] = (1, 1)) -> None:
        """Renumber the classes without gaps, sum them again, and add free slots.

        `weights` and `recent` are the weights of users in statistics and in shares, `of_known` those of `known`.
        """
        known = np.zeros((0, rows.shape[1] + 1)) if self.known is None else self.known
        used = np.union1d(np.arange(len(known)), self.label[self.label >= 0])
        seated = np.flatnonzero(self.label >= 0)
        label = np.searchsorted(used, self.label[seated])
        self.label[seated] = label
        n = len(used) + _FREE_SLOTS
        self.sums, self.counts = np.zeros((n, rows.shape[1])), np.bincount(label, minlength=n)
        np.add.at(self.sums, label, weights[seated, None] * rows[seated])
        self.size = np.bincount(label, weights[seated], n).astype(np.float64)
        self.recent = np.bincount(label, recent[seated], n).astype(np.float64)
        self.sums[: len(known)] += of_known[0] * known[:, :-1]
        self.size[: len(known)] += of_known[0] * known[:, -1]
        self.recent[: len(known)] += of_known[1] * known[:, -1]
        self.counts[: len(known)] += 1

    def grow(self) -> None:
        """Add free slots."""
        n = len(self.counts) + _FREE_SLOTS
        for name in ("sums", "size", "recent", "counts"):
            old = getattr(self, name)
            new = np.zeros((n, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def posterior(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return V (H, d, d), V_m (d, d), m (d,), means (H, d) and covariances (H, d, d)."""
        at = self.hyper
        found: tuple[Floats, Floats, Floats, Floats, Floats] = find_posterior(
            self.sums[self.occupied], at.variance, at.noise, at.scale
        )
        return found

    def learn_hyperparameters(self, n_steps: int) -> None:
        """Take EM steps of the noise and the variance; set the scale and the mean of the prior."""
        sums = self.sums[self.occupied]
        for _ in range(n_steps):
            noise, variance, scale, mean = step_hyperparameters(
                sums, self.hyper.variance, self.hyper.noise, self.hyper.scale
            )
            self.hyper = Hyperparameters(noise, variance, scale, mean, self.hyper.concentration)
        self.hyper = replace(self.hyper, mean=self.posterior()[2])

    def draw_concentration(self, rng: np.random.Generator) -> None:
        """Draw the concentration given the number of classes and the weight of all users."""
        n, weight = len(self.occupied), float(self.size.sum())
        drawn = escobar_west(self.hyper.concentration, n, weight, _CONCENTRATION, rng)
        self.hyper = replace(self.hyper, concentration=drawn)


def average(
    samples: Sequence[Sample],
    features: tuple[str, ...] = (),
    *,
    provenance: Mapping[str, Any] | None = None,
    sums: Floats | None = None,
) -> LatentModels:
    """Return what several samples predict: the classes of each and its new class, which comes last among its own."""
    occupied = [sample.occupied for sample in samples]
    first = np.cumsum([0, *map(len, occupied)])
    classes = [(sample.sums[of], sample.recent[of]) for sample, of in zip(samples, occupied, strict=True)]
    own, recent = (np.concatenate(part) for part in zip(*classes, strict=True))
    at = [sample.hyper for sample in samples]
    hyper = np.array([(one.variance, one.noise, one.scale, one.concentration) for one in at])
    pi, beta, noise, covariance = describe_samples(own, recent, first, hyper)
    return LatentModels(pi, beta, noise, features, provenance or {}, covariance=covariance, personal=True, sums=sums)


def read_models(models: LatentModels, n_users: int, concentration: float | None = None) -> Sample:
    """Return the sample of models learned by the learner `mixture`, whose users are not known one by one.

    `concentration` replaces theirs, unless it is None.
    """
    new, known = models.new_class, models.provenance
    if models.sums is None or new is None or not {"variance", "scale", "concentration"} <= known.keys():
        raise InputError("these models are no mixture; learn them with the learner 'mixture', with its new class")
    noise, mean = float(models.sigma2[new]), np.array(models.beta[new])
    hyper = Hyperparameters(noise, known["variance"], known["scale"], mean, concentration or known["concentration"])
    sample, seen = Sample.empty(n_users, hyper), np.delete(np.arange(models.n_classes), new)
    size = known["concentration"] * models.pi[seen] / models.pi[new]
    sample.known = np.column_stack((models.sums[seen], size))
    sample.rebuild(np.zeros((n_users, models.sums.shape[1])), np.zeros(n_users), np.zeros(n_users))
    return sample
