"""Turns a reward request into an event to append, or returns the answer if the reward is already in the log."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lcb import messages
from lcb.serve import events
from lcb.serve.decide.change_limit import ChangeLimit
from lcb.serve.decide.entry import Entry
from lcb.serve.errors import Problem
from lcb.serve.event_ids import reward_id
from lcb.serve.state.model_version import UnreadableModels
from lcb.serve.state.reward_slots import RewardSlot, RewardSlots
from lcb.serve.state.users import WARMUP
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow

_JSON = msgspec.json.Encoder()
MOST_REWARDS = 100  # of one slot, changed or added; applying one reads all events of its user
_NO_ID = ""  # the part of a sum that came without a reward_id; in older logs one for each value, such as =5.0


class Rewards:
    """Handles rewards under the log's rule for several rewards of one slot: once, first, sum or last."""

    def __init__(
        self, world: World, slots: RewardSlots, now: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self.world, self.slots, self.now = world, slots, now
        self.limit = ChangeLimit(world.late.cost, monotonic)

    def reward(self, request: messages.RewardRequest, slot: RewardSlot | None = None) -> Entry | bytes:
        """Return a new reward event, or the answer if this reward changes nothing; `slot` is its slot, if known."""
        slot = slot or self.slots.get(request.decision_id)
        settings, reward, before = self.world.state.settings, request.reward, slot.reward
        assert settings is not None
        rule, bounds = settings.rewards, settings.reward_range
        if bounds is not None and not bounds[0] <= reward <= bounds[1]:
            raise _refuse(f"reward {reward:g} is outside", bounds)
        if request.reward_id is not None and rule != "sum":
            words = f"reward_id is only for services with rewards = sum, this one has {rule}; leave it out"
            raise Problem(422, words, field="reward_id")
        if rule == "sum":
            part = request.reward_id or _NO_ID
            sent = _find_sent(slot.parts or {}, part, reward)
            if sent is None:
                total = (before or 0.0) + reward
                if bounds is not None and not bounds[0] <= total <= bounds[1]:
                    raise _refuse(f"reward {reward:g} makes the sum {total:g}, which is outside", bounds)
                return self.build_event(request.decision_id, slot, reward, part)
            if sent != reward:
                which, to_do = f"reward {part}", "the first one stands"
                if part == _NO_ID:
                    which, to_do = "the reward without a reward_id", "to add to it, send each further one with its own"
                raise Problem(409, f"{which} is {sent:g} in the log, not {reward:g}; {to_do}", field="reward")
            return _answer(request.decision_id, before or 0.0)
        if before is None:
            return self.build_event(request.decision_id, slot, reward, None)
        if before == reward or rule == "first":
            return _answer(request.decision_id, before)
        if rule == "once":
            words = f"decision {request.decision_id} already has the reward {before:g}, not {reward:g}"
            raise Problem(409, f"{words}; the first one stands (see the setting rewards)", field="reward")
        return self.build_event(request.decision_id, slot, reward, None)

    def build_event(self, slot_id: str, slot: RewardSlot, sent: float, part: str | None) -> Entry:
        before, arm, settings = slot.reward, slot.arm, self.world.state.settings
        assert settings is not None
        if slot.n >= MOST_REWARDS:
            words = f"{slot_id} has had {slot.n} rewards, each an event of the log, and takes no more"
            raise Problem(422, f"{words}; add up on your side, and send what is final", field="reward")
        reward = sent if part is None else sent + (before or 0.0)
        try:
            self._check_bandit_takes(slot, reward)
        except UnreadableModels as error:
            raise Problem(503, str(error), retry_after=60) from None
        if slot.n:
            user = self.world.cache.peek(slot.user)
            self.limit.take(slot.user, 0 if user is None else user.n_decisions + user.n_rewards, self.world.seq)
        body = events.RewardBody(
            self.now(),
            slot.seq,
            slot.recommender,
            reward,
            arm.propensity,
            arm.x,
            arm.at_random,
            arm.advice,
            before,
            None if part is None else sent,
            part,
            arm.id,
            arm.effect,
            bound_mean(arm.mean, settings.reward_range),
        )
        key = reward_id(slot_id)
        id = reward_id(slot_id, slot.n + 1) if slot.n else key
        return Entry(
            NewRow(id, "reward", slot.user, slot.model, events.encode(body)), body, _answer(slot_id, reward), key
        )

    def _check_bandit_takes(self, slot: RewardSlot, reward: float) -> None:
        """Refuse a reward that the bandit cannot be updated with, before it is in the log.

        The statistics of users who are not pinned take every reward, also if the version that decided is damaged.
        """
        if not self.world.state.is_pinned(slot.recommender):
            return
        bandit, _ = self.world.state.bandit(slot.recommender, slot.model or WARMUP)
        bounds = getattr(bandit, "reward_range", None)
        if bounds is not None and not bounds[0] <= reward <= bounds[1]:
            words = f"reward {reward:g} is outside the range [{bounds[0]:g}, {bounds[1]:g}] of {slot.recommender}"
            raise Problem(422, f"{words}; send one inside, or start a service with that reward_range", field="reward")


def bound_mean(mean: float | None, bounds: tuple[float, float] | None) -> float | None:
    """Return the expected reward of an arm's features as its item's effect counts it: inside the range of rewards.

    Else whoever sends features of 1,000,000 moves an item further with one reward than everybody else together.

    >>> bound_mean(0.3, (0, 1)), bound_mean(-2e5, (0, 1)), bound_mean(-2e5, None)
    (0.3, 0.0, -200000.0)
    """
    if mean is None or bounds is None:
        return mean
    return min(max(mean, float(bounds[0])), float(bounds[1]))


def _find_sent(parts: dict[str, float], part: str, reward: float) -> float | None:
    """Return what was sent before as this part of a sum; None if nothing was.

    >>> _find_sent({"": 1.0, "b": 2.0}, "b", 3.0), _find_sent({"b": 2.0}, "", 3.0)
    (2.0, None)
    >>> _find_sent({"=5.0": 5.0, "=7.0": 7.0}, "", 7.0)
    7.0
    """
    if part == _NO_ID and part not in parts:
        former = [sent for name, sent in parts.items() if name.startswith("=")]
        return reward if reward in former else former[0] if former else None
    return parts.get(part)


def _answer(slot_id: str, reward: float) -> bytes:
    return _JSON.encode(messages.RewardAnswer(slot_id, reward))


def _refuse(what: str, bounds: tuple[float, float]) -> Problem:
    words = f"{what} the range [{bounds[0]:g}, {bounds[1]:g}] of this log"
    wanted = "send one inside, or begin a new store with the range of your rewards (lcb serve --reward-range LOW,HIGH)"
    return Problem(422, f"{words}; {wanted}", field="reward")
