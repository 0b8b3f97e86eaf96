"""Verifies a log: replays it from the start, recomputes every decision and compares bit for bit.

The state of the service is replayed event by event without snapshots.  When the replay has reached the seq that a
decision was made from (`seen`, slightly before its own), the code that made the decision makes it again: the same user
state, catalogue, models, seed and id must give the same arm, propensity, distribution and advice.  Then every reward is
compared with its decision and the log's rule (`check_users`), and every snapshot with the replayed state
(`check_snapshots`).

Erased decisions cannot be recomputed; they are counted.  A log that is being written is verified up to its head at the
start; if a user is erased meanwhile, verification starts again.  Memory grows with users, not with events.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.errors import ModelError
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.audit.check_snapshots import check_snapshots
from lcb.serve.audit.check_users import check_users
from lcb.serve.audit.recompute import check_decision
from lcb.serve.audit.report import Report
from lcb.serve.audit.without_snapshots import WithoutSnapshots
from lcb.serve.event_ids import WORLD_SNAPSHOT
from lcb.serve.state.world import World
from lcb.storage.store.base import Row, Store

_FARTHEST = 200_000  # most events between a decision and the seq it was made from
_MOST_USERS = 1_000_000
_REPORT_EVERY = 500


def verify(
    store: Store, progress: Progress = silent, *, user: str | None = None, live: Mapping[str, bytes] | None = None
) -> Report:
    """Verify a log, or only the decisions of one `user`; `live` are packed users of a service at the log's head."""
    began = time.monotonic()
    while True:
        kept, upto = store.snapshot(WORLD_SNAPSHOT), store.head()
        report = Report(upto)
        world = _replay(store, upto, user, report, progress)
        if world is not None:
            check_users(world, store, upto, user, live or {}, report, progress)
            if user is None:
                check_snapshots(world, store, upto, kept, _MOST_USERS, report, progress)
        report.seconds = time.monotonic() - began
        if not any(row.kind == "erase" for row in store.events(upto)):
            return report


class _Seen(Struct, array_like=True, gc=False):
    """The first fields of a decision's body."""

    at: float
    seen: int


_SEEN = msgspec.msgpack.Decoder(_Seen)


def _replay(store: Store, upto: int, user: str | None, report: Report, progress: Progress) -> World | None:
    """Replay the log and recompute every decision on the way; None if the log cannot be replayed."""
    farthest = _check_order(store, upto, report, progress)
    if farthest is None:
        return None
    log = WithoutSnapshots(store)
    world = World(log, most_users=_MOST_USERS)
    log.world = world
    ahead: deque[tuple[Row, Any]] = deque()
    waiting: dict[int, list[tuple[Row, Any]]] = defaultdict(list)
    for row in store.events(0, upto):
        body = _decode(row, report)
        if body is None:
            return None
        ahead.append((row, body))
        if row.kind == "decision" and user in (None, row.user):
            waiting[body.seen].append((row, body))
        if len(ahead) > farthest and not _apply_next(world, ahead, waiting, report):
            return None
        if row.seq % _REPORT_EVERY == 0:
            progress("recomputing decisions", row.seq, upto)
    while ahead:
        if not _apply_next(world, ahead, waiting, report):
            return None
    for left in waiting.values():
        for row, body in left:
            report.add(row.seq, "seq the decision was made from", body.seen, f"an event before {row.seq}, within reach")
    for seq in sorted(world.erased):
        report.add(seq, "an erased event that no erasure lists", "erased", "listed by a later erasure")
    progress("recomputing decisions", upto, upto)
    return world


def _check_order(store: Store, upto: int, report: Report, progress: Progress) -> int | None:
    """Check that seq has no gaps and ids are unique.

    Returns the largest distance between a decision and the seq it was made from; None if the log has a gap.
    """
    ids, last, farthest = array("q"), 0, 1
    for row in store.events(0, upto):
        if row.seq != last + 1:
            report.add(row.seq, "seq", row.seq, last + 1)
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
            progress("checking the order", last, upto)
    report.n_events = last
    if last != upto:
        report.add(last, "the last event", last, upto)
        return None
    _check_unique(store, upto, np.frombuffer(ids, np.int64), report)
    return farthest


def _check_unique(store: Store, upto: int, hashes: Any, report: Report) -> None:
    ordered = np.sort(hashes)
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    known: dict[str, int] = {}
    for row in store.events(0, upto):
        if hash(row.id) in repeated:
            if row.id in known:
                report.add(row.seq, f"the id {row.id!r}", f"also the id of event {known[row.id]}", "a unique id")
            known[row.id] = row.seq


def _decode(row: Row, report: Report) -> Any:
    try:
        return events.decode(row.kind, row.body)
    except (msgspec.DecodeError, KeyError) as error:
        report.add(row.seq, f"the body of a {row.kind}", f"unreadable ({error})", "a readable body")
        return None


def _apply_next(
    world: World, ahead: deque[tuple[Row, Any]], waiting: dict[int, list[tuple[Row, Any]]], report: Report
) -> bool:
    """Recompute the decisions that were made from this state, then apply the next event."""
    for decision, decision_body in waiting.pop(world.seq, ()):
        check_decision(world, decision, decision_body, report)
    row, body = ahead.popleft()
    if row.kind == "erase":
        for seq, *_ in body.history:
            if seq not in world.erased:
                report.add(row.seq, f"event {seq}, which it erases", "present", "erased")
    report.n_erased += row.kind == "erased decision"
    try:
        world.apply(row, body)
    except Exception as error:  # noqa: BLE001 (whatever a damaged log raises is reported)
        report.add(row.seq, f"a {row.kind}", "in the log", f"cannot be applied ({type(error).__name__}: {error})")
        return False
    if row.kind == "model":
        report.n_models += 1
        try:
            world.state.versions[body.version].models()
        except ModelError as error:
            report.add(row.seq, f"model version {body.version}", "damaged", error)
    return True
