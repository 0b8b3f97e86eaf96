"""The mixture of a running service: it is changed by one departure or return at a time, and by refits made elsewhere.

A departure is known by a number (`name`), and seats a user's statistics in one class of each sample.  The same
departures, returns and refits in the same order, with the same random numbers, give the same mixture bit for bit.  The
mixture keeps no statistics of users, only their seats; whoever takes a user out, or refits, brings the statistics.

Time is counted in users who have left, or in days (`forget_per`): an age of `memory` is a weight of 1/e in the
statistics of a class, one of `share_memory` in its share.  Days are those of the departures, not of a clock.

Classes of the last sample have numbers that stay: a class of a refit has the number of the class it shares most users
with, and `shares` are what a picture of classes over time is drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.learners.mixture._seats_numba import draw_seats
from lcb.learners.mixture.first_users import choose_hyperparameters
from lcb.learners.mixture.sample import Hyperparameters, Sample, average, read_models
from lcb.learners.mixture.seats import Seats
from lcb.models import LatentModels

_EVERY_USER = 20  # users after each of whom a refit is due
_MORE = 0.25  # share of the weight of all users that leaves between later refits
_DAY = 86_400.0
_ONE, _FIRST = np.ones(1), np.zeros(1, np.intp)


@dataclass(frozen=True)
class ServedSettings:
    """How users are seated and forgotten."""

    concentration: float | None = None  # None: it is learned
    n_samples: int = 8
    n_sweeps: int = 16
    memory: float = np.inf
    share_memory: float = np.inf
    forget_per: Literal["user", "day"] = "user"


@dataclass
class Seat:
    """Where a user is: the time of leaving, and the class in each sample."""

    left: float
    label: NDArray[np.int16]


@dataclass
class ServedMixture:
    """What the users who have left have taught; arrays are changed in place."""

    n_features: int
    settings: ServedSettings
    samples: list[Sample] = field(default_factory=list)  # their labels are not used: `seats` has them
    has_units: bool = False  # a reward other than 0 has come, so that noise and variance are known
    n_left: int = 0
    clock: float = 0.0
    began: float = 0.0  # the clock when the classes of models learned before were taken over
    weight: float = 0.0  # of all seated users
    n_since_refit: int = 0
    seats: dict[int, Seat] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the classes of the last sample, by slot; -1: none
    n_classes_ever: int = 0

    @classmethod
    def from_models(cls, models: LatentModels, settings: ServedSettings, at: float) -> ServedMixture:
        """Go on from models of the learner `mixture`; `at` is the time in seconds since 1970."""
        mixture = cls(models.n_features, settings, [read_models(models, 0, settings.concentration)], has_units=True)
        if settings.forget_per == "day":
            mixture.clock = mixture.began = at / _DAY
        mixture._number_slots()
        return mixture

    @property
    def is_refit_due(self) -> bool:
        """Whether enough users have left since the last refit."""
        n = self.n_since_refit
        return self.has_units and n > 0 and (self.n_left <= _EVERY_USER or n >= _MORE * self.weight)

    def models(self) -> LatentModels | None:
        """Return what the mixture predicts; None while nothing is known."""
        return average(self.samples) if self.has_units else None

    def shares(self) -> dict[int, float]:
        """Return the share of each class of the last sample by its number; the new class has the rest to 1."""
        if not self.has_units:
            return {}
        recent = self.samples[-1].recent
        total = recent.sum() + self.samples[-1].hyper.concentration
        return {number: float(recent[h] / total) for h, number in enumerate(self.numbers) if number >= 0}

    def seat(self, name: int, row: Floats, at: float, uniforms: Floats) -> None:
        """Seat a user with statistics `row`, who left at this time (seconds); `uniforms` has a number per sample."""
        self.n_left += 1
        self.n_since_refit += 1
        keep, keep_share = self._pass_time(self.n_left if self.settings.forget_per == "user" else at / _DAY)
        self.weight = self.weight * keep + 1
        if not self.samples:
            nothing = Hyperparameters(1.0, 1.0, 1.0, np.zeros(self.n_features))
            self.samples = [Sample.empty(0, nothing)]
        label = np.zeros((len(self.samples), 1), np.int32)
        for i, sample in enumerate(self.samples):
            sample.sums *= keep
            sample.size *= keep
            sample.recent *= keep_share
            if self.has_units:
                self._draw(sample, row, label[i], uniforms[i : i + 1])
            else:
                sample.sums[0] += row
                sample.recent[0] += 1.0
                sample.counts[0] += 1
            sample.size[label[i]] += 1.0
        self.seats[name] = Seat(self.clock, label[:, 0].astype(np.int16))
        if not self.has_units and (
            hyper := choose_hyperparameters(self.samples[0].sums[0], self.n_features, self.settings.concentration)
        ):
            self.samples[0].hyper, self.has_units = hyper, True
        self._number_slots()

    def unseat(self, name: int, row: Floats) -> None:
        """Take out a user who comes back, with the statistics they were seated with."""
        seat = self.seats.pop(name, None)
        if seat is None:  # they left without a reward, or are forgotten
            return
        age = seat.left - self.clock
        weight, share = (float(np.exp(age / memory)) for memory in (self.settings.memory, self.settings.share_memory))
        self.weight = max(self.weight - weight, 0.0)
        for h, sample in zip(seat.label, self.samples, strict=True):
            sample.counts[h] -= 1
            if sample.counts[h] == 0:
                sample.sums[h], sample.size[h], sample.recent[h] = 0.0, 0.0, 0.0
            else:
                sample.sums[h] -= weight * row
                sample.size[h] = max(sample.size[h] - weight, 0.0)
                sample.recent[h] = max(sample.recent[h] - share, 0.0)
        self._number_slots()

    def without(self, name: int, row: Floats) -> ServedMixture:
        """Return a copy without a user who is about to come back."""
        if name not in self.seats:
            return self
        copy = replace(self, samples=[one.copy() for one in self.samples], numbers=[*self.numbers])
        copy.seats = {name: self.seats[name]}
        copy.unseat(name, row)
        return copy

    def refit(self, rows: Mapping[int, Floats], rng: np.random.Generator) -> None:
        """Draw all seats again and learn the hyperparameters; users not in `rows` are taken out."""
        of = self.settings
        names = [name for name in self.seats if name in rows]
        seats = Seats(
            self.n_features,
            rng=rng,
            n_samples=of.n_samples,
            n_sweeps=of.n_sweeps,
            concentration=of.concentration,
            memory=of.memory,
            share_memory=of.share_memory,
        )
        seats.n_users, seats.n_left, seats.began = len(names), self.clock, self.began
        seats.rows = np.array([rows[name] for name in names]).reshape(len(names), -1)
        seats.left = np.array([self.seats[name].left for name in names])
        before = np.array([self.seats[name].label[-1] for name in names], np.int32)
        last = self.samples[-1].copy()
        last.label = before.copy()
        seats.samples = [last]
        if not len(names) and last.known is None:
            return
        seats.refit()
        label = np.array([sample.label for sample in seats.samples], np.int16)  # (samples, users)
        numbers = self._match(before, label[-1], seats.weights(of.memory))
        self.seats = {
            name: Seat(self.seats[name].left, label[:, u]) for u, name in enumerate(names) if label[-1, u] >= 0
        }
        self.weight = float(np.sum([np.exp((seat.left - self.clock) / of.memory) for seat in self.seats.values()]))
        self.samples, self.numbers, self.n_since_refit = seats.samples, numbers, 0
        for sample in self.samples:
            sample.label = np.zeros(0, np.int32)
        self._number_slots()

    def _pass_time(self, now: float) -> tuple[float, float]:
        """Move the clock, never back; return what is kept of statistics and of shares."""
        age = max(now - self.clock, 0.0) if self.clock else 0.0
        self.clock = float(max(self.clock, now))
        return float(np.exp(-age / self.settings.memory)), float(np.exp(-age / self.settings.share_memory))

    def _draw(self, sample: Sample, row: Floats, label: NDArray[np.int32], uniform: Floats) -> None:
        label[0] = -1
        more = sample.sums, sample.recent, _ONE, sample.counts, sample.hyper.prior, sample.hyper.concentration
        rows = np.array(row, ndmin=2)  # one from a store cannot be written, for which Numba would compile once more
        if not draw_seats(rows, _ONE, label, _FIRST, uniform, *more):
            sample.grow()
            self._draw(sample, row, label, uniform)

    def _number_slots(self) -> None:
        """Give a number to each class of the last sample that has none, and take those of classes without users."""
        counts = self.samples[-1].counts
        self.numbers += [-1] * (len(counts) - len(self.numbers))
        del self.numbers[len(counts) :]
        for h, n in enumerate(counts):
            if n == 0:
                self.numbers[h] = -1
            elif self.numbers[h] < 0:
                self.numbers[h] = self.n_classes_ever
                self.n_classes_ever += 1

    def _match(self, before: NDArray[np.int32], after: NDArray[np.int16], weights: Floats) -> list[int]:
        """Return a number for each slot after a refit: that of the class with which it shares most, each used once."""
        n_after = int(
            max(after.max(initial=-1) + 1, 0 if self.samples[-1].known is None else len(self.samples[-1].known))
        )
        shared = np.zeros((len(self.numbers), n_after))
        kept = after >= 0
        np.add.at(shared, (before[kept], after[kept]), weights[kept])
        if (known := self.samples[-1].known) is not None:
            shared[range(len(known)), range(len(known))] += known[:, -1]
        numbers = [-1] * n_after
        while shared.size and shared.max() > 0:
            h, k = np.unravel_index(shared.argmax(), shared.shape)
            numbers[int(k)] = self.numbers[int(h)]
            shared[h], shared[:, k] = 0.0, 0.0
        return numbers
