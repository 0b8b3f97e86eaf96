"""Checks the users of a log: every reward against its decision, and live user states against the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from lcb.progress import Progress
from lcb.serve import events
from lcb.serve.audit.report import Report
from lcb.serve.decide.rewards import bound_mean
from lcb.serve.event_ids import reward_id, slot_of_reward
from lcb.serve.read_event import read_event
from lcb.serve.state.reward_slots import RewardSlot, open_slots
from lcb.serve.state.users import User
from lcb.serve.state.world import World
from lcb.storage.store.base import Row, Store

_REPORT_EVERY = 500


def check_users(
    world: World,
    store: Store,
    upto: int,
    only: str | None,
    live: Mapping[str, bytes],
    report: Report,
    progress: Progress,
) -> None:
    """Check all users, or `only` one; `live` are packed users of a running service, which must equal the replayed."""
    for name in [only] if only is not None else list_users(store):
        rows = store.events_of(name, 0, upto)
        if not rows:
            continue
        report.n_users += 1
        _check_rewards(world, rows, report)
        user = world.user(name)
        packed = None if user is None else user.pack()
        if name in live and packed != live[name]:
            report.add(None, f"user {name!r}", describe_user(live[name]), describe_user(packed))
        if report.n_users % _REPORT_EVERY == 0:
            progress("users", report.n_users, world.n_users)
    for name in live:
        if (only in (None, name)) and not store.events_of(name, 0, upto):
            report.add(None, f"user {name!r}", describe_user(live[name]), describe_user(None))


def list_users(store: Store) -> Iterator[str]:
    after = ""
    while names := store.users(after):
        yield from names
        after = names[-1]


def _check_rewards(world: World, rows: list[Row], report: Report) -> None:
    """Compare each reward with its decision, the reward before it and the log's rule for several rewards."""
    assert world.state.settings is not None
    slots: dict[str, RewardSlot] = {}
    for row in rows:
        body = read_event(row)
        if row.kind == "decision":
            slots.update(open_slots(row, body))
            continue
        if row.kind != "reward":
            continue
        report.n_rewards += 1
        name = slot_of_reward(row.id)
        slot = slots.get(name)
        if slot is None and body.decision <= report.base:
            report.n_late += 1
            continue
        if slot is None or slot.seq != body.decision:
            actual = "no such decision before it" if slot is None else f"event {slot.seq}"
            report.add(row.seq, f"the decision of reward {row.id!r}", f"event {body.decision}", actual)
            continue
        for what, stored, again in _compare_reward(row, body, name, slot, world.state.settings):
            if stored != again:
                report.add(row.seq, what, stored, again)
        slot.apply(body)


def _compare_reward(
    row: Row, body: events.RewardBody, name: str, slot: RewardSlot, settings: events.ServiceBody
) -> Iterator[tuple[str, object, object]]:
    """Yield what is compared, as (name, stored value, recomputed value)."""
    arm, rule = slot.arm, settings.rewards
    yield "the id of a reward", row.id, reward_id(name, slot.n + 1)
    yield "recommender and model", (body.recommender, row.model), (slot.recommender, slot.model)
    stored = (body.propensity, body.x, body.at_random, body.advice)
    yield "propensity, x, at_random and advice", stored, (arm.propensity, arm.x, arm.at_random, arm.advice)
    item = arm.id if body.item is None and arm.mean is None else body.item  # once, rewards did not name their item
    # once, the mean was not held to the range of rewards
    mean = arm.mean if body.mean == arm.mean else bound_mean(arm.mean, settings.reward_range)
    yield "item, effect and mean", (item, body.effect, body.mean), (arm.id, arm.effect, mean)
    yield "the reward before", body.before, slot.reward
    if rule in ("once", "first"):
        yield f"rewards of one decision (rule {rule})", slot.n + 1, 1
    elif rule == "sum":
        yield "a part that was already added to the sum", body.part in (slot.parts or {}), False
        yield "the sum", body.reward, (body.sent or 0.0) + (slot.reward or 0.0)
    elif slot.n:
        yield "an event that repeats the same reward", body.reward == slot.reward, False


def describe_user(packed: bytes | None) -> str:
    """Describe a packed user in one line; None is a user without events."""
    if packed is None:
        return "no such user"
    try:
        user = User.unpack(packed)
    except (msgspec.DecodeError, ValueError) as error:
        return f"unreadable ({error})"
    state = "shared" if user.state is None else " ".join(f"{value:.17g}" for value in user.state[:4])
    return (
        f"{user.recommender}, model {user.model}, {user.n_decisions} decisions, {user.n_rewards} rewards, "
        f"sum {user.reward_sum!r}, settled {user.settled}, as of {user.seq}, state {state}"
    )
