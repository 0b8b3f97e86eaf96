"""Reward slots: each arm shown by a decision is a slot that can get a reward."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, slot_of_reward
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

_MOST, _MOST_BYTES = 20_000, 64_000_000
_LARGE = 1024  # bytes


class RewardSlot:
    """One slot of a decision; `reward` is its current reward, None before the first.

    `n` counts its reward events; `parts` are the parts of a sum by reward_id.  A large distribution of `arm` is
    left out: no reward needs it, and for a list from many arms it would be most of the memory.
    """

    __slots__ = ("arm", "model", "n", "parts", "recommender", "reward", "seq", "user")

    def __init__(self, seq: int, user: str, model: int | None, recommender: str, arm: events.ChosenArm) -> None:
        self.seq, self.user, self.model, self.recommender = seq, user, model, recommender
        large = len(arm.distribution or b"") > _LARGE
        self.arm = msgspec.structs.replace(arm, distribution=None) if large else arm
        self.reward: float | None = None
        self.n = 0
        self.parts: dict[str, float] | None = None

    @property
    def n_bytes(self) -> int:
        """The bytes that may be many."""
        return len(self.arm.x) + len(self.arm.advice or b"") + len(self.arm.distribution or b"")

    def apply(self, body: events.RewardBody) -> None:
        self.reward = body.reward
        self.n += 1
        if body.part is not None and body.sent is not None:
            self.parts = {**(self.parts or {}), body.part: body.sent}


def open_slots(row: Row, body: events.DecisionBody) -> dict[str, RewardSlot]:
    """Return the slots of a decision by id, without rewards."""
    assert row.user is not None
    arms = body.slots(row.id).items()
    return {id: RewardSlot(row.seq, row.user, row.model, body.recommender, arm) for id, arm in arms}


class RewardSlots:
    """The slots of recent decisions, at most 20,000 and 64 MB; older ones are read from the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._slots: OrderedDict[str, RewardSlot] = OrderedDict()
        self._n_bytes = 0

    def __contains__(self, slot_id: str) -> bool:
        return slot_id in self._slots

    def get(self, slot_id: str) -> RewardSlot:
        """Return a slot; raises Problem 404 if the log has none with this id."""
        found = self._slots.get(slot_id)
        if found is None:
            self.admit(self.read(slot_id))
            found = self._slots[slot_id]
        self._slots.move_to_end(slot_id)
        return found

    def read(self, slot_id: str) -> dict[str, RewardSlot]:
        """Read all slots of the same decision from the log, with their rewards; may run in any thread."""
        decision_id = decision_of_slot(slot_id)
        store, upto = self.world.store, self.world.seq
        row = store.event(decision_id)
        if row is None or row.seq > upto or row.kind != "decision":
            raise Problem(404, f"no decision {decision_id!r}; check the id, or decide first", field="decision_id")
        slots = open_slots(row, events.decode("decision", row.body))
        if slot_id not in slots:
            wanted = "one of its slots" if slot_id != decision_id else "the reward_id of a slot"
            words = f"decision {decision_id!r} has no slot {slot_id!r}; send {wanted}"
            raise Problem(404, words, field="decision_id")
        assert row.user is not None
        for later in store.rewards_of(row.user, row.seq, upto):
            if (slot := slots.get(slot_of_reward(later.id))) is not None:
                slot.apply(events.decode("reward", later.body))
        return slots

    def admit(self, slots: dict[str, RewardSlot]) -> None:
        for id, slot in slots.items():
            self.forget(id)
            self._slots[id] = slot
            self._n_bytes += slot.n_bytes
        while len(self._slots) > max(_MOST if self._n_bytes <= _MOST_BYTES else 0, len(slots)):
            self._n_bytes -= self._slots.popitem(last=False)[1].n_bytes

    def forget(self, slot_id: str) -> None:
        """Drop a slot, so that the next `get` reads it from the log."""
        if (slot := self._slots.pop(slot_id, None)) is not None:
            self._n_bytes -= slot.n_bytes

    def apply(self, row: Row, body: Any) -> None:
        """Apply an event that the world has applied."""
        if row.kind == "decision":
            self.admit(open_slots(row, body))
        elif row.kind == "reward":
            slot = self._slots.get(slot_of_reward(row.id))
            if slot is not None:
                slot.apply(body)
        elif row.kind == "erase":
            self._slots.clear()
            self._n_bytes = 0
