"""Past users as the learners see them, wherever they are: some of them to look at, and sums over all of them.

A learner needs two things of many users: `take`, the statistics of a few of them (for the prior, the starts and the
number of classes), and `sums`, one step over all of them.  A step is a `Work`: what it computes of a span of users adds
up.  `Local` users are in this process and its threads; those of `lcb.cluster` are on other machines.

Spans are fixed by the data and added in their order, so the result does not depend on the number of threads.  Users
that were read from a table are taken by the order of the hashes of their names, on one machine and on a cluster alike,
so that the same random numbers draw the same users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats, Index, add_up
from lcb.event_log import EventLog
from lcb.models.prior import SAMPLE, Prior
from lcb.stats import UserStats

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
Map = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
MOST_STARTED = 20_000  # users on which starts are tried
_TASKS = 64  # in which threads take many parts


class Work(Protocol[S_co]):
    """What a step computes of every user, added up.  It is plain data, so that it can be sent to other machines."""

    @property
    def span(self) -> int | None:
        """Users at a time; None: all of a part."""

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], S_co]:
        """Return a function of some users of `log`, and of the position of the first among all users."""


@runtime_checkable
class Users(Protocol):
    """Many users; a class of this kind says where they are."""

    @property
    def n_users(self) -> int: ...
    @property
    def n_events(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def two_valued(self) -> bool: ...
    @property
    def constant(self) -> float | None: ...
    @property
    def arms(self) -> Floats | None: ...  # (A, d) if clicks are counted
    @property
    def levels(self) -> tuple[float, float] | None: ...  # rewards of a pass and of a click, if they are counted

    def take(self, index: ArrayLike) -> EventLog:
        """Return the users at these positions, here."""

    def sums(self, work: Work[S]) -> S:
        """Return the sum of what `work` computes of every user."""


class Local:
    """Users whose statistics are in this process."""

    def __init__(self, log: EventLog, map_spans: Map) -> None:
        self.log, self.map = log, map_spans
        self.n_users, self.n_events, self.n_features = log.n_users, log.n_events, log.n_features
        self.features, self.two_valued, self.constant = log.features, log.two_valued, log.constant
        self.arms, self.levels = log.arms, log.levels

    def take(self, index: ArrayLike) -> EventLog:
        """Return the users at these positions of the log's order."""
        order = self.log.order
        return self.log.take(index if order is None else order[np.asarray(index)])

    def sums(self, work: Work[S]) -> S:
        return sum_parts(work, self.log, [slice(0, self.n_users)], 0, self.map)[0]


def sum_parts(work: Work[S], log: EventLog, parts: Sequence[slice], first: int, map_spans: Map) -> list[S]:
    """Return the sum over each part, none of them empty; `first` is the position of the first user among all users."""
    run = work.prepare(log, map_spans)
    spans = [split(part, work.span) for part in parts]
    if len(parts) == 1:
        return [add_up(map_spans(lambda span: run(span, first + span.start), spans[0]))]
    size = -(-len(parts) // _TASKS)  # parts that a thread takes at a time: handing them out takes time, too
    groups = [spans[i : i + size] for i in range(0, len(spans), size)]
    found = map_spans(lambda group: [add_up(run(one, first + one.start) for one in part) for part in group], groups)
    return [part for group in found for part in group]


def split(users: slice, span: int | None) -> list[slice]:
    """Return the spans of a range of users.

    >>> split(slice(10, 15), 2)
    [slice(10, 12, None), slice(12, 14, None), slice(14, 15, None)]
    """
    if span is None:
        return [users]
    return [slice(i, min(i + span, users.stop)) for i in range(users.start, users.stop, span)]


def find_users(data: UserStats | EventLog | Users, map_spans: Map) -> Users:
    """Return users as they are; wrap a log or statistics of this process."""
    if isinstance(data, UserStats):
        return Local(EventLog(data), map_spans)
    return Local(data, map_spans) if isinstance(data, EventLog) else data


def map_here(work: Callable[[Any], Any], spans: Sequence[Any]) -> list[Any]:
    """Do the work of spans one after the other, in this thread."""
    return [work(span) for span in spans]


def take_most(users: Users, most: int, choose: Callable[[], Index]) -> EventLog:
    """Return all users if there are at most `most`, else those that `choose` gives."""
    if users.n_users > most:
        return users.take(choose())
    if isinstance(users, Local) and users.log.order is None:
        return users.log
    return users.take(np.arange(users.n_users))


def sample_users(users: Users, rng: np.random.Generator, most: int = MOST_STARTED) -> EventLog:
    """Return all users, or a random sample that is enough to compare starts."""
    return take_most(users, most, lambda: np.sort(rng.choice(users.n_users, most, replace=False)))


def scale_prior(users: Users) -> Prior:
    """Return a weak prior on the scale of the data, from at most 5,000 users."""
    few = take_most(users, SAMPLE, lambda: np.linspace(0, users.n_users - 1, SAMPLE).astype(np.intp))
    return Prior.scaled(few.stats)


@dataclass(frozen=True)
class CountNotFinite:
    """Counts the statistics that are no finite numbers."""

    span: int | None = 1 << 14

    def prepare(self, log: EventLog, map_spans: Map) -> Callable[[slice, int], int]:
        packed = log.stats.packed
        return lambda users, _: int(packed[:, users].size - np.isfinite(packed[:, users]).sum())
