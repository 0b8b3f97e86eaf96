"""An algorithm as experiments see it: a name, how to build it for a task, and the grid its settings are tuned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats
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
    """What an algorithm may know before the first user comes."""

    n_features: int
    n_arms: int
    n_steps: int  # per user
    n_users: int
    n_classes: int  # to learn
    reward_range: tuple[float, float]
    n_warmup_users: int = 50
    retrain_every: int = 50
    n_uniform_steps: int = 0  # of every user, for learners that want arms drawn alike; they then learn from these alone
    two_valued: bool = False  # rewards, as clicks are
    history: EventLog | None = field(default=None, repr=False)  # of past users, to be trained on before the first
    truth: LatentModels | None = field(default=None, repr=False)  # the true classes, for those that are given them
    contexts: Sequence[Floats] | None = field(default=None, repr=False)  # all there can be, where they can be listed
    fixed_arms: bool = False  # every step offers the same arms, without features: the rows of the identity

    @property
    def past(self) -> UserStats | None:
        """The statistics of past users."""
        return None if self.history is None else self.history.stats


def _nothing_to_note(task: Task, **settings: Value) -> str | None:
    return None


@dataclass(frozen=True)
class Algorithm:
    """`build(task, rng, **settings)` makes a new recommender; `grid` names the settings and the values tried for each.

    The values used in experiments are the tuned ones; `grid`'s first values are the defaults before any tuning.
    `note(task, **settings)` returns what must be known to read its numbers, or None.
    """

    name: str
    line: str
    reference: str
    build: Callable[..., Recommender] = field(repr=False)
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    note: Callable[..., str | None] = field(default=_nothing_to_note, repr=False)
    cost: str = "N K d"  # of one decision
    needs: str = ""  # what not every task has; without it `build` raises an InputError

    @property
    def defaults(self) -> dict[str, Value]:
        return {name: values[0] for name, values in self.grid.items()}

    def build_for(self, task: Task, rng: np.random.Generator, settings: Settings) -> Recommender:
        if self.needs == NO_FEATURES and not task.fixed_arms:
            raise InputError(f"{self.name} needs arms without features, the same at every step; add --fixed-arms")
        return self.build(task, rng, **{**self.defaults, **settings})

    def note_for(self, task: Task, settings: Settings) -> str | None:
        return self.note(task, **{**self.defaults, **settings})
