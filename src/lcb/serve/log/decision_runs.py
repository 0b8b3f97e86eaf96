"""Applies many decisions in a row faster than one by one, where each only counts for its user and opens a slot.

That is so for a known user who is in memory, has a state of their own that decisions do not change, and keeps the
version that they have.  The result is the same as that of `World.apply` and `RewardSlots.apply` for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lcb.serve.state.model_version import UnreadableModels
from lcb.serve.state.reward_slots import RewardSlot, RewardSlots, lighten_arm
from lcb.serve.state.users import LOST, WARMUP
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

FEWEST = 4  # decisions; fewer are applied faster one by one
_Kind = tuple[str, int, int | None, str]  # recommender and version of the user, version and recommender of the event


def apply_run(world: World, slots: RewardSlots, rows: Sequence[Row], bodies: Sequence[Any], first: int) -> int:
    """Apply the decisions from place `first` on that can be applied in this way; returns the place after them."""
    if world.late.names or world.late.histories or world.seen or world.erased or not _begins_at(rows, first):
        return first
    find_user, seq = world.cache.peek, world.seq
    simple, counts = dict[_Kind, bool](), Counter[str]()
    names, opened = list[str](), dict[str, RewardSlot]()
    arms = dict[int, tuple[Any, int]]()  # as slots keep them, by `id`: the decisions of a batch share some
    place = first
    for place in range(first, len(rows)):
        (at, decision, kind, name, model, stored), body = rows[place], bodies[place]
        if kind != "decision" or body is None or body.listed or body.chosen is not None or at != seq + 1:
            break
        if decision in slots or decision in opened:
            break
        assert name is not None
        user = find_user(name)
        if user is None or user.state is None or user.state is LOST or user.canary or not user.n_decisions:
            break
        of_kind = user.recommender, user.model, model, body.recommender
        found = simple.get(of_kind)
        if found is None:
            found = simple[of_kind] = _is_simple(world, of_kind)
        if not found:
            break
        seq, n, reward_sum = at, user.n_decisions, user.reward_sum
        user.seq, user.left, user.n_decisions = seq, 0, n + 1
        user.note_event(len(stored))
        if reward_sum:
            world.tally(user.recommender).change_rate(reward_sum / n, reward_sum / (n + 1))
        counts[user.recommender] += 1
        names.append(name)
        arm = body.taken[0]
        light = arms.get(key := id(arm))
        if light is None:
            light = arms[key] = lighten_arm(arm)
        opened[decision] = RewardSlot(seq, name, model, body.recommender, *light)
    else:
        place = len(rows)
    if place > first:
        world.seq = seq
        world.n_events += place - first
        for recommender, n in counts.items():
            world.tally(recommender).n_decisions += n
        world.cache.touch(names)
        slots.admit_new(opened)
    return place


def _begins_at(rows: Sequence[Row], first: int) -> bool:
    """Whether enough decisions follow one another from here on."""
    last = first + FEWEST
    return last <= len(rows) and all(row.kind == "decision" for row in rows[first:last])


def _is_simple(world: World, kind: _Kind) -> bool:
    """Whether decisions of this kind change neither the state of the user nor one that users share."""
    recommender, version, model, of_event = kind
    state = world.state
    if recommender != of_event or version != model or version == WARMUP or state.mixture_of(recommender) is not None:
        return False
    try:
        return not state.is_pinned(recommender) or not hasattr(state.bandit(recommender, version)[0], "count_decision")
    except UnreadableModels:
        return False
