"""The log is the truth: fold it from nothing, make every decision again, compare bit for bit.

One sweep over the log.  The world is folded event by event without any snapshot; a decision is made again when the
fold has come to what the decision was made from (`seen`, a little before its own place), by the code that made it:
the same user state, catalogue, models, seed and id must give the same arm, propensity, distribution and advice.  Then
every reward is held against its decision and the rule of the log, and every snapshot against the fold.

Erased decisions cannot be made again; they are counted.  A log that is being written is verified up to where it was
when the verification began, once more from the start where a person is erased meanwhile.  Memory grows with users.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.errors import ModelError
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.audit.recompute import check_decision
from lcb.serve.audit.report import Report
from lcb.serve.event_ids import WORLD_SNAPSHOT, reward_id, slot_of_reward, user_of_snapshot
from lcb.serve.state.reward_slots import RewardSlot, open_slots
from lcb.serve.state.users import Tally, User
from lcb.serve.state.world import World
from lcb.storage.store.base import USER_SNAPSHOTS, Row, Snapshot, Store

_FARTHEST = 200_000  # events between what a decision was made from and its place
_MOST_USERS = 1_000_000
_REPORT_EVERY = 500
_CLOSE = 1e-9


def verify(
    store: Store, progress: Progress = silent, *, user: str | None = None, live: Mapping[str, bytes] | None = None
) -> Report:
    """Verify a log; `user` limits it to the decisions of one, `live` are packed users of a service at its head."""
    began = time.monotonic()
    while True:
        kept, upto = store.snapshot(WORLD_SNAPSHOT), store.head()
        report = Report(upto)
        world = _sweep(store, upto, user, report, progress)
        if world is not None:
            _check_users(world, store, upto, user, live or {}, report, progress)
            if user is None:
                _check_snapshots(world, store, upto, kept, report, progress)
        report.seconds = time.monotonic() - began
        if not any(row.kind == "erase" for row in store.events(upto)):
            return report


# The sweep


class _Seen(Struct, array_like=True, gc=False):
    """The beginning of a decision's body."""

    at: float
    seen: int


_SEEN = msgspec.msgpack.Decoder(_Seen)


class _LogOnly:
    """A store that has no snapshots of users, and of everything only those that are given."""

    def __init__(self, store: Store, kept: Snapshot | None = None) -> None:
        self._store, self._kept = store, kept
        self.world: World | None = None  # whose users are all at hand

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, name: str) -> Snapshot | None:
        return self._kept if name == WORLD_SNAPSHOT else None

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]:
        return [] if self._is_new(user) else self._store.events_of(user, after, upto)

    def newest_of(self, user: str) -> int:
        return 0 if self._is_new(user) else self._store.newest_of(user)

    def _is_new(self, user: str) -> bool:
        world = self.world
        return world is not None and not world.cache.can_get(user)


def _sweep(store: Store, upto: int, user: str | None, report: Report, progress: Progress) -> World | None:
    """The fold of the log, every decision made again on the way; None where it cannot be folded."""
    farthest = _first_look(store, upto, report, progress)
    if farthest is None:
        return None
    log = _LogOnly(store)
    world = World(log, most_users=_MOST_USERS)
    log.world = world
    ahead: deque[tuple[Row, Any]] = deque()
    waiting: dict[int, list[tuple[Row, Any]]] = defaultdict(list)
    for row in store.events(0, upto):
        body = _decoded(row, report)
        if body is None:
            return None
        ahead.append((row, body))
        if row.kind == "decision" and user in (None, row.user):
            waiting[body.seen].append((row, body))
        if len(ahead) > farthest and not _go_on(world, ahead, waiting, report):
            return None
        if row.seq % _REPORT_EVERY == 0:
            progress("decisions made again", row.seq, upto)
    while ahead:
        if not _go_on(world, ahead, waiting, report):
            return None
    for left in waiting.values():
        for row, body in left:
            report.differs(row.seq, "made from the log up to", body.seen, f"before {row.seq}, not so far")
    for seq in sorted(world.erased):
        report.differs(seq, "an erased event that no erasure names", "erased", "an erasure after it")
    progress("decisions made again", upto, upto)
    return world


def _first_look(store: Store, upto: int, report: Report, progress: Progress) -> int | None:
    """Whether the log has no gap and no id twice; the most events between what a decision was made from and itself."""
    ids, last, farthest = array("q"), 0, 1
    for row in store.events(0, upto):
        if row.seq != last + 1:
            report.differs(row.seq, "the place in the log", row.seq, last + 1)
            return None
        last = row.seq
        ids.append(hash(row.id))
        if row.kind == "decision":
            try:
                seen = _SEEN.decode(row.body).seen
            except msgspec.DecodeError:
                seen = row.seq - 1
            if 0 <= seen < row.seq and row.seq - seen <= _FARTHEST:
                farthest = max(farthest, row.seq - seen)
        if last % _REPORT_EVERY == 0:
            progress("first look", last, upto)
    report.n_events = last
    if last != upto:
        report.differs(last, "the last event", last, upto)
        return None
    _check_twice(store, upto, np.frombuffer(ids, np.int64), report)
    return farthest


def _check_twice(store: Store, upto: int, hashes: Any, report: Report) -> None:
    ordered = np.sort(hashes)
    twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not twice:
        return
    known: dict[str, int] = {}
    for row in store.events(0, upto):
        if hash(row.id) in twice:
            if row.id in known:
                report.differs(row.seq, f"the id {row.id!r}", f"also of event {known[row.id]}", "an id of its own")
            known[row.id] = row.seq


def _decoded(row: Row, report: Report) -> Any:
    try:
        return events.decode(row.kind, row.body)
    except (msgspec.DecodeError, KeyError) as error:
        report.differs(row.seq, f"the record of a {row.kind}", f"unreadable ({error})", "a record")
        return None


def _go_on(
    world: World, ahead: deque[tuple[Row, Any]], waiting: dict[int, list[tuple[Row, Any]]], report: Report
) -> bool:
    """Make the decisions again that were made from here, then apply the next event."""
    for made, of in waiting.pop(world.seq, ()):
        check_decision(world, made, of, report)
    row, body = ahead.popleft()
    if row.kind == "erase":
        for seq, *_ in body.history:
            if seq not in world.erased:
                report.differs(row.seq, f"event {seq}, which it erased", "there", "erased")
    report.n_erased += row.kind == "erased decision"
    try:
        world.apply(row, body)
    except Exception as error:  # noqa: BLE001 (whatever a damaged log raises is what is to be told)
        report.differs(row.seq, f"a {row.kind}", "in the log", f"cannot be applied ({type(error).__name__}: {error})")
        return False
    if row.kind == "model":
        report.n_models += 1
        try:
            world.state.versions[body.version].models()
        except ModelError as error:
            report.differs(row.seq, f"model version {body.version}", "damaged", error)
    return True


# Users and their rewards


def _check_users(
    world: World, store: Store, upto: int, only: str | None, live: Mapping[str, bytes], report: Report,
    progress: Progress,
) -> None:  # fmt: skip
    for name in [only] if only is not None else _all_users(store):
        rows = store.events_of(name, 0, upto)
        if not rows:
            continue
        report.n_users += 1
        _check_rewards(world, rows, report)
        user = world.user(name)
        if name in live and (user is None or user.pack() != live[name]):
            report.differs(None, f"user {name!r}", _told(live[name]), "nobody" if user is None else _told(user.pack()))
        if report.n_users % _REPORT_EVERY == 0:
            progress("users", report.n_users, world.n_started)
    for name in live:
        if (only in (None, name)) and not store.events_of(name, 0, upto):
            report.differs(None, f"user {name!r}", _told(live[name]), "nobody")


def _all_users(store: Store) -> Iterator[str]:
    after = ""
    while names := store.users(after):
        yield from names
        after = names[-1]


def _check_rewards(world: World, rows: list[Row], report: Report) -> None:
    """Each reward against its decision, what counted before it and the rule of the log."""
    assert world.state.settings is not None
    slots: dict[str, RewardSlot] = {}
    for row in rows:
        body = events.decode(row.kind, row.body)
        if row.kind == "decision":
            slots.update(open_slots(row, body))
            continue
        report.n_rewards += 1
        name = slot_of_reward(row.id)
        slot = slots.get(name)
        if slot is None or slot.seq != body.decision:
            came = "none before it" if slot is None else f"event {slot.seq}"
            report.differs(row.seq, f"the decision of reward {row.id!r}", f"event {body.decision}", came)
            continue
        for what, stored, again in _reward_facts(row, body, name, slot, world.state.settings.rewards):
            if stored != again:
                report.differs(row.seq, what, stored, again)
        slot.apply(body)


def _reward_facts(
    row: Row, body: events.RewardBody, name: str, slot: RewardSlot, rule: str
) -> Iterator[tuple[str, object, object]]:
    arm = slot.arm
    yield "the id of a reward", row.id, reward_id(name, slot.n + 1)
    yield "recommender and model", (body.recommender, row.model), (slot.recommender, slot.model)
    yield (
        "what the decision says", (body.propensity, body.x, body.at_random, body.advice),
        (arm.propensity, arm.x, arm.at_random, arm.advice),
    )  # fmt: skip
    yield "the reward before", body.before, slot.reward
    if rule in ("once", "first"):
        yield f"rewards of one decision (rule {rule})", slot.n + 1, 1
    elif rule == "sum":
        yield "a part of the sum that is there already", body.part in (slot.parts or {}), False
        yield "the sum", body.reward, (body.sent or 0.0) + (slot.reward or 0.0)
    elif slot.n:
        yield "a reward that changes nothing", body.reward == slot.reward, False


# Snapshots


def _check_snapshots(
    world: World, store: Store, upto: int, kept: Snapshot | None, report: Report, progress: Progress
) -> None:
    if kept is not None:
        report.n_snapshots += 1
        other = World(_LogOnly(store, kept), most_users=_MOST_USERS)
        try:
            other.load(upto)
        except Exception as error:  # noqa: BLE001 (whatever a damaged snapshot raises is what is to be told)
            report.differs(None, "the snapshot of everything", "in the store", f"cannot be used ({error})")
        else:
            for what, stored, again in world_differences(other, world):
                report.differs(None, f"the snapshot of everything, {what}", stored, again)
    for one in _user_snapshots(store):
        report.n_snapshots += 1
        name = user_of_snapshot(one.name)
        user = world.user(name)
        if user is None or user.seq != one.seq:
            user = world.fold.fold(store.events_of(name, 0, one.seq))
        if user is None or user.pack() != one.body:
            report.differs(
                None, f"snapshot {one.name!r}", _told(one.body), "nobody" if user is None else _told(user.pack())
            )
        if report.n_snapshots % _REPORT_EVERY == 0:
            progress("snapshots", report.n_snapshots, None)


def _user_snapshots(store: Store) -> Iterator[Snapshot]:
    after = USER_SNAPSHOTS
    while found := store.all_snapshots(after):
        yield from (one for one in found if one.name.startswith(USER_SNAPSHOTS))
        after = found[-1].name


def world_differences(one: World, other: World) -> list[tuple[str, object, object]]:
    """Where two folds of the same log are not the same; sums of numbers may differ in the last digits."""
    facts: list[tuple[str, object, object]] = [
        (name, getattr(one, name), getattr(other, name))
        for name in (
            "seq",
            "n_started",
            "n_rewarded",
            "n_events",
            "started_at_training",
            "users_per_model",
            "concentration",
        )
    ]
    facts += [(name, getattr(one.state, name), getattr(other.state, name)) for name in ("n_features", "active")]
    facts.append(("versions", sorted(one.state.versions), sorted(other.state.versions)))
    facts.append(("catalogue", one.state.catalogue.ids, other.state.catalogue.ids))
    for name in {*one.shared.states, *other.shared.states}:
        state, again = one.shared.states.get(name), other.shared.states.get(name)
        facts.append(
            (f"the state of {name}", state if state is None else state.tobytes(),
             again if again is None else again.tobytes())
        )  # fmt: skip
    for name in {*one.tallies, *other.tallies}:
        tally = msgspec.structs.astuple(one.tallies.get(name, Tally()))
        counted = msgspec.structs.astuple(other.tallies.get(name, Tally()))
        if not np.allclose(tally, counted, rtol=_CLOSE, atol=_CLOSE):
            facts.append((f"the tally of {name}", tally, counted))
    return [fact for fact in facts if fact[1] != fact[2]]


def _told(packed: bytes) -> str:
    try:
        user = User.unpack(packed)
    except (msgspec.DecodeError, ValueError) as error:
        return f"unreadable ({error})"
    state = "shared" if user.state is None else " ".join(f"{value:.17g}" for value in user.state[:4])
    return (
        f"{user.recommender}, model {user.model}, {user.n_decisions} decisions, {user.n_rewards} rewards, "
        f"sum {user.reward_sum!r}, settled {user.settled}, as of {user.seq}, state {state}"
    )
