"""What comes and goes over HTTP: the types that validate are the types the OpenAPI page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

MOST_ARMS = 10_000
MOST_FEATURES = 1_000
MOST_SLOTS = 100
MOST_ITEMS = 10_000  # of the catalogue, which is the arms of a request without any
MOST_TEXT = 256  # characters of an id
LARGEST = 1e9  # of a feature or a reward, in size

Id = Annotated[
    str, Meta(min_length=1, max_length=MOST_TEXT, description="Any printable text of at most 256 characters.")
]
# `$(?!\n)`: in Python `$` alone would let a last line feed pass
_DECISION_ID = r"^[A-Za-z0-9_.:-]{1,64}$(?!\n)"
_REWARD_ID = r"^[A-Za-z0-9_.:-]{1,64}(/[0-9]{1,3})?$(?!\n)"
FORMS = {  # for whoever sent something else
    _DECISION_ID: "1 to 64 letters, digits and _ . : -",
    _REWARD_ID: "the decision_id of an answer, or the reward_id of a slot",
}
DecisionId = Annotated[
    str,
    Meta(
        pattern=_DECISION_ID,
        description="Letters, digits and _ . : - ; at most 64. The idempotency key, and the seed of the draw.",
    ),
]
RewardId = Annotated[
    str,
    Meta(
        pattern=_REWARD_ID,
        description="A decision_id, or the reward_id of a slot.",
    ),
]
Vector = Annotated[list[float], Meta(min_length=1, max_length=MOST_FEATURES)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Probability = Annotated[float, Meta(gt=0, le=1)]


class Arm(Struct, forbid_unknown_fields=True, gc=False):
    """Something that may be offered: its features, or the id alone for an item of the catalogue."""

    id: Id
    x: Vector | None = None


class DecisionRequest(Struct, forbid_unknown_fields=True):
    """Who is there and what may be offered; without `arms`, the whole catalogue."""

    user: Id
    arms: Annotated[list[Arm], Meta(min_length=1, max_length=MOST_ARMS)] | None = None
    x: Annotated[Vector, Meta(description="The user's own features, crossed with the arms'.")] | None = None
    k: Annotated[int, Meta(ge=1, le=MOST_SLOTS, description="How many arms: a list of slots.")] | None = None
    decision_id: DecisionId | None = None
    chosen: Annotated[Id, Meta(description="Shadow mode: the arm the caller took; ours is only logged.")] | None = None
    chosen_propensity: Probability | None = None


class Slot(Struct, gc=False):
    """One place of a list; the propensity is that of the arm given the slots above."""

    arm: str
    propensity: float
    reward_id: str


class DecisionAnswer(Struct, omit_defaults=True, gc=False):
    """The arm to show. `distribution` has the probability of every arm, in the order of the request."""

    decision_id: str
    arm: str
    propensity: float | None
    distribution: list[float]
    model: int
    policy: str
    recommender: str
    slots: list[Slot] | None = None
    would: str | None = None


class RewardRequest(Struct, forbid_unknown_fields=True, gc=False):
    """What came of a decision; any time later, in any order, as often as need be."""

    decision_id: RewardId
    reward: Number
    reward_id: (
        Annotated[DecisionId, Meta(description="With `rewards = sum`: tells one contribution from another.")] | None
    ) = None


class RewardAnswer(Struct, gc=False):
    """`reward` is what now counts for the decision."""

    decision_id: str
    reward: float


class Item(Struct, forbid_unknown_fields=True):
    """One item of the catalogue: features, or categories that the service's map turns into features."""

    id: Id
    x: Vector | None = None
    categories: Annotated[list[Id], Meta(min_length=1, max_length=MOST_FEATURES)] | None = None
    title: Annotated[str, Meta(max_length=1000)] | None = None
    summary: Annotated[str, Meta(max_length=10_000)] | None = None


class ItemsRequest(Struct, forbid_unknown_fields=True):
    """Items to add or change; with `replace`, all others go."""

    items: Annotated[list[Item], Meta(max_length=MOST_ITEMS)]
    replace: bool = False
    remove: Annotated[list[Id], Meta(max_length=MOST_ITEMS)] = []


class ItemsAnswer(Struct):
    n_items: int
    n_features: int | None


class ItemsList(Struct):
    items: list[Item]
    n_items: int


class UserAnswer(Struct):
    """What is known of one user."""

    user: str
    recommender: str
    model: int
    policy: str
    n_decisions: int
    n_rewards: int
    reward_sum: float
    posterior: list[float] | None
    seq: int


class EraseAnswer(Struct):
    erased: int


class ModelAnswer(Struct):
    """One model version and where it comes from."""

    version: int
    active: bool
    status: Literal["active", "kept", "aside", "damaged"]
    n_classes: int
    n_features: int
    n_users: int
    created: str
    score: float | None
    baseline: float | None
    reason: str
    provenance: dict[str, Any]


class ModelsAnswer(Struct):
    active: int
    versions: list[ModelAnswer]
    retraining: RetrainingAnswer


class RetrainingAnswer(Struct):
    """How far learning in the background is; `error` is of the last that failed, `note` of the last that could not be.

    `next_at` is the number of users at which the next begins by itself, null where none does.
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


class ActivateRequest(Struct, forbid_unknown_fields=True):
    """Why another version is to be served; the log keeps it."""

    reason: Annotated[str, Meta(max_length=1000)] = "asked for"


class ActivateAnswer(Struct):
    active: int


class Difference(Struct):
    """Mean reward per decision of one recommender's users less that of another's, with a 95 % interval (Welch)."""

    of: str
    to: str
    mean: float
    low: float
    high: float


class TrialRecommender(Struct):
    """`mean` and `deviation` of the users' rewards per decision, as in the paper's user study."""

    name: str
    bandit: str
    share: float
    n_users: int
    n_decisions: int
    n_rewards: int
    reward_sum: float
    mean: float | None
    deviation: float | None


class TrialAnswer(Struct):
    recommenders: list[TrialRecommender]
    differences: list[Difference]


class Health(Struct):
    status: str
    detail: str = ""
