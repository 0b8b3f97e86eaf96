"""The sizes that the bounds depend on, with the paper's letters.

J, U   users of phase 1 and of phase 2       U~ = J + U       K   arms        d   features
S, T   interactions of each phase, in TOTAL  T~ = S + T       N   classes     C   contexts
L      the longest user's interactions                        gap = min ||beta_h - beta_h'||
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np

from lcb.errors import InputError
from lcb.models import LatentModels

_LETTERS = {
    "n_warmup_users": "J",
    "n_warmup_steps": "S",
    "n_users": "U",
    "n_steps": "T",
    "longest": "L",
    "n_arms": "K",
    "n_classes": "N",
    "n_features": "d",
    "n_contexts": "C",
    "gap": "gap",
}
_SMALLEST_GAP, _LARGEST = 1e-9, 1e30


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem.  Steps are totals: phase 2 of U users of T_u steps each has T = U T_u.

    >>> sizes = Sizes.of_equal_users(n_users=950, steps_per_user=20, n_arms=20, n_classes=5, n_features=10, gap=0.8)
    >>> sizes.n_steps, sizes.n_warmup_steps, sizes.all_users, sizes.all_steps, sizes.longest
    (19000, 1000, 1000, 20000, 20)
    """

    n_users: int  # U, of phase 2
    n_steps: int  # T, of phase 2
    n_warmup_users: int  # J
    n_warmup_steps: int  # S
    longest: int  # L
    n_arms: int  # K
    n_classes: int  # N
    n_features: int  # d
    gap: float
    n_contexts: float = math.inf  # C

    def __post_init__(self) -> None:
        for name, letter in _LETTERS.items():
            value = getattr(self, name)
            least = 0 if letter in "JS" else 1
            if name not in ("gap", "n_contexts") and value > _LARGEST and not math.isinf(value):
                raise InputError(f"{name} ({letter}) is above {_LARGEST:g}; give a smaller size")
            if name != "gap" and not value >= least:
                raise InputError(f"{name}={value} ({letter}); it must be at least {least}")
            if math.isinf(value) and name not in ("gap", "n_contexts"):
                raise InputError(f"{name}={value} ({letter}); only the gap and the number of contexts can be infinite")
        if not self.gap >= _SMALLEST_GAP:
            raise InputError(
                f"gap={self.gap}, the smallest distance between two classes; it must be at least {_SMALLEST_GAP:g}"
            )
        for users, steps in (("n_users", "n_steps"), ("n_warmup_users", "n_warmup_steps")):
            most = getattr(self, users) * self.longest
            if getattr(self, steps) > most:
                came = f"{steps}={getattr(self, steps)} of {users}={getattr(self, users)}"
                raise InputError(f"{came} with at most longest={self.longest} each, which is {most}; give fewer steps")

    @classmethod
    def of_equal_users(
        cls,
        *,
        n_users: int,
        steps_per_user: int,
        n_arms: int,
        n_classes: int,
        n_features: int,
        gap: float,
        n_warmup_users: int = 50,
        n_contexts: float = math.inf,
    ) -> Sizes:
        """Build sizes in which every user of both phases has T_u = L = `steps_per_user` interactions."""
        return cls(
            n_users=n_users,
            n_steps=n_users * steps_per_user,
            n_warmup_users=n_warmup_users,
            n_warmup_steps=n_warmup_users * steps_per_user,
            longest=steps_per_user,
            n_arms=n_arms,
            n_classes=n_classes,
            n_features=n_features,
            gap=gap,
            n_contexts=n_contexts,
        )

    @property
    def all_users(self) -> int:
        """U~"""
        return self.n_warmup_users + self.n_users

    @property
    def all_steps(self) -> int:
        """T~"""
        return self.n_warmup_steps + self.n_steps

    def to_json(self) -> dict[str, float | None]:
        """Return the sizes by name, with None for infinite ones."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: None if math.isinf(value) else value for name, value in values.items()}


def smallest_gap(models: LatentModels) -> float:
    """Return the smallest Euclidean distance between the weights of two classes; infinite for a single class.

    >>> round(smallest_gap(LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[1.0, 1.0])), 3)
    1.414
    """
    return min((float(np.linalg.norm(a - b)) for a, b in combinations(models.beta, 2)), default=math.inf)
