"""`Algorithm`: a name, a builder for a `Task`, and the grid on which its settings are tuned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.models import LatentModels
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

NO_FEATURES = "arms without features"
Value = float | int | str
Settings = Mapping[str, Value]


@dataclass(frozen=True)
class Task:
    """What an algorithm knows before the first user."""

    n_features: int
    n_arms: int
    n_steps: int  # per user
    n_users: int
    n_classes: int  # to learn
    reward_range: tuple[float, float]
    n_warmup_users: int = 50
    retrain_every: int = 50
    n_uniform_steps: int = 0  # uniform first steps of every user; if above 0, classes are learned from these alone
    two_valued: bool = False  # rewards take two values, as clicks do
    history: EventLog | None = field(default=None, repr=False)  # past users to train on
    read_rows: Callable[[Index], EventLog] | None = field(default=None, repr=False)  # of past users at these positions
    able: NDArray[np.bool_] | None = field(default=None, repr=False)  # past users like those to be served
    fixes_classes: bool = False  # lcb-auto has to use n_classes too, instead of choosing a number
    truth: LatentModels | None = field(default=None, repr=False)  # the true classes, in a generated world
    contexts: Sequence[Floats] | None = field(default=None, repr=False)  # all possible contexts, if they can be listed
    fixed_arms: bool = False  # every step offers the same arms, without features: the rows of the identity

    @property
    def past(self) -> UserStats | None:
        """The statistics of past users."""
        return None if self.history is None else self.history.stats


def _nothing_to_note(task: Task, **settings: Value) -> str | None:
    return None


@dataclass(frozen=True)
class Algorithm:
    """`build(task, rng, **settings)` builds a recommender; `grid` has the values that tuning tries for each setting.

    The first values of `grid` are the defaults; experiments use the tuned ones.  `note(task, **settings)` returns a
    caveat about the results, or None.
    """

    name: str
    line: str
    reference: str
    build: Callable[..., Recommender] = field(repr=False)
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    note: Callable[..., str | None] = field(default=_nothing_to_note, repr=False)
    cost: str = "N K d"  # of one decision, with N classes
    needs: str = ""  # a requirement that not every task meets; `build` raises InputError if it does not

    @property
    def defaults(self) -> dict[str, Value]:
        return {name: values[0] for name, values in self.grid.items()}

    @property
    def uses_classes(self) -> bool:
        return "N" in self.cost.split()

    def build_for(self, task: Task, rng: np.random.Generator, settings: Settings) -> Recommender:
        if self.needs == NO_FEATURES and not task.fixed_arms:
            raise InputError(f"{self.name} needs arms without features, the same at every step; add --fixed-arms")
        return self.build(task, rng, **{**self.defaults, **settings})

    def note_for(self, task: Task, settings: Settings) -> str | None:
        return self.note(task, **{**self.defaults, **settings})
