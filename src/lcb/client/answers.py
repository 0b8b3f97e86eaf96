"""What the service answers, as frozen dataclasses; a field that this version does not know is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Slot:
    """One place of a list; the propensity is that of the arm given the slots above."""

    arm: str
    propensity: float
    reward_id: str


@dataclass(frozen=True)
class DecisionAnswer:
    """The arm to show; `distribution` has the probability of every arm, in the order they were sent."""

    decision_id: str
    arm: str
    propensity: float | None
    distribution: tuple[float, ...]
    model: int
    policy: str
    recommender: str
    slots: tuple[Slot, ...] | None = None
    would: str | None = None


@dataclass(frozen=True)
class RewardAnswer:
    """`reward` is what now counts for the decision."""

    decision_id: str
    reward: float


@dataclass(frozen=True)
class Item:
    """One item of the catalogue: features, or categories that the service's map turns into features."""

    id: str
    x: tuple[float, ...] | None = None
    categories: tuple[str, ...] | None = None
    title: str | None = None
    summary: str | None = None


@dataclass(frozen=True)
class ItemsAnswer:
    n_items: int
    n_features: int | None


@dataclass(frozen=True)
class ItemsList:
    items: tuple[Item, ...]
    n_items: int


@dataclass(frozen=True)
class UserAnswer:
    """What is known of one user."""

    user: str
    recommender: str
    model: int
    policy: str
    n_decisions: int
    n_rewards: int
    reward_sum: float
    posterior: tuple[float, ...] | None
    seq: int


@dataclass(frozen=True)
class EraseAnswer:
    """How many events there were."""

    erased: int


@dataclass(frozen=True)
class ModelAnswer:
    """One model version and where it comes from."""

    version: int
    active: bool
    status: str
    n_classes: int
    n_features: int
    n_users: int
    created: str
    score: float | None
    baseline: float | None
    reason: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class RetrainingAnswer:
    """How far learning in the background is; `error` is of the last that failed, `note` of the last that could not be.

    `next_at` is the number of users at which the next begins by itself.
    """

    running: bool
    phase: str = ""
    done: int = 0
    total: int = 0
    started: str | None = None
    error: str | None = None
    n_failed: int = 0
    note: str | None = None
    n_started: int = 0
    next_at: int | None = None


@dataclass(frozen=True)
class ModelsAnswer:
    active: int
    versions: tuple[ModelAnswer, ...]
    retraining: RetrainingAnswer


@dataclass(frozen=True)
class ActivateAnswer:
    active: int


@dataclass(frozen=True)
class Difference:
    """Mean reward per decision of one recommender's users less that of another's, with a 95 % interval."""

    of: str
    to: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialRecommender:
    """`mean` and `deviation` of the users' rewards per decision."""

    name: str
    bandit: str
    share: float
    n_users: int
    n_decisions: int
    n_rewards: int
    reward_sum: float
    mean: float | None
    deviation: float | None


@dataclass(frozen=True)
class TrialAnswer:
    recommenders: tuple[TrialRecommender, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Health:
    """`status` is ok, or trouble with `detail` saying which."""

    status: str
    detail: str = ""


def made(kind: type[Answer], value: Any) -> Answer:
    """The answer of a kind from its JSON; raises TypeError where that is something else.

    >>> made(ItemsAnswer, {"n_items": 3, "n_features": 2, "of a later version": True})
    ItemsAnswer(n_items=3, n_features=2)
    """
    found: Answer = _made(kind, value)
    return found


def _made(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} where an object is wanted")
        assert isinstance(kind, type)
        return kind(**{name: _made(hint, value[name]) for name, hint in _hints(kind).items() if name in value})
    inner = get_args(kind)
    if type(None) in inner:
        return None if value is None else _made(inner[0], value)
    if get_origin(kind) is tuple:
        return tuple(_made(inner[0], one) for one in value)
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
