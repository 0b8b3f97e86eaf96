"""The bodies of the log's events, stored as MessagePack arrays.

A reward repeats what its update needs (features, propensity, advice), so that user states can be rebuilt and models
learned without reading the decisions.  Arrays of numbers are float64 bytes.  New fields are only added at the end.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lcb.arrays import Floats, unpack_bools
from lcb.decision import Decision
from lcb.serve.base_bodies import BASE_KINDS
from lcb.serve.event_ids import slot_id
from lcb.serve.sparse import pack_distribution, unpack_distribution


class ChosenArm(Struct, array_like=True, gc=False):
    """The arm of one slot, with all that the update with its reward needs."""

    arm: int  # index among the arms of the request
    id: str
    propensity: float
    x: bytes
    distribution: bytes | None  # None: 1 on this arm; see lcb.serve.sparse
    at_random: bool
    advice: bytes | None
    effect: float | None = None  # of the item when it was chosen; None: chosen without item effects
    mean: float | None = None  # expected reward of its features for this user, beside the effect
    rest: float | None = None  # probability of the arms that a sparse distribution leaves out; None: it is whole

    @classmethod
    def from_decision(cls, decision: Decision, id: str) -> ChosenArm:
        """Build from a decision; a distribution with all its mass on one arm is stored as None."""
        distribution = decision.distribution
        sure = distribution is None or (decision.propensity == 1 and distribution[decision.arm] == 1)
        packed, rest = (None, None) if sure or distribution is None else pack_distribution(distribution)
        return cls(
            int(decision.arm),
            id,
            float(decision.propensity),
            decision.x.tobytes(),
            packed,
            bool(decision.at_random),
            None if decision.advice is None else decision.advice.tobytes(),
            None if decision.effects is None else decision.effect,
            None if decision.effects is None else decision.mean,
            rest,
        )

    def full_distribution(self, n_arms: int) -> Floats:
        """Return the probability of every arm, (n_arms,)."""
        if self.distribution is not None:
            return unpack_distribution(self.distribution, self.rest, n_arms)
        p = np.zeros(n_arms)
        p[self.arm] = 1.0
        return p


class RulesBody(Struct, array_like=True, gc=False):
    """The rules of a decision, and the arms that they left; arms are a bitmap (`lcb.arrays.pack_bools`)."""

    k: int | None  # slots that were asked for; `at_most` may leave fewer
    excluded: bytes  # arms that the caller excluded
    seen: str | None  # exclude, exclude-taken
    at_most: int | None  # of one category
    left: list[bytes]  # the arms that each slot could show


class DecisionBody(Struct, array_like=True, gc=False):
    at: float  # seconds since 1970 by the server's clock; events are ordered by seq, not by time
    seen: int  # seq of the state that the decision was made from
    recommender: str
    n_arms: int
    arms: list[str] | None  # None: the whole catalogue as of `seen`
    x: bytes | None  # (K, d) if the request sent vectors; None: the catalogue's as of `seen`
    user_x: bytes | None
    taken: list[ChosenArm]  # the arms that the service's bandit chose, one per slot
    digest: bytes | None  # of the request; None if the caller sent no id
    listed: bool = False  # a list of k slots was asked for
    chosen: ChosenArm | None = None  # shadow mode: the arm that the caller chose and showed
    own: bool = True  # the propensity of the shown arm is known
    rules: RulesBody | None = None

    @property
    def shown(self) -> list[ChosenArm]:
        """The arms the user was shown: the caller's choice in shadow mode, else the bandit's."""
        return self.taken if self.chosen is None else [self.chosen]

    def slots(self, decision_id: str) -> dict[str, ChosenArm]:
        """Return the shown arms by slot id, which is what a reward names."""
        if self.listed:
            return {slot_id(decision_id, i): one for i, one in enumerate(self.shown)}
        return {decision_id: self.shown[0]}

    def on_offer(self, slot: int = 0) -> NDArray[np.intp]:
        """Return the indices of the arms that a slot could show: without those above it, and after the rules."""
        if self.rules is not None:
            return np.flatnonzero(unpack_bools(self.rules.left[slot], self.n_arms))
        return np.delete(np.arange(self.n_arms), [one.arm for one in self.taken[:slot]])


class RewardBody(Struct, array_like=True, gc=False):
    at: float
    decision: int  # seq of the decision
    recommender: str
    reward: float  # the reward of the slot from here on
    propensity: float
    x: bytes
    at_random: bool
    advice: bytes | None
    before: float | None = None  # the reward until now, if this event changes it
    sent: float | None = None  # rewards = sum: the part that the caller sent
    part: str | None = None  # rewards = sum: the id of that part
    item: str | None = None  # None: written before rewards named their item
    effect: float | None = None  # these two as the decision had them
    mean: float | None = None

    @property
    def residual(self) -> tuple[int, float] | None:
        """What it adds to its item where each reward counts: one and r - mean; a changed reward adds the difference."""
        if self.mean is None:
            return None
        return (1, self.reward - self.mean) if self.before is None else (0, self.reward - self.before)


class ItemsBody(Struct, array_like=True):
    at: float
    items: list[tuple[str, bytes, list[str] | None, str | None, str | None]]  # id, x, categories, title, summary
    remove: list[str]
    replace: bool


class ModelBody(Struct, array_like=True):
    at: float
    version: int
    manifest: bytes
    tensors: bytes
    active: bool  # whether new users get it from here on
    reason: str
    n_users: int
    score: float | None = None
    baseline: float | None = None
    n_started: int | None = None  # users with a decision when learning began; None: count at this event
    seen: int | None = None  # it was learned from the log up to this seq
    canary: float | None = None  # share of newcomers that get it first, until an event `canary`
    canary_users: int = 0  # of these, with a reward, before there is a verdict


class CanaryBody(Struct, array_like=True):
    """The end of a canary: new users get its version from here on, or none does any more.

    Void if the canary was ended by another version.
    """

    at: float
    version: int
    promoted: bool
    reason: str
    verdict: bytes  # MessagePack of `state.canary.Verdict`


class LearningBody(Struct, array_like=True):
    """Learning begins, from the log up to this event: the residuals of items after it are what it will not know."""

    at: float


class Actor(Struct, array_like=True):
    """Who did something: the name of the key (None: no key was needed) and the address of the request."""

    key: str | None
    address: str


class ActivateBody(Struct, array_like=True):
    at: float
    version: int
    reason: str
    by: Actor | None = None


class ServiceBody(Struct, array_like=True):
    """The first event: settings of the log that never change."""

    at: float
    seed: bytes
    rewards: str  # once, first, sum, last
    reward_range: tuple[float, float] | None
    feature_map: bytes | None  # JSON
    features: list[str] | None
    has_key_events: bool = False  # every key of this log has an event of kind `key`
    counts_users: bool = False  # a user's rewards for an item count as their mean, at most 100 in a mixture; else all
    exact: bool = False  # probabilities are recomputed to the last bit (decision 35)


class RecommenderBody(Struct, array_like=True):
    at: float
    spec: bytes  # JSON


class TeachersBody(Struct, array_like=True):
    """From here on, decisions for visitors of the pages by the recommenders `closed` teach nobody else.

    Such visitors do not count as users to learn from, and their rewards move no state that others share.
    """

    at: float
    closed: list[str]


class EraseBody(Struct, array_like=True):
    """A user was erased: the seqs of their events and the user's counts after each, but not the name."""

    at: float
    recommender: str
    model: int
    history: list[tuple[int, int, int, float, int]]  # seq; n_decisions, n_rewards, reward_sum, settled after it
    n_features: int | None = None  # of the log, in case the erased events alone had fixed it
    by: Actor | None = None
    left: list[bytes] | None = None  # digests of what is left of the events, in the order of `history`
    started: bool = True  # the user's first decision counted a user to learn from
    rewarded: bool = True  # the user's first reward, if there was one, counted a user with a reward
    models: list[int] | None = None  # the user's version after each event; None: always `model`


class ErasedDecision(Struct, array_like=True):
    """An erased decision: of a shared state, the arms without ids; features that it did not count are zeros.

    If the user had left (event `left`) and came back with it, `row` are the statistics that leave the user's class.
    """

    recommender: str
    shared: bool
    taken: list[ChosenArm]
    left: int = 0
    row: bytes = b""


class ErasedReward(Struct, array_like=True):
    """An erased reward: only features and reward stay, and only if a shared state was updated with them.

    What it added to an item stays too, because the decisions for others until the next learning rest on it.
    """

    recommender: str
    shared: bool
    reward: float
    propensity: float
    x: bytes
    at_random: bool
    advice: bytes | None
    before: float | None
    left: int = 0  # as in `ErasedDecision`
    row: bytes = b""
    item: str | None = None
    residual: tuple[int, float] | None = None


class LeaveBody(Struct, array_like=True, gc=False):
    """A user was not seen for a while, and is seated in a class of a mixture; void if they came back after `last`."""

    at: float
    recommender: str
    last: int  # seq of the user's event before it


class ErasedLeave(Struct, array_like=True):
    """A departure of an erased user: the statistics that were seated; none if nothing was."""

    at: float
    recommender: str
    row: bytes = b""


class RefitBody(Struct, array_like=True):
    """A refit of a mixture begins with its state as of this event; it is known by the name of its recommender."""

    at: float
    recommender: str


class MixtureBody(Struct, array_like=True):
    """The mixture of a recommender from here on: the result of a refit, and all departures and returns since on top.

    Void if another refit of it has begun meanwhile.
    """

    at: float
    recommender: str
    refit: int  # seq of the event with which the refit began; 0: learned elsewhere
    state: bytes
    reason: str


class AuditBody(Struct, array_like=True):
    """Something that a person did which changes no state: `action` and its `detail` are texts to read.

    A sign-in or sign-out has the SHA-256 of its session; a sign-in also that of its key, and when the session ends.
    """

    at: float
    action: str
    by: Actor
    detail: str = ""
    session: bytes | None = None
    key: bytes | None = None
    until: float | None = None


class KeyBody(Struct, array_like=True):
    """A key was created, revoked or adopted (recorded by a newer version), or the service was opened (no name)."""

    at: float
    action: str
    by: Actor
    name: str
    scope: str
    sha256: bytes


class RefusedBody(Struct, array_like=True):
    """`n` requests of one address that were refused within a minute, and what they asked for, each route once."""

    at: float
    address: str
    n: int
    status: int
    route: str  # of the first
    key: str | None = None  # its name, if the scope of a known key was too low
    others: list[tuple[int, str]] = []  # status and route of those that asked for something else


KINDS: dict[str, type[Struct]] = {
    "decision": DecisionBody,
    "reward": RewardBody,
    "items": ItemsBody,
    "model": ModelBody,
    "learning": LearningBody,
    "canary": CanaryBody,
    "activate": ActivateBody,
    "service": ServiceBody,
    "recommender": RecommenderBody,
    "teachers": TeachersBody,
    "erase": EraseBody,
    "erased decision": ErasedDecision,
    "erased reward": ErasedReward,
    "leave": LeaveBody,
    "erased leave": ErasedLeave,
    "refit": RefitBody,
    "mixture": MixtureBody,
    "audit": AuditBody,
    "refused": RefusedBody,
    "key": KeyBody,
    **BASE_KINDS,
}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {kind: msgspec.msgpack.Decoder(one) for kind, one in KINDS.items()}
encode = _ENCODER.encode


def decode(kind: str, body: bytes) -> Any:
    return _DECODERS[kind].decode(body)


def to_decision(record: ChosenArm | RewardBody | ErasedReward) -> Decision:
    """Return the stored decision as a `Decision`, the argument of a bandit's `update` and `count_decision`."""
    return Decision(
        record.arm if isinstance(record, ChosenArm) else 0,
        record.propensity,
        floats(record.x),
        None,
        record.at_random,
        None if record.advice is None else floats(record.advice),
        0.0 if isinstance(record, ErasedReward) else record.effect or 0.0,
    )


def floats(data: bytes) -> Floats:
    return np.frombuffer(data, np.float64)
