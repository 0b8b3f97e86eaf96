"""The mixtures of a log: classes of users who have left, changed by departures, returns and the results of refits.

A refit runs in another process from the state at its `refit` event.  Departures and returns after that event are kept
until its result comes (`mixture`), and are then applied to the result.  All of it is a fold of the log: the random
numbers of a departure are computed from the log's seed and its seq.  Recommenders with equal settings share a mixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from lcb.arrays import Floats
from lcb.bandits.over_classes.mixture import MixtureBandit
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.traits import DescribedBandit
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.events import floats
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.users import User

if TYPE_CHECKING:  # numba, which they import, takes longer to load than a small log to verify
    from lcb.learners.mixture.served import ServedMixture, ServedSettings

MOST_COUNTED = 100.0  # rewards of one user in a class
_MOST_POINTS = 400  # of the history of a mixture; of more, every second one is dropped


class _Change(Struct, array_like=True):
    """A departure (`seated`) or a return while a refit runs; `name` is the seq of the departure."""

    seated: bool
    name: int
    row: bytes
    at: float


class _Refit(Struct, array_like=True):
    """A refit that has begun with the event `seq`, and what happened since."""

    seq: int
    changes: list[_Change]


class Point(Struct, array_like=True):
    """The shares of classes, by number, after a refit."""

    at: float
    n_left: int
    shares: dict[int, float]


class _Packed(Struct, array_like=True):
    mixtures: dict[str, bytes]
    refits: dict[str, _Refit]
    history: dict[str, list[Point]]
    present: list[tuple[int, float]]


class View(NamedTuple):
    """One sample of a mixture, to be shown: the bandit over its classes, and their numbers; the new class is last."""

    bandit: PersonalClasses
    numbers: tuple[int, ...]


def bound_weight(row: Floats) -> Floats:
    """Return the statistics of a user as those of at most 100 rewards, so that nobody alone sets the noise of all.

    >>> row = np.array([400.0, 100.0, 50.0, 400.0])  # X'X, X'r, r'r and the count
    >>> bound_weight(row).tolist(), bound_weight(row / 8).tolist()
    ([100.0, 25.0, 12.5, 100.0], [50.0, 12.5, 6.25, 50.0])
    """
    return row * (MOST_COUNTED / row[-1]) if row[-1] > MOST_COUNTED else row


class Mixtures:
    """The mixtures by name (`ServiceState.mixture_of`)."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self.mixtures: dict[str, ServedMixture] = {}
        self.present: dict[int, float] = {}  # users who have not left: seq of the last event -> its time
        self.history: dict[str, list[Point]] = {}
        self.keeps_starts = False  # whether to keep the state at the begin of a refit, for who runs refits
        self.starts: dict[str, tuple[int, bytes]] = {}  # seq of the event, and the state
        self._refits: dict[str, _Refit] = {}
        self._bandits: dict[str, PersonalClasses] = {}
        self._views: dict[str, View] = {}

    # Decisions

    def bandit(self, user: User, alone: MixtureBandit) -> DescribedBandit:
        """Return the bandit for a user's next decision; a user who has left is taken out of their class first."""
        name = self._state.mixture_of(user.recommender)
        assert name is not None
        mixture = self.mixtures.get(name)
        if mixture is None or not mixture.has_units:
            return alone
        if user.left in mixture.seats:
            assert user.state is not None
            return _build(mixture.without(user.left, self._weigh(user.state)), alone)
        found = self._bandits.get(name)
        if found is None or found.bonus != alone.bonus:
            found = self._bandits[name] = _build(mixture, alone)
        return found

    def view(self, name: str) -> View | None:
        """Return the last sample of a mixture to be shown; None while there are no classes."""
        mixture = self.mixtures.get(name)
        if mixture is None or not mixture.has_units:
            return None
        if name not in self._views:
            from lcb.learners.mixture.sample import average

            models = average(mixture.samples[-1:])
            numbers = tuple(number for number in mixture.numbers if number >= 0)
            self._views[name] = View(PersonalClasses(models), numbers)
        return self._views[name]

    # Events

    def come(self, user: User, seq: int, at: float) -> None:
        """Note a decision or reward of a user, before it is applied to them; who had left is taken out of the class."""
        name = self._state.mixture_of(user.recommender)
        if name is None:
            return
        if user.left:
            assert user.state is not None
            self.unseat(user.recommender, user.left, user.state)
        self.present.pop(user.seq, None)
        self.present[seq] = at

    def leave(self, user: User, row: int, body: events.LeaveBody, teaches: bool) -> None:
        """Seat a user at their departure, before it is applied to them; it is void if they came back meanwhile."""
        at = self.present.pop(user.seq, None)
        if body.last != user.seq:
            if at is not None:
                self.present[row] = at
        elif teaches and user.state is not None:
            self.seat(user.recommender, row, user.state, body.at)

    def seat(self, recommender: str, seq: int, row: Floats, at: float) -> None:
        """Seat statistics by the departure `seq`; a user without rewards changes nothing."""
        name = self._state.mixture_of(recommender)
        if name is None or row[-1] == 0:
            return
        mixture = self.mixtures.get(name)
        if mixture is None:
            assert self._state.n_features is not None
            from lcb.learners.mixture.served import ServedMixture

            mixture = self.mixtures[name] = ServedMixture(
                self._state.n_features, read_settings(self._state.recommenders[name])
            )
        change = _Change(True, seq, self._weigh(row).tobytes(), at)
        self._apply(mixture, change)
        self._note_change(name, change)

    def unseat(self, recommender: str, left: int, row: Floats) -> None:
        name = self._state.mixture_of(recommender)
        if name in self.mixtures:
            change = _Change(False, left, self._weigh(row).tobytes(), 0.0)
            self._apply(self.mixtures[name], change)
            self._note_change(name, change)

    def _weigh(self, row: Floats) -> Floats:
        return bound_weight(row) if self._state.counts_users else row

    def begin_refit(self, name: str, seq: int) -> None:
        self._refits[name] = _Refit(seq, [])
        if self.keeps_starts and name in self.mixtures:
            self.starts[name] = seq, _pack(self.mixtures[name])

    def end_refit(self, body: events.MixtureBody) -> None:
        """Take over the result of a refit, unless another one has begun meanwhile."""
        name, changes = body.recommender, []
        if body.refit:
            refit = self._refits.get(name)
            if refit is None or refit.seq != body.refit:
                return
            del self._refits[name]
            changes = refit.changes
        mixture = self.mixtures[name] = _unpack(body.state)
        for change in changes:
            self._apply(mixture, change)
        self._forget_built(name)
        points = self.history.setdefault(name, [])
        points.append(Point(body.at, mixture.n_left, mixture.shares()))
        if len(points) > _MOST_POINTS:
            del points[1:-1:2]

    def forget_users(self, seqs: set[int]) -> None:
        """Forget that users whose last event is one of these are present: they were erased."""
        for seq in seqs & self.present.keys():
            del self.present[seq]

    def _note_change(self, name: str, change: _Change) -> None:
        self._forget_built(name)
        if name in self._refits:
            self._refits[name].changes.append(change)

    def _forget_built(self, name: str) -> None:
        self._bandits.pop(name, None)
        self._views.pop(name, None)

    def _apply(self, mixture: ServedMixture, change: _Change) -> None:
        row = floats(change.row)
        if change.seated:
            uniforms = _draw_numbers(self._state.seed, change.name, len(mixture.samples) or 1)
            mixture.seat(change.name, row, change.at, uniforms)
        else:
            mixture.unseat(change.name, row)

    # Snapshots

    def pack(self) -> bytes:
        mixtures = {name: _pack(one) for name, one in self.mixtures.items()}
        return events.encode(_Packed(mixtures, self._refits, self.history, list(self.present.items())))

    def restore(self, data: bytes) -> None:
        known = msgspec.msgpack.decode(data, type=_Packed)
        self.mixtures = {name: _unpack(one) for name, one in known.mixtures.items()}
        self._refits, self.history, self.present = known.refits, known.history, dict(known.present)


def _pack(mixture: ServedMixture) -> bytes:
    from lcb.serve.state.packed_mixture import pack_mixture

    return pack_mixture(mixture)


def _unpack(data: bytes) -> ServedMixture:
    from lcb.serve.state.packed_mixture import unpack_mixture

    return unpack_mixture(data)


def read_settings(spec: RecommenderSpec) -> ServedSettings:
    """Return how the mixture of a recommender seats users."""
    given: dict[str, Any] = {
        name: np.inf if value is None and name in ("memory", "share_memory") else value
        for name, value in spec.settings.items()
        if name != "bonus"
    }
    from lcb.learners.mixture.served import ServedSettings

    return ServedSettings(**given)


def _build(mixture: ServedMixture, alone: MixtureBandit) -> PersonalClasses:
    models = mixture.models()
    assert models is not None
    return alone.over(models)


def _draw_numbers(seed: bytes, seq: int, n: int) -> Floats:
    """Return `n` uniform numbers in [0, 1) of an event; NumPy promises that these raw numbers never change."""
    raw = np.random.PCG64([*seed, seq]).random_raw(n)
    return (raw >> np.uint64(11)) * 2.0**-53
