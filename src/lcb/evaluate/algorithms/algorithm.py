"""What an algorithm is to an experiment: a name, how it is built for a task, and the grid its settings are tuned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

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
    history: UserStats | None = field(default=None, repr=False)  # of past users, to be trained on before the first
    truth: LatentModels | None = field(default=None, repr=False)  # the true classes, for those that are given them
    fixed_arms: bool = False  # every step offers the same arms, without features: the rows of the identity


@dataclass(frozen=True)
class Algorithm:
    """`build(task, rng, **settings)` makes a new recommender; `grid` names the settings and the values tried for each.

    The values used in experiments are the tuned ones; `grid`'s first values are the defaults before any tuning.
    """

    name: str
    line: str
    reference: str
    cost: str  # of one decision
    build: Callable[..., Recommender] = field(repr=False)
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    fixed_arms: bool = False  # it needs arms without features

    @property
    def defaults(self) -> dict[str, Value]:
        return {name: values[0] for name, values in self.grid.items()}

    def made_for(self, task: Task, rng: np.random.Generator, settings: Settings) -> Recommender:
        if self.fixed_arms and not task.fixed_arms:
            raise InputError(f"{self.name} needs arms without features, the same at every step; run it in `FixedArms`")
        return self.build(task, rng, **{**self.defaults, **settings})
