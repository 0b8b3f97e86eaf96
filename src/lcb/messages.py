"""Message types of the HTTP API, shared by the service and its client.

The service validates requests with them and generates /openapi.json from them; the client decodes answers into them.
Requests refuse unknown fields.  Answers are frozen and ignore unknown fields, so an older client reads a newer service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

MOST_ARMS = 10_000
MOST_FEATURES = 1_000
MOST_SLOTS = 100
MOST_ITEMS = 10_000  # in the catalogue, whose items are the arms of a request that sends none
MOST_TEXT = 256  # characters of an id
MOST_IN_BATCH = 100  # decisions or rewards of one request
LARGEST = 1e9  # absolute value of a feature or a reward

Id = Annotated[
    str, Meta(min_length=1, max_length=MOST_TEXT, description="Any printable text of at most 256 characters.")
]
# `$(?!\n)`: in Python `$` alone also matches before a final line feed
_DECISION_ID = r"^[A-Za-z0-9_.:-]{1,64}$(?!\n)"
_REWARD_ID = r"^[A-Za-z0-9_.:-]{1,64}(/[0-9]{1,3})?$(?!\n)"
_SEEN = r"^(exclude|exclude-taken)$(?!\n)"
FORMS = {  # a pattern in words, for error messages
    _DECISION_ID: "1 to 64 letters, digits and _ . : -",
    _REWARD_ID: "the decision_id of an answer, or the reward_id of a slot",
    _SEEN: "exclude (what this user was shown) or exclude-taken (what this user took)",
}
DecisionId = Annotated[
    str,
    Meta(
        pattern=_DECISION_ID,
        description="At most 64 letters, digits and _ . : - . The idempotency key, and the seed of the draw.",
    ),
]
RewardId = Annotated[str, Meta(pattern=_REWARD_ID, description="A decision_id, or the reward_id of a slot.")]
Vector = Annotated[list[float], Meta(min_length=1, max_length=MOST_FEATURES)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
LEAST_PROBABILITY = 1e-9  # of an arm that a caller reports; a smaller one would outweigh all others in any estimate
# sums of floating-point numbers, such as propensities that this service has stated, may lie above 1
Probability = Annotated[float, Meta(ge=LEAST_PROBABILITY, le=1 + 1e-9)]
# not a Literal, so that a client can read a status that a later service adds
Status = Annotated[str, Meta(extra_json_schema={"enum": ["active", "kept", "aside", "canary", "withdrawn", "damaged"]})]


class Arm(Struct, forbid_unknown_fields=True, gc=False):
    """An arm: an id with its features, or the id alone for an item of the catalogue."""

    id: Id
    x: Vector | None = None


class DecisionRequest(Struct, forbid_unknown_fields=True):
    """The user and the arms to choose from; without `arms`, every item of the catalogue."""

    user: Id
    arms: Annotated[list[Arm], Meta(min_length=1, max_length=MOST_ARMS)] | None = None
    x: Annotated[Vector, Meta(description="Features of the user, crossed with those of the arms.")] | None = None
    k: Annotated[int, Meta(ge=1, le=MOST_SLOTS, description="Length of the list: one arm per slot.")] | None = None
    decision_id: DecisionId | None = None
    chosen: (
        Annotated[Id, Meta(description="Shadow mode: the arm that the caller chose; the service logs its own choice.")]
        | None
    ) = None
    chosen_propensity: Probability | None = None
    exclude: (
        Annotated[list[Id], Meta(max_length=MOST_ARMS, description="Ids of arms that must not be shown.")] | None
    ) = None
    seen: (
        Annotated[
            str,
            Meta(
                pattern=_SEEN,
                description="`exclude`: nothing that this user was shown before; `exclude-taken`: nothing that this "
                "user took, which is what has a reward above 0.",
                extra_json_schema={"enum": ["exclude", "exclude-taken"]},
            ),
        ]
        | None
    ) = None
    at_most: (
        Annotated[
            int,
            Meta(ge=1, le=MOST_SLOTS, description="Arms of one category in a list; categories are the catalogue's."),
        ]
        | None
    ) = None

    @property
    def has_rules(self) -> bool:
        """Whether some arms may be ruled out."""
        return self.exclude is not None or self.seen is not None or self.at_most is not None


class Slot(Struct, frozen=True, gc=False):
    """One place in a list of arms; `propensity` is the arm's probability given the slots above."""

    arm: str
    propensity: float
    reward_id: str


class DecisionAnswer(Struct, frozen=True, omit_defaults=True, gc=False):
    """The arm to show; `distribution` holds the probability of every arm, in the order of the request."""

    decision_id: str
    arm: str
    propensity: float | None
    distribution: tuple[float, ...]
    model: int
    policy: str
    recommender: str
    slots: tuple[Slot, ...] | None = None
    would: str | None = None


class RewardRequest(Struct, forbid_unknown_fields=True, gc=False):
    """The reward of a decision; it may come late, out of order, and more than once."""

    decision_id: RewardId
    reward: Number
    reward_id: Annotated[DecisionId, Meta(description="With `rewards = sum`: the id of this contribution.")] | None = (
        None
    )


class RewardAnswer(Struct, frozen=True, gc=False):
    """`reward` is the stored reward: with `sum` or `first`, not always the one that was sent."""

    decision_id: str
    reward: float


class DecisionsRequest(Struct, forbid_unknown_fields=True):
    """Decisions to make together; each is answered as if it had been sent alone at the same moment.

    `arms` are the arms of all decisions that send none.
    """

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_IN_BATCH)]
    arms: Annotated[list[Arm], Meta(min_length=1, max_length=MOST_ARMS)] | None = None


class RewardsRequest(Struct, forbid_unknown_fields=True):
    """Rewards to report together."""

    rewards: Annotated[list[RewardRequest], Meta(min_length=1, max_length=MOST_IN_BATCH)]


class Refusal(Struct, frozen=True, omit_defaults=True):
    """Why one element of a batch was refused, with the status that it would have got alone."""

    status: int
    detail: str
    field: str | None = None
    retry_after: int | None = None


class DecisionOutcome(Struct, frozen=True, omit_defaults=True):
    """The answer of one decision of a batch (`status` 200), or why it was refused."""

    status: int
    answer: DecisionAnswer | None = None
    detail: str | None = None
    field: str | None = None
    retry_after: int | None = None


class RewardOutcome(Struct, frozen=True, omit_defaults=True):
    """The answer of one reward of a batch (`status` 200), or why it was refused."""

    status: int
    answer: RewardAnswer | None = None
    detail: str | None = None
    field: str | None = None
    retry_after: int | None = None


class DecisionsAnswer(Struct, frozen=True):
    """The outcomes of a batch of decisions, in the order of the request."""

    outcomes: tuple[DecisionOutcome, ...]


class RewardsAnswer(Struct, frozen=True):
    """The outcomes of a batch of rewards, in the order of the request."""

    outcomes: tuple[RewardOutcome, ...]


class ItemRequest(Struct, forbid_unknown_fields=True):
    """One item of the catalogue: features, or categories that the service turns into features."""

    id: Id
    x: Vector | None = None
    categories: Annotated[list[Id], Meta(min_length=1, max_length=MOST_FEATURES)] | None = None
    title: Annotated[str, Meta(max_length=1000)] | None = None
    summary: Annotated[str, Meta(max_length=10_000)] | None = None


class ItemsRequest(Struct, forbid_unknown_fields=True):
    """Items to add or change; `replace` removes all others."""

    items: Annotated[list[ItemRequest], Meta(max_length=MOST_ITEMS)]
    replace: bool = False
    remove: Annotated[list[Id], Meta(max_length=MOST_ITEMS)] = []


class ItemsAnswer(Struct, frozen=True):
    n_items: int
    n_features: int | None


class Item(Struct, frozen=True):
    """One item of the catalogue, with the features or the categories it was sent with."""

    id: str
    x: tuple[float, ...] | None = None
    categories: tuple[str, ...] | None = None
    title: str | None = None
    summary: str | None = None


class ItemsList(Struct, frozen=True):
    items: tuple[Item, ...]
    n_items: int


class UserAnswer(Struct, frozen=True):
    """The state of one user; `posterior` holds the probability of each class."""

    user: str
    recommender: str
    model: int
    policy: str
    n_decisions: int
    n_rewards: int
    reward_sum: float
    posterior: tuple[float, ...] | None
    seq: int


class EraseAnswer(Struct, frozen=True):
    """The number of events that were erased."""

    erased: int


class ModelAnswer(Struct, frozen=True):
    """One model version, its scores and how it was learned."""

    version: int
    active: bool
    status: Status
    n_classes: int
    n_features: int
    n_users: int
    created: str
    score: float | None
    baseline: float | None
    reason: str
    provenance: Mapping[str, Any]


class RetrainingAnswer(Struct, frozen=True):
    """Progress of learning in the background.

    `error` is from the last run that failed, `note` says why the last run could not start.  `n_started` are the users
    to learn from, `next_at` is their number at which the next run starts by itself, null if none will.
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


class ModelsAnswer(Struct, frozen=True):
    active: int
    versions: tuple[ModelAnswer, ...]
    retraining: RetrainingAnswer


class ActivateRequest(Struct, forbid_unknown_fields=True):
    """Why this version is activated; the log keeps the reason."""

    reason: Annotated[str, Meta(max_length=1000)] = "asked for"


class ActivateAnswer(Struct, frozen=True):
    active: int


class RecommenderDifference(Struct, frozen=True):
    """Mean reward per decision of the users of `of` minus that of the users of `to`, with Welch's 95 % interval."""

    of: str
    to: str
    mean: float
    low: float
    high: float


class TrialRecommender(Struct, frozen=True):
    """`mean` and `deviation` over users of the reward per decision, as in the paper's user study."""

    name: str
    bandit: str
    share: float
    n_users: int
    n_decisions: int
    n_rewards: int
    reward_sum: float
    mean: float | None
    deviation: float | None


class TrialAnswer(Struct, frozen=True):
    """`why` says why there are no differences, if the rewards cannot tell."""

    recommenders: tuple[TrialRecommender, ...]
    differences: tuple[RecommenderDifference, ...]
    why: str | None = None


class Health(Struct, frozen=True):
    """`status` is ok, loading, draining or trouble; `detail` says more."""

    status: str
    detail: str = ""
