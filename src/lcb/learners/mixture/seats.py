"""The mixture's memory of users: their statistics, several samples of their classes, and refits.

A user who leaves is seated: in each sample, a class is drawn in proportion to its share of recent users times the
density of the user's rewards in it; a new class is always possible.  A refit draws all seats again by Gibbs sweeps and
learns the hyperparameters; it keeps `n_samples` samples, and what the mixture predicts is the mean over them.

Users are forgotten: a user who left k users ago has weight exp(-k / memory) in the statistics of their class, and
exp(-k / share_memory) in its share.  With infinite memories the sweeps sample from the exact posterior.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.learners.mixture._seats_numba import draw_seats
from lcb.learners.mixture.first_users import choose_hyperparameters
from lcb.learners.mixture.sample import Sample, average, read_models
from lcb.models import LatentModels
from lcb.stats import n_packed

_LEAST_WEIGHT = 0.01  # a user with less weight is not seated any more
_EM_STEPS = 10


class Seats:
    """Statistics of users by position, and where they are seated; `rng` draws the seats.

    `concentration` None: it is learned.
    """

    def __init__(
        self,
        n_features: int,
        *,
        rng: np.random.Generator,
        n_samples: int = 8,
        n_sweeps: int = 16,
        concentration: float | None = None,
        memory: float = np.inf,
        share_memory: float = np.inf,
    ) -> None:
        self.n_features, self.rng = n_features, rng
        self.n_samples, self.n_sweeps, self.concentration = n_samples, n_sweeps, concentration
        self.memory, self.share_memory = memory, share_memory
        self.n_users = 0
        self.rows = np.zeros((0, n_packed(n_features)))  # statistics of each user; rows from n_users on are not used
        self.left = np.zeros(0)  # value of `n_left` when the user left last; nan if not seated
        self.n_left = 0.0  # users who have left; days, where a served mixture forgets by days
        self.began = 0.0  # value of `n_left` when the classes of `continue_from` were learned
        self.weight = 0.0  # of all seated users, in the statistics
        self.samples: list[Sample] = []

    def add_user(self) -> int:
        """Return the position of a new user."""
        if self.n_users == len(self.rows):
            n = max(64, self.n_users + self.n_users // 4)
            self.rows = _lengthen(self.rows, n, 0.0)
            self.left = _lengthen(self.left, n, np.nan)
            for sample in self.samples:
                sample.label = _lengthen(sample.label, n, -1)
        self.n_users += 1
        return self.n_users - 1

    def is_seated(self, user: int) -> bool:
        return bool(self.left[user] == self.left[user])

    def weights(self, memory: float) -> Floats:
        """Return the weight of every user, 0 for those who are not seated."""
        return np.nan_to_num(np.exp((self.left - self.n_left) / memory), nan=0.0)

    def seat(self, user: int) -> None:
        """Seat a user who leaves; one without rewards changes nothing."""
        if self.rows[user, -1] == 0:
            return
        self.n_left += 1
        self.left[user] = self.n_left
        self.weight = self.weight * np.exp(-1 / self.memory) + 1
        if not self.samples:
            self._begin()
            return
        keep, keep_share = np.exp(-1 / self.memory), np.exp(-1 / self.share_memory)
        one, first = np.ones(1), np.zeros(1, np.intp)
        for sample in self.samples:
            sample.sums *= keep
            sample.size *= keep
            sample.recent *= keep_share
            self._draw(sample, slice(user, user + 1), first, one, "recent")
            sample.size[sample.label[user]] += 1.0

    def unseat(self, user: int) -> None:
        """Take a user who comes back out of their class, so that their rewards do not count twice."""
        if not self.is_seated(user):
            return
        age = self.n_left - self.left[user]
        weight, share = np.exp(-age / self.memory), np.exp(-age / self.share_memory)
        self.left[user] = np.nan
        self.weight = max(self.weight - weight, 0.0)
        for sample in self.samples:
            h = sample.label[user]
            if h < 0:
                continue
            sample.label[user] = -1
            sample.counts[h] -= 1
            if sample.counts[h] == 0:
                sample.sums[h], sample.size[h], sample.recent[h] = 0.0, 0.0, 0.0
            else:
                sample.sums[h] -= weight * self.rows[user]
                sample.size[h] = max(sample.size[h] - weight, 0.0)
                sample.recent[h] = max(sample.recent[h] - share, 0.0)
        self.samples = [sample for sample in self.samples if sample.counts.any()]

    def refit(self) -> None:
        """Draw all seats again, learn the hyperparameters, and keep `n_samples` samples."""
        if not self.samples:
            return
        weights, recent, sample = self.weights(self.memory), self.weights(self.share_memory), self.samples[-1]
        sample.label[weights < _LEAST_WEIGHT] = -1
        seated = np.flatnonzero(sample.label >= 0)
        since = self.began - self.n_left
        of_known = np.exp(since / self.memory), np.exp(since / self.share_memory)
        sample.rebuild(self.rows, weights, recent, of_known)
        sample.learn_hyperparameters(_EM_STEPS)
        thin = max(1, self.n_sweeps // self.n_samples)
        self.samples = []
        for sweep in range(1 - self.n_samples * thin, 1):
            self._draw(sample, slice(None), self.rng.permutation(seated), weights, "size")
            sample.learn_hyperparameters(1)
            if self.concentration is None:
                sample.draw_concentration(self.rng)
            if sweep % thin == 0:
                sample.rebuild(self.rows, weights, recent, of_known)
                self.samples.append(sample.copy())

    def models(self, features: tuple[str, ...] = ()) -> LatentModels:
        """Return what the mixture predicts: the classes of every sample, each sample's new class last among its own.

        Models of a single sample have what `continue_from` needs.
        """
        sums, provenance = None, {}
        if len(self.samples) == 1:
            (sample,) = self.samples
            sums = np.vstack((sample.sums[sample.occupied], np.zeros(self.rows.shape[1])))
            at = sample.hyper
            provenance = {"variance": at.variance, "scale": at.scale, "concentration": at.concentration}
        return average(self.samples, features, provenance=provenance, sums=sums)

    def continue_from(self, models: LatentModels) -> None:
        """Start with the classes of models learned by the learner `mixture`; their users keep their seats."""
        if models.n_features != self.n_features or self.n_users:
            raise InputError(
                f"models of {models.n_features} features for a mixture of {self.n_features} with {self.n_users} users; "
                "give models of the same features, before the first user"
            )
        self.samples = [read_models(models, len(self.rows), self.concentration)]

    def _begin(self) -> None:
        """Start the samples once there is a reward other than 0: all users so far in one class."""
        seated = np.flatnonzero(~np.isnan(self.left))
        hyper = choose_hyperparameters(self.rows[seated].sum(axis=0), self.n_features, self.concentration)
        if hyper is not None:
            sample = Sample.empty(len(self.rows), hyper)
            sample.label[seated] = 0
            sample.rebuild(self.rows, self.weights(self.memory), self.weights(self.share_memory))
            self.samples = [sample]

    def _draw(self, sample: Sample, users: slice, order: Index, weights: Floats, mass: str) -> None:
        """Draw the seats of `order`, positions among `users`; `mass` is "size" or "recent", the weight of classes."""
        uniforms, done = self.rng.random(len(order)), 0
        while True:
            done += draw_seats(
                self.rows[users],
                weights,
                sample.label[users],
                order[done:],
                uniforms[done:],
                sample.sums,
                getattr(sample, mass),
                weights,
                sample.counts,
                sample.hyper.prior,
                sample.hyper.concentration,
            )
            if done == len(order):
                return
            sample.grow()


def _lengthen(array: NDArray[Any], n: int, fill: float) -> NDArray[Any]:
    new = np.full((n, *array.shape[1:]), fill, array.dtype)
    new[: len(array)] = array
    return new
