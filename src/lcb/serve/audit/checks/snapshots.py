"""Checks the snapshots of a store against the log, and compares two states that were replayed from one log."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from lcb.progress import Progress
from lcb.serve.audit.checks.users import describe_user
from lcb.serve.audit.report import Report
from lcb.serve.event_ids import user_of_snapshot
from lcb.serve.retain.without_snapshots import WithoutSnapshots
from lcb.serve.state.tally import Tally
from lcb.serve.state.world import World
from lcb.storage.store.base import USER_SNAPSHOTS, Snapshot, Store

_REPORT_EVERY = 500
_COUNTS = ("seq", "n_started", "n_rewarded", "n_events", "started_at_training", "users_per_model", "concentration")


def check_snapshots(
    world: World, store: Store, upto: int, kept: Snapshot | None, report: Report, progress: Progress
) -> None:
    """Compare the service-wide snapshot `kept` and every user's snapshot with `world`, replayed from the log."""
    if kept is not None and kept.seq > upto:
        report.add(None, "the service-wide snapshot", f"of event {kept.seq}", f"the log ends at event {upto}")
    elif kept is not None:
        report.n_snapshots += 1
        other = World(WithoutSnapshots(store, kept))
        try:
            other.load(upto)
        except Exception as error:  # noqa: BLE001 (whatever a damaged snapshot raises is reported)
            report.add(None, "the service-wide snapshot", "in the store", f"cannot be loaded ({error})")
        else:
            for what, stored, again in compare_worlds(other, world):
                report.add(None, f"the service-wide snapshot, {what}", stored, again)
    for one in store.all_snapshots(USER_SNAPSHOTS):
        if not one.name.startswith(USER_SNAPSHOTS):
            break
        report.n_snapshots += 1
        name = user_of_snapshot(one.name)
        user = world.user(name)
        if user is None or user.seq != one.seq:
            user = world.fold.fold(store.events_of(name, 0, one.seq))
        packed = None if user is None else user.pack()
        if packed != one.body:
            report.add(None, f"snapshot {one.name!r}", describe_user(one.body), describe_user(packed))
        if report.n_snapshots % _REPORT_EVERY == 0:
            progress("snapshots", report.n_snapshots, None)
    report.n_damaged = len(store.damaged)


def compare_worlds(one: World, other: World) -> list[tuple[str, object, object]]:
    """List where two states of one log differ, as (name, value, other value)."""
    facts: list[tuple[str, object, object]] = [(name, getattr(one, name), getattr(other, name)) for name in _COUNTS]
    facts += [(name, getattr(one.state, name), getattr(other.state, name)) for name in ("n_features", "active")]
    facts.append(("versions", sorted(one.state.versions), sorted(other.state.versions)))
    facts.append(("catalogue", one.state.catalogue.ids, other.state.catalogue.ids))
    facts.append(("the users of the canary", one.canary.rates, other.canary.rates))
    facts.append(("the sums of items", one.items.sums, other.items.sums))
    for name in {*one.shared.states, *other.shared.states}:
        states = (one.shared.states.get(name), other.shared.states.get(name))
        state, again = (None if array is None else array.tobytes() for array in states)
        facts.append((f"the state of {name}", state, again))
    mixtures = [sha256(each.mixtures.pack()).hexdigest()[:16] for each in (one, other)]
    facts.append(("the mixtures", mixtures[0], mixtures[1]))
    for name in {*one.tallies, *other.tallies}:
        tally, counted = (msgspec.structs.astuple(each.tallies.get(name, Tally()).pack()) for each in (one, other))
        facts.append((f"the tally of {name}", tally, counted))
    return [fact for fact in facts if fact[1] != fact[2]]
