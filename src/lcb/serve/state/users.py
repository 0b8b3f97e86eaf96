"""The state of one user."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from lcb.arrays import Floats
from lcb.serve import events
from lcb.serve.event_ids import user_snapshot
from lcb.serve.events import floats
from lcb.storage.store.base import Row, Snapshot

WARMUP = 0  # the model version of users who started before there were classes
_USER_BYTES, _ARRAY_BYTES = 400, 150  # of a user in a dict, without name and state; of an array, without its numbers
_OWN = np.dtype([("item", "u8"), ("count", "f8"), ("sum", "f8")])
OwnResiduals = np.ndarray[tuple[int], np.dtype[np.void]]  # (n,) of the items that one user has rewarded
_LARGE_STATE = 65_536  # bytes; the snapshot of a smaller one costs little
_EVENT = 2_048  # bytes: reading an event takes as long as reading so many of a snapshot, and its own
EVERYTHING = 1 << 62  # `fresh` of a user whose snapshot is worth writing in any case
NO_RESIDUALS: OwnResiduals = np.empty(0, _OWN)
LOST: Floats = np.empty(0)  # the state of a user whose models cannot be read; never written to a snapshot


class UserGone(Exception):
    """The log has no events of a user any more: they were erased after an event of theirs was read."""


class User:
    """One user; `state` is the bandit's state, None if it is shared by all users of the recommender."""

    __slots__ = (
        "canary",
        "fresh",
        "held",
        "left",
        "model",
        "n_decisions",
        "n_rewards",
        "recommender",
        "residuals",
        "reward_sum",
        "saved",
        "seq",
        "settled",
        "state",
    )

    def __init__(self, recommender: str, model: int, state: Floats | None, seq: int) -> None:
        self.recommender, self.model, self.state, self.seq = recommender, model, state, seq
        self.n_decisions = self.n_rewards = self.settled = 0
        self.reward_sum = 0.0
        self.left = 0  # seq of the event with which the user left a mixture; 0: not left
        self.canary = 0  # seq of the first decision, if it was made while a canary was open; negative: not its version
        self.residuals = NO_RESIDUALS  # of the rewards for each item that has effects
        self.saved = 0  # seq of the snapshot in the store
        self.fresh = 0  # what it costs to load the events since that snapshot, in bytes of a snapshot
        self.held = 0  # bytes that the cache counts for this user

    @property
    def unsaved(self) -> bool:
        """Whether a snapshot should be written: the store has none of this state, and the state is not lost."""
        return self.seq != self.saved and self.state is not LOST

    def note_event(self, n_bytes: int, *, changes_state: bool = False) -> None:
        """Count what it costs to read and fold an event of `n_bytes` again."""
        self.fresh += _EVENT + n_bytes
        if changes_state and self.state is not None:  # an update copies the state, eight times as fast as it is read
            self.fresh += self.state.nbytes // 8

    @property
    def is_worth_writing(self) -> bool:
        """Whether to write a snapshot of a user who leaves memory: it costs less than to load the events again.

        Of a large state few events are read again faster than the state, and need not be written with the next commit.
        """
        if not self.unsaved:
            return False
        size = 0 if self.state is None else self.state.nbytes
        return size < _LARGE_STATE or self.fresh >= size // 2

    @property
    def n_bytes(self) -> int:
        """The memory of this user; the two constants were measured with tracemalloc."""
        own = _ARRAY_BYTES + self.residuals.nbytes if len(self.residuals) else 0
        return _USER_BYTES + (0 if self.state is None else _ARRAY_BYTES + self.state.nbytes) + own

    @property
    def rate(self) -> float:
        return self.reward_sum / self.n_decisions if self.n_decisions else 0.0

    def is_own(self, row: Row, body: Any) -> bool:
        """Whether an event has the recommender and model version that the user is pinned to.

        Two replicas may each make a first decision for the same user, with different versions.  The one that is first
        in the log pins the user; the other is counted but updates nothing.
        """
        return (row.model or WARMUP) == self.model and body.recommender == self.recommender

    def pack(self) -> bytes:
        """Return the user as bytes; the same events give the same bytes."""
        state = None if self.state is None else self.state.tobytes()
        counts = (self.n_decisions, self.n_rewards, self.reward_sum, self.settled)
        more = [self.left, self.canary, self.residuals.tobytes()]
        while more and not more[-1]:  # as in older snapshots
            more.pop()
        return events.encode((self.recommender, self.model, state, self.seq, *counts, *more))

    def snapshot(self, name: str) -> Snapshot:
        return Snapshot(user_snapshot(name), self.seq, self.pack())

    @classmethod
    def unpack(cls, data: bytes) -> User:
        known = msgspec.msgpack.decode(data)
        recommender, model, state, seq, n_decisions, n_rewards, reward_sum, settled = known[:8]
        user = cls(recommender, model, None if state is None else floats(state), seq)
        user.n_decisions, user.n_rewards, user.reward_sum, user.settled = n_decisions, n_rewards, reward_sum, settled
        user.saved = seq
        user.left = known[8] if len(known) > 8 else 0
        user.canary = known[9] if len(known) > 9 else 0
        if len(known) > 10:
            user.residuals = np.frombuffer(known[10], _OWN)
        return user


def check_there(user: User | None, seq: int) -> User:
    """Return the user of the event `seq`, who must have earlier ones; raises UserGone if there are none."""
    if user is None:
        raise UserGone(f"the log has no events of the user of event {seq}")
    return user


def add_own(own: OwnResiduals, item: str, residual: float) -> OwnResiduals:
    """Return a user's residuals with one more; an item takes 24 bytes.

    >>> own = add_own(add_own(add_own(NO_RESIDUALS, "a", 0.5), "b", 1.0), "a", 0.0)
    >>> weigh_own(own, "a"), weigh_own(own, "b"), weigh_own(own, "c")
    ((1, 0.25), (1, 1.0), (0, 0.0))
    """
    key = _hash_item(item)
    found = np.flatnonzero(own["item"] == key)
    if not len(found):
        return np.concatenate([own, np.array([(key, 1.0, residual)], _OWN)])
    own = own.copy()
    own["count"][found] += 1
    own["sum"][found] += residual
    return own


def weigh_own(own: OwnResiduals, item: str) -> tuple[int, float]:
    """Return what a user's rewards for an item add to its effect: nothing, or one residual, their mean."""
    count, total = find_own(own, item)
    return (1, total / count) if count else (0, 0.0)


def find_own(own: OwnResiduals, item: str) -> tuple[float, float]:
    """Return count and sum of a user's residuals for an item."""
    found = own[own["item"] == _hash_item(item)]
    return (float(found["count"][0]), float(found["sum"][0])) if len(found) else (0.0, 0.0)


def _hash_item(item: str) -> int:
    return int.from_bytes(blake2b(item.encode(), digest_size=8).digest(), "little")
