"""The classes of all users, with the sums that collapsed sampling needs of each class.

`Design` is the data in the form of the kernels, shared by all chains: one row per user; rewards minus the prediction of
the prior's mean, features in units in which the prior precision has diagonal 1.  `Partition` is the state of one chain:
every user's class and, per class, the summed statistics, the number of users and the log evidence.

    log evidence(class) = (log|V| - log|V_n|) / 2 - count/2 log 2 pi
                          + a log b - a_n log b_n + log Gamma(a_n) - log Gamma(a)         a variance per class
                          - count/2 log sigma2 - (b_n - b) / sigma2                       one variance, given

    V_n = V + gram      a_n = a + count / 2      b_n = b + (square_sum - moment' V_n^-1 moment) / 2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from lcb.arrays import Floats
from lcb.learners.gibbs import _gibbs_numba as kernels
from lcb.models.prior import Prior
from lcb.stats import UserStats, upper

Labels = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Design:
    """The data and the prior, in the kernels' units."""

    rows: Floats  # (users, p)
    precision: Floats  # (p,), the prior precision at the places of gram, else 0
    floor: Floats  # (d,), the pivots of the precision
    alone_log_det: Floats  # (users,), log |V_n| of each user in a class of its own
    alone_unexplained: Floats  # (users,), 2 (b_n - b) of each user in a class of its own
    mean: Floats  # (d,), the prior's
    unit: Floats  # (d,), beta = mean + unit * (beta in these units)
    prior: Prior  # in these units
    n_users: int
    n_rewards: float

    @classmethod
    def make(
        cls, stats: UserStats, prior: Prior, *, n_users: int | None = None, n_rewards: float | None = None
    ) -> Design:
        """Make the design of these users; `n_users` and `n_rewards` count all users, if they are elsewhere."""
        d = stats.n_features
        mean, precision = prior.arrays(d)
        unit = 1.0 / np.sqrt(np.diag(precision))
        rows, columns = upper(d)
        packed = np.zeros(len(stats.packed))
        scaled = precision * unit[:, None] * unit
        packed[: len(rows)] = scaled[rows, columns]
        root = np.linalg.cholesky(scaled)
        data = centre_rows(stats, mean, unit)
        log_det, unexplained = np.empty(len(data)), np.empty(len(data))
        floor = np.square(np.diag(root))
        kernels.alone(data, packed, floor, log_det, unexplained)
        own = Prior(0.0, scaled, prior.shape, prior.rate, prior.concentration)
        n_users = len(data) if n_users is None else n_users
        n_rewards = float(data[:, -1].sum(dtype=np.float64)) if n_rewards is None else n_rewards
        return cls(data, packed, floor, log_det, unexplained, mean, unit, own, n_users, n_rewards)

    def hyper(self, sigma2: float) -> Floats:
        """Return the prior's numbers for the kernels; `sigma2` 0 means a variance per class."""
        constant = 0.5 * float(np.log(self.floor).sum())
        if sigma2 == 0:
            constant += self.prior.shape * np.log(self.prior.rate) - float(gammaln(self.prior.shape))
        return np.array([constant, self.prior.shape, self.prior.rate, sigma2])


class Partition:
    """The state of one chain.  With `n_classes` None, the Dirichlet process chooses their number."""

    def __init__(self, design: Design, label: NDArray[np.integer], n_classes: int | None, shared: bool) -> None:
        self.design = design
        self.n_classes = n_classes
        self.label: Labels = np.array(label, dtype=np.int32)
        self.concentration = 1.0
        self.sigma2 = design.prior.rate / design.prior.shape if shared else 0.0  # 0: a variance per class
        self.rebuild()

    @property
    def shared(self) -> bool:
        """Whether all classes have one variance."""
        return self.sigma2 > 0

    @property
    def share(self) -> float:
        """The weight of a class in addition to its users."""
        return self.concentration / self.n_classes if self.n_classes else 0.0

    @property
    def occupied(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.size[: self.n_slots])

    @property
    def hyper(self) -> Floats:
        return self.design.hyper(self.sigma2)

    def rebuild(self) -> None:
        """Renumber the classes without gaps and sum them again."""
        found = np.bincount(self.label) > 0
        self.label = (np.cumsum(found, dtype=np.int32) - 1)[self.label]
        n = int(found.sum())
        self.n_slots = self.n_classes or n
        self._clear(self.n_slots + 1 if self.n_classes else n + max(8, n // 4))
        kernels.add_rows(self.design.rows, self.label, self.sums, self.size)
        self.refresh()

    def adopt(self, label: Labels, sums: Floats, size: Floats) -> None:
        """Replace the classes, whose number is fixed, by new ones with their sums."""
        self.label = label
        self._clear(len(size) + 1)
        self.sums[:, : len(size)] += sums
        self.size[: len(size)] = size
        self.refresh()

    def refresh(self) -> None:
        """Recompute the log evidence of all classes."""
        self.log_evidence = kernels.evidence_of(self.sums, self.design.floor, self.hyper)
        self.log_evidence[self.size == 0] = 0.0

    def unexplained(self) -> float:
        """Return the sum over classes of 2 (b_n - b)."""
        work = self.sums.copy()
        kernels.eliminate(work, np.empty((kernels.N_EXTRA, work.shape[1])), self.design.floor, work.shape[1])
        return float(work[-2, self.occupied].sum())

    def draw_sigma2(self, rng: np.random.Generator) -> None:
        """Draw the shared variance given the classes, their beta integrated out."""
        design = self.design
        gamma = rng.standard_gamma(design.prior.shape + 0.5 * design.n_rewards)
        self.sigma2 = (design.prior.rate + 0.5 * self.unexplained()) / max(gamma, 1e-300)
        self.refresh()

    def sweep(self, rng: np.random.Generator) -> None:
        """Draw every user's class given all others."""
        self.rebuild()
        design, uniform, user = self.design, rng.random(self.design.n_users), 0
        log_new = -np.inf if self.n_classes else float(np.log(self.concentration))
        while True:
            users = design.rows, design.alone_log_det, design.alone_unexplained, self.label
            classes = self.sums, self.size, self.log_evidence, design.floor, self.hyper, self.share
            user, self.n_slots = kernels.sweep(*users, *classes, log_new, uniform, user, self.n_slots)
            if user == design.n_users:
                return
            self._grow()

    def free_slot(self, rng: np.random.Generator) -> int:
        """Return an empty column; with a given number of classes, a random one."""
        end = self.n_classes or len(self.size) - 1
        empty = np.flatnonzero(self.size[:end] == 0)
        if not len(empty):
            self._grow()
            return self.free_slot(rng)
        slot = int(empty[rng.integers(len(empty))] if self.n_classes else empty[0])
        self.n_slots = max(self.n_slots, slot + 1)
        return slot

    def classes(self) -> tuple[Floats, Floats]:
        """Return the statistics (p, k) and numbers of users of the classes; empty ones only if N is given."""
        kept = np.arange(self.n_classes) if self.n_classes else self.occupied
        return self.sums[:, kept] - self.design.precision[:, None], self.size[kept]

    def log_joint(self) -> float:
        """Return log p(classes of users | concentration) + log p(rewards | classes of users)."""
        sizes = self.size[self.occupied]
        return log_partition(sizes, self.concentration, self.n_classes) + float(self.log_evidence[self.occupied].sum())

    def _clear(self, at_least: int) -> None:
        """Allocate empty columns, a multiple of the kernels' lanes; the last is never used."""
        capacity = -(-at_least // kernels.LANES) * kernels.LANES
        self.sums = np.repeat(self.design.precision[:, None], capacity, axis=1)
        self.size, self.log_evidence = np.zeros(capacity), np.zeros(capacity)

    def _grow(self) -> None:
        """Double the number of columns."""
        n, sums, size, log_evidence = len(self.size), self.sums, self.size, self.log_evidence
        self._clear(2 * n)
        self.sums[:, :n], self.size[:n], self.log_evidence[:n] = sums, size, log_evidence


def log_partition(sizes: Floats, concentration: float, n_classes: int | None) -> float:
    """Return the log probability of users' classes: of the Chinese restaurant process, or with `n_classes` labels."""
    n_users = sizes.sum()
    value = gammaln(concentration) - gammaln(n_users + concentration)
    if n_classes is None:
        return float(value + len(sizes) * np.log(concentration) + gammaln(sizes).sum())
    share = concentration / n_classes
    return float(value + (gammaln(sizes + share) - gammaln(share)).sum())


def centre_rows(stats: UserStats, mean: Floats, unit: Floats) -> Floats:
    """Return users' statistics, (users, p), of rewards minus x . mean and of features times `unit`."""
    d = stats.n_features
    rows, columns = upper(d)
    packed, n_gram = stats.packed, len(rows)
    data = np.empty((stats.n_users, len(packed)), packed.dtype)
    turned = np.zeros((n_gram, d))  # gram @ mean as a product with the packed gram
    turned[np.arange(n_gram), rows] = mean[columns]
    off = rows != columns
    turned[np.flatnonzero(off), columns[off]] += mean[rows[off]]
    for first in range(0, stats.n_users, 4096):
        block = packed[:, first : first + 4096].T.astype(np.float64)
        fitted = block[:, :n_gram] @ turned
        out = data[first : first + 4096]
        out[:, :n_gram] = block[:, :n_gram] * (unit[rows] * unit[columns])
        moment = block[:, n_gram:-2]
        out[:, n_gram:-2] = (moment - fitted) * unit
        out[:, -2] = np.maximum(block[:, -2] + (fitted - 2 * moment) @ mean, 0.0)
        out[:, -1] = block[:, -1]
    return data
