"""The bodies of the log's events, as MessagePack arrays: what was decided, what came of it, what was learned.

A reward carries what its update needs (features, propensity, advice), so that a user's state is a fold of rewards and
counts, and learning reads rewards alone.  Arrays of numbers are float64 bytes.  Fields are only ever added at the end.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.events import Decision, Floats
from lcb.serve.event_ids import slot_id


class ChosenArm(Struct, array_like=True, gc=False):
    """The arm of one slot: its propensity, and what the update with its reward will need."""

    arm: int  # its index among the arms of the request
    id: str
    propensity: float
    x: bytes
    distribution: bytes | None  # None: 1 on this arm
    at_random: bool
    advice: bytes | None

    @classmethod
    def from_decision(cls, decision: Decision, id: str) -> ChosenArm:
        """Return the record of a decision; a distribution with all its mass on one arm is stored as None."""
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
    at: float  # seconds since 1970, by the clock of the server; order is by seq
    seen: int  # the log up to here is what the decision was made from
    recommender: str
    n_arms: int
    arms: list[str] | None  # None: the whole catalogue as of `seen`
    x: bytes | None  # (K, d) where the request had vectors, else the catalogue's as of `seen`
    user_x: bytes | None
    taken: list[ChosenArm]
    digest: bytes | None  # of the request, where the id came with it
    listed: bool = False  # asked for as a list of slots
    chosen: ChosenArm | None = None  # shadow mode: what the caller took; `taken` is what we would have
    own: bool = True  # the propensity of `chosen` is known

    @property
    def shown(self) -> list[ChosenArm]:
        """The arms the user was shown: the caller's choice in shadow mode, else ours."""
        return self.taken if self.chosen is None else [self.chosen]

    def slots(self, decision_id: str) -> dict[str, ChosenArm]:
        """Return the shown arms by the id that their reward will name."""
        if self.listed:
            return {slot_id(decision_id, i): one for i, one in enumerate(self.shown)}
        return {decision_id: self.shown[0]}


class RewardBody(Struct, array_like=True, gc=False):
    at: float
    decision: int  # seq of the decision
    recommender: str
    reward: float  # what counts for the decision from here on
    propensity: float
    x: bytes
    at_random: bool
    advice: bytes | None
    before: float | None = None  # what counted until now, where it is changed
    sent: float | None = None  # what came, where that is a part of a sum
    part: str | None = None  # and which


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
    active: bool  # served from here on
    reason: str
    n_users: int
    score: float | None
    baseline: float | None
    n_started: int | None = None  # users met when it was learned; None: as many as at this place of the log
    seen: int | None = None  # the log up to here is what it was learned from


class ActivateBody(Struct, array_like=True):
    at: float
    version: int
    reason: str


class ServiceBody(Struct, array_like=True):
    """What a log is about, for good."""

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
    """Nobody's name is in it: which events were a person's, and what the tallies had of them after each."""

    at: float
    recommender: str
    model: int
    history: list[tuple[int, int, int, float, int]]  # seq; decisions, rewards, their sum, settled, after it
    n_features: int | None = None  # of the log, should these have been its only events


class ErasedDecision(Struct, array_like=True):
    """Left of a decision: for a shared state that counts decisions, the arms taken without their names."""

    recommender: str
    shared: bool
    taken: list[ChosenArm]


class ErasedReward(Struct, array_like=True):
    """Left of a reward: for a shared state the features and the reward, nobody's any more."""

    recommender: str
    shared: bool
    reward: float
    propensity: float
    x: bytes
    at_random: bool
    advice: bytes | None
    before: float | None


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
}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(body) for kind, body in KINDS.items()
}
encode = _ENCODER.encode


def decode(kind: str, body: bytes) -> Any:
    """Return the body of an event as a Struct."""
    return _DECODERS[kind].decode(body)


def to_decision(record: ChosenArm | RewardBody | ErasedReward) -> Decision:
    """Return the decision as a bandit's `update` and `count_decision` take it."""
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
