"""The bodies of the log's events, stored as MessagePack arrays.

A reward repeats what its update needs (features, propensity, advice), so that user states can be rebuilt and models
learned without reading the decisions.  Arrays of numbers are float64 bytes.  New fields are only added at the end.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.arrays import Floats
from lcb.decision import Decision
from lcb.serve.event_ids import slot_id


class ChosenArm(Struct, array_like=True, gc=False):
    """The arm of one slot, with all that the update with its reward needs."""

    arm: int  # index among the arms of the request
    id: str
    propensity: float
    x: bytes
    distribution: bytes | None  # None: 1 on this arm
    at_random: bool
    advice: bytes | None

    @classmethod
    def from_decision(cls, decision: Decision, id: str) -> ChosenArm:
        """Build from a decision; a distribution with all its mass on one arm is stored as None."""
        distribution = decision.distribution
        sure = distribution is None or (decision.propensity == 1 and distribution[decision.arm] == 1)
        return cls(
            int(decision.arm),
            id,
            float(decision.propensity),
            decision.x.tobytes(),
            None if sure or distribution is None else distribution.tobytes(),
            bool(decision.at_random),
            None if decision.advice is None else decision.advice.tobytes(),
        )

    def full_distribution(self, n_arms: int) -> Floats:
        """Return the probability of every arm, (n_arms,)."""
        if self.distribution is not None:
            return floats(self.distribution)
        p = np.zeros(n_arms)
        p[self.arm] = 1.0
        return p


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

    @property
    def shown(self) -> list[ChosenArm]:
        """The arms the user was shown: the caller's choice in shadow mode, else the bandit's."""
        return self.taken if self.chosen is None else [self.chosen]

    def slots(self, decision_id: str) -> dict[str, ChosenArm]:
        """Return the shown arms by slot id, which is what a reward names."""
        if self.listed:
            return {slot_id(decision_id, i): one for i, one in enumerate(self.shown)}
        return {decision_id: self.shown[0]}


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


class RecommenderBody(Struct, array_like=True):
    at: float
    spec: bytes  # JSON


class EraseBody(Struct, array_like=True):
    """A user was erased: the seqs of their events and the user's counts after each, but not the name."""

    at: float
    recommender: str
    model: int
    history: list[tuple[int, int, int, float, int]]  # seq; n_decisions, n_rewards, reward_sum, settled after it
    n_features: int | None = None  # of the log, in case the erased events alone had fixed it
    by: Actor | None = None
    left: list[bytes] | None = None  # digests of what is left of the events, in the order of `history`


class ErasedDecision(Struct, array_like=True):
    """An erased decision: only the arms without ids stay, and only if a shared state counted them."""

    recommender: str
    shared: bool
    taken: list[ChosenArm]


class ErasedReward(Struct, array_like=True):
    """An erased reward: only features and reward stay, and only if a shared state was updated with them."""

    recommender: str
    shared: bool
    reward: float
    propensity: float
    x: bytes
    at_random: bool
    advice: bytes | None
    before: float | None


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


class RefusedBody(Struct, array_like=True):
    """`n` requests of one address that were refused within a minute, and what the first of them asked for."""

    at: float
    address: str
    n: int
    status: int
    route: str
    key: str | None = None  # its name, if the scope of a known key was too low


KINDS: dict[str, type[Struct]] = {
    "decision": DecisionBody,
    "reward": RewardBody,
    "items": ItemsBody,
    "model": ModelBody,
    "activate": ActivateBody,
    "service": ServiceBody,
    "recommender": RecommenderBody,
    "erase": EraseBody,
    "erased decision": ErasedDecision,
    "erased reward": ErasedReward,
    "audit": AuditBody,
    "refused": RefusedBody,
}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(body) for kind, body in KINDS.items()
}
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
    )


def floats(data: bytes) -> Floats:
    return np.frombuffer(data, np.float64)
