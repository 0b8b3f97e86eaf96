"""Reward slots: each arm shown by a decision is a slot that can get a reward."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, slot_of_reward
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

_MOST = 20_000


class RewardSlot:
    """One slot of a decision; `reward` is its current reward, None before the first.

    `n` counts its reward events; `parts` are the parts of a sum by reward_id.
    """

    __slots__ = ("arm", "model", "n", "parts", "recommender", "reward", "seq", "user")

    def __init__(self, seq: int, user: str, model: int | None, recommender: str, arm: events.ChosenArm) -> None:
        self.seq, self.user, self.model, self.recommender, self.arm = seq, user, model, recommender, arm
        self.reward: float | None = None
        self.n = 0
        self.parts: dict[str, float] | None = None

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
    """The slots of recent decisions, at most 20,000; older ones are read from the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._slots: OrderedDict[str, RewardSlot] = OrderedDict()

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
        for later in store.events_of(row.user, row.seq, upto):
            slot = slots.get(slot_of_reward(later.id)) if later.kind == "reward" else None
            if slot is not None:
                slot.apply(events.decode("reward", later.body))
        return slots

    def admit(self, slots: dict[str, RewardSlot]) -> None:
        self._slots.update(slots)
        while len(self._slots) > _MOST:
            self._slots.popitem(last=False)

    def forget(self, slot_id: str) -> None:
        """Drop a slot, so that the next `get` reads it from the log."""
        self._slots.pop(slot_id, None)

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
