"""Reward slots: each arm shown by a decision is a slot that can get a reward."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, ranges_of_rewards, slot_of_reward
from lcb.serve.read_event import read_event
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

_MOST, _MOST_BYTES = 20_000, 64_000_000
_LARGE = 1024  # bytes


class RewardSlot(Struct, gc=False):
    """One slot of a decision; `reward` is its current reward, None before the first.

    `n` counts its reward events; `parts` are the parts of a sum by reward_id.  A large distribution of `arm` is
    left out: no reward needs it, and for a list from many arms it would be most of the memory.
    """

    seq: int
    user: str
    model: int | None
    recommender: str
    arm: events.ChosenArm
    n_bytes: int  # those that may be many
    reward: float | None = None
    n: int = 0
    parts: dict[str, float] | None = None

    def apply(self, body: events.RewardBody) -> None:
        self.reward = body.reward
        self.n += 1
        if body.part is not None and body.sent is not None:
            self.parts = {**(self.parts or {}), body.part: body.sent}


def open_slots(row: Row, body: events.DecisionBody) -> dict[str, RewardSlot]:
    """Return the slots of a decision by id, without rewards."""
    return {id: _open_slot(row, body, arm) for id, arm in body.slots(row.id).items()}


def _open_slot(row: Row, body: events.DecisionBody, arm: events.ChosenArm) -> RewardSlot:
    seq, _, _, user, model, _ = row
    assert user is not None
    return RewardSlot(seq, user, model, body.recommender, *lighten_arm(arm))


def lighten_arm(arm: events.ChosenArm) -> tuple[events.ChosenArm, int]:
    """Return an arm as a slot keeps it, and the bytes of it that may be many."""
    n_bytes = 0 if arm.distribution is None else len(arm.distribution)
    if n_bytes > _LARGE:
        arm, n_bytes = msgspec.structs.replace(arm, distribution=None), 0
    return arm, n_bytes + len(arm.x) + (0 if arm.advice is None else len(arm.advice))


def build_archived(decision_id: str) -> Problem:
    """Return the answer to a request about a decision that is older than what the log keeps."""
    words = f"decision {decision_id!r} is archived: it is older than what the log keeps (lcb log compact --keep)"
    return Problem(410, f"{words}; it takes no reward any more, and its id is taken", field="decision_id")


def build_unknown(decision_id: str) -> Problem:
    return Problem(404, f"no decision {decision_id!r}; check the id, or decide first", field="decision_id")


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
        if found.seq <= self.world.state.archived_upto:
            raise build_archived(decision_of_slot(slot_id))
        self._slots.move_to_end(slot_id)
        return found

    def read(self, slot_id: str) -> dict[str, RewardSlot]:
        """Read all slots of the same decision from the log, with their rewards; may run in any thread."""
        decision_id = decision_of_slot(slot_id)
        store, upto = self.world.store, self.world.seq
        row = store.event(decision_id)
        if row is None:
            raise self._build_missing(decision_id)
        if row.seq > upto or row.kind != "decision":
            raise build_unknown(decision_id)
        slots = open_slots(row, read_event(row))
        if slot_id not in slots:
            wanted = "one of its slots" if slot_id != decision_id else "the reward_id of a slot"
            words = f"decision {decision_id!r} has no slot {slot_id!r}; send {wanted}"
            raise Problem(404, words, field="decision_id")
        for later in store.events_between(ranges_of_rewards(decision_id), upto):
            if (slot := slots.get(slot_of_reward(later.id))) is not None:
                slot.apply(read_event(later))
        return slots

    def read_many(self, slot_ids: Sequence[str]) -> tuple[list[dict[str, RewardSlot]], dict[str, Problem]]:
        """Read slots of several decisions, without those that cannot be read; may run in any thread.

        Decisions that the log does not have are looked up together, and returned with the refusal of their rewards.
        """
        slot_of = {decision_of_slot(id): id for id in slot_ids}
        there = self.world.store.ids_there(list(slot_of))
        found, missing = [], {id: self._build_missing(id) for id in slot_of.keys() - there}
        for decision_id in there:
            with suppress(Problem):  # told when the reward itself is asked for
                found.append(self.read(slot_of[decision_id]))
        return found, missing

    def _build_missing(self, decision_id: str) -> Problem:
        """Return the answer to a request about a decision that the log does not have, or has no more."""
        state, store = self.world.state, self.world.store
        archived = state.compacted is not None and store.was_archived(decision_id)
        return build_archived(decision_id) if archived else build_unknown(decision_id)

    def admit(self, slots: dict[str, RewardSlot]) -> None:
        for id, slot in slots.items():
            self._put(id, slot)
        self._evict(len(slots))

    def admit_new(self, slots: dict[str, RewardSlot]) -> None:
        """Do the same for slots of which none is here yet, as one where they are many."""
        self._slots.update(slots)
        self._n_bytes += sum([slot.n_bytes for slot in slots.values()])
        self._evict(1)

    def _put(self, id: str, slot: RewardSlot) -> None:
        if id in self._slots:
            self.forget(id)
        self._slots[id] = slot
        self._n_bytes += slot.n_bytes

    def _evict(self, n_new: int) -> None:
        """Drop the oldest slots while there are too many; the newest `n_new` stay."""
        slots = self._slots
        while (len(slots) > _MOST or self._n_bytes > _MOST_BYTES) and len(slots) > n_new:
            self._n_bytes -= slots.popitem(last=False)[1].n_bytes

    def forget(self, slot_id: str) -> None:
        """Drop a slot, so that the next `get` reads it from the log."""
        if (slot := self._slots.pop(slot_id, None)) is not None:
            self._n_bytes -= slot.n_bytes

    def apply(self, row: Row, body: Any) -> None:
        """Apply an event that the world has applied."""
        if row.kind == "decision":
            if body.listed:
                self.admit(open_slots(row, body))
            else:
                self._put(row.id, _open_slot(row, body, body.taken[0] if body.chosen is None else body.chosen))
                self._evict(1)
        elif row.kind == "reward":
            slot = self._slots.get(slot_of_reward(row.id))
            if slot is not None:
                slot.apply(body)
        elif row.kind == "erase":
            self._slots.clear()
            self._n_bytes = 0
