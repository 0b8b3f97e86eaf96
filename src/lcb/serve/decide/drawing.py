"""Decisions drawn by a number that follows from the log's seed and their id, so that anyone can draw them again."""

from __future__ import annotations

import hashlib

import numpy as np

from lcb.bandits.bandit import Bandit, add_advice, count_decision
from lcb.errors import InputError
from lcb.events import Decision, Floats
from lcb.serve import events
from lcb.serve.errors import Problem
from lcb.serve.event_ids import slot_id
from lcb.serve.state.model_version import Damaged
from lcb.serve.state.users import User
from lcb.serve.state.world import World


def draw(
    world: World, user: User, ids: list[str], context: Floats, decision_id: str, k: int | None
) -> list[events.ChosenArm]:
    """The arms for a user as they are, one per slot; nothing is changed."""
    try:
        bandit, shared = world.bandit(user.recommender, user.model, context.shape[1])
    except Damaged as error:
        raise Problem(503, str(error), retry_after=60) from None
    state = user.state if shared is None else world.shared_state(shared, bandit)
    assert state is not None
    assert world.service is not None
    if k is not None and k > len(ids):
        raise Problem(422, f"k is {k} and there are {len(ids)} arms; ask for at most as many", field="k")
    try:
        if k is None:
            one = bandit.choose(state, context, OneNumber(number(world.service.seed, decision_id)))  # type: ignore[arg-type]
            return [events.ChosenArm.from_decision(one, ids[one.arm])]
        return _slots(bandit, state, ids, context, world.service.seed, decision_id, k)
    except InputError as error:
        raise Problem(422, str(error), field="arms") from None


def _slots(
    bandit: Bandit, state: Floats, ids: list[str], context: Floats, seed: bytes, decision_id: str, k: int
) -> list[events.ChosenArm]:
    """One arm after another, each out of those that are left; the propensity is given the slots above."""
    left = np.arange(len(ids))
    taken = []
    for i in range(k):
        one = bandit.choose(state, context[left], OneNumber(number(seed, slot_id(decision_id, i))))  # type: ignore[arg-type]
        state = count_decision(bandit, state, one)
        kept = events.ChosenArm.from_decision(one, ids[left[one.arm]])
        if one.distribution is not None and kept.distribution is not None:
            whole = np.zeros(len(ids))
            whole[left] = one.distribution
            kept.distribution = whole.tobytes()
        kept.arm = int(left[one.arm])
        taken.append(kept)
        left = np.delete(left, one.arm)
    return taken


def record_callers_arm(
    world: World, user: User, ids: list[str], context: Floats, id: str, propensity: float
) -> events.ChosenArm:
    """Return the record of an arm that the caller chose, with the advice that our bandit gave on it."""
    bandit, _ = world.bandit(user.recommender, user.model, context.shape[1])
    arm = ids.index(id)
    return events.ChosenArm.from_decision(add_advice(bandit, Decision(arm, propensity, context[arm]), context), id)


def number(seed: bytes, name: str) -> float:
    """A number in [0, 1) that follows from the seed and a name.

    >>> number(b"seed", "d1") == number(b"seed", "d1") != number(b"seed", "d2")
    True
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class OneNumber:
    """The generator of one decision: it has one number to give."""

    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number
