"""One mixture from the first click on, in a service: a user's statistics, and classes of the users who have left.

    p_a      = [a = argmax_b mu_b + bonus sd_b]           as for personal classes; tied arms share equally

The service keeps the classes: it seats users who have left, and serves the others by `PersonalClasses` over the
mixture of that moment (docs/algorithms/mixture.md).  Alone, while nobody has left, the bandit knows only the user's own
rewards; noise and variance of the weights are then a grid around them, all pairs equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context, check_reward
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.models.first_models import first_models
from lcb.stats import add_row, n_packed


@dataclass(frozen=True)
class MixtureBandit:
    """Settings only; the state is the user's statistics as `UserStats` packs them, (d (d + 1) / 2 + d + 2,).

    A user who left `memory` users ago (`forget_per` user) or days ago (day) has weight 1/e in the weights of their
    class, and one who left `share_memory` ago in its share; None: nothing is forgotten.

    >>> bandit, rng = MixtureBandit(2), np.random.default_rng(0)
    >>> state = bandit.update(bandit.start(), Decision(0, 1.0, np.array([1.0, 0.0])), reward=1.0)
    >>> bandit.choose(state, np.eye(2), rng).arm  # the first weight is about 1, the second unknown with mean 0
    0
    """

    traits: ClassVar[Traits] = Traits(
        "n_features",
        state="d (d + 1) / 2 + d + 2",
        cost="N (d³ + K d²)",
        keeps_statistics=True,
        seats_users=True,
    )

    n_features: int
    bonus: float = 0.5
    concentration: float | None = None
    n_samples: int = 8
    n_sweeps: int = 16
    memory: float | None = 2000.0
    share_memory: float | None = 200.0
    forget_per: Literal["user", "day"] = "user"

    def __post_init__(self) -> None:
        if not 0 <= self.bonus < np.inf:
            raise InputError(f"bonus={self.bonus}; it must be a finite number, at least 0")
        if (
            self.n_samples < 1
            or self.n_sweeps < self.n_samples
            or not (self.concentration is None or 0 < self.concentration < np.inf)
        ):
            raise InputError(
                f"n_samples={self.n_samples}, n_sweeps={self.n_sweeps}, concentration={self.concentration}; "
                "give 1 or more samples, at least as many sweeps, and a positive finite concentration or none"
            )
        if self.forget_per not in ("user", "day"):
            raise InputError(f"forget_per={self.forget_per!r}; it must be 'user' or 'day'")
        for name in ("memory", "share_memory"):
            value = getattr(self, name)
            if value is not None and not (1 if self.forget_per == "user" else 0) < value < np.inf:
                least = "users above 1" if self.forget_per == "user" else "days above 0"
                raise InputError(f"{name}={value}; give a number of {least}, or None to forget nothing")

    def start(self) -> Floats:
        return np.zeros(n_packed(self.n_features))

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        check_context(context, self.n_features)
        return self.over(first_models(state, self.n_features)).choose(state, context, rng)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        return add_row(state, decision.x, reward)

    def over(self, models: LatentModels) -> PersonalClasses:
        """Return the bandit over the classes of a mixture; it has the same states."""
        return PersonalClasses(models, self.bonus)
