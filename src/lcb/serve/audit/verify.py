"""Verifies a log: replays it from the start, recomputes every decision and compares bit for bit.

First the order of the events and their chain are checked (`check_order`).  Then the state of the service is replayed
event by event without snapshots.  When the replay has reached the seq that a
decision was made from (`seen`, slightly before its own), the code that made the decision makes it again: the same user
state, catalogue, models, seed and id must give the same arm, propensity, distribution and advice.  Then every reward is
compared with its decision and the log's rule (`check_users`), and every snapshot with the replayed state
(`check_snapshots`).  Last, the table of keys is compared with the events of keys, the schema
with what the migrations make, and the indexes with the table.

A log that was compacted is replayed from its base (`check_base`), or with its archive from its first event.

Erased decisions cannot be recomputed; they are counted.  A log that is being written is verified up to its head at the
start; if a user is erased meanwhile, verification starts again.  Memory grows with users, not with events; to verify
the decisions of one user, only some of the others are in memory.
"""

from __future__ import annotations

import time
import weakref
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lcb.errors import ModelError, StoreUnavailable, UnreadableEvent
from lcb.progress import Progress, silent
from lcb.serve.audit.checks.base import CompactionCheck, check_base
from lcb.serve.audit.checks.decisions import check_canary, check_decision
from lcb.serve.audit.checks.heads import check_old_heads, split_heads
from lcb.serve.audit.checks.order import check_order
from lcb.serve.audit.checks.snapshots import check_snapshots
from lcb.serve.audit.checks.users import check_users
from lcb.serve.audit.report import Report
from lcb.serve.base_bodies import CompactBody
from lcb.serve.event_ids import WORLD_SNAPSHOT
from lcb.serve.log.key_events import check_keys
from lcb.serve.read_event import read_event
from lcb.serve.retain.ids import check_ids
from lcb.serve.retain.without_snapshots import WithoutSnapshots
from lcb.serve.state.per_user.cache_on_disk import CacheOnDisk
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import LAST, VOIDING, Head, Row, Store

CACHED_BYTES: int | None = 4_000_000  # of users in memory, when the decisions of one user are verified
_REPORT_EVERY = 500


def verify(
    store: Store,
    progress: Progress = silent,
    *,
    user: str | None = None,
    heads: Sequence[Head] = (),
    after: Head | None = None,
    live: Mapping[str, bytes] | None = None,
    whole: bool = False,
    archive: Path | None = None,
    log_alone: bool = False,
) -> Report:
    """Verify a log, or of its decisions only those of one `user`.

    `log_alone` leaves out what is compared with the log: snapshots, keys, ids, schema and indexes.

    A log that was compacted begins at its base, unless `whole` says that its archived events are there again.
    `heads` are heads that the log had earlier; those before the base are checked in the folder `archive`.  `live` are
    packed users of a service at the log's head.  With `after`, the head before it, a part of a log is verified: only
    order and chain, because its decisions rest on earlier events.
    """
    began = time.monotonic()
    if after is not None:
        report = Report(store.head(), after=after.seq)
        _check_before(store, after, report)
        known, old = split_heads(heads, after.seq)
        report.unchecked_heads += [f"{head}: it is before the head given by --after; leave out --after" for head in old]
        check_order(store, report.upto, known, report, progress, after)
        report.seconds = time.monotonic() - began
        return report
    while True:
        kept, upto = store.snapshot(WORLD_SNAPSHOT), store.head()
        base = None if whole else read_base(store)
        report = Report(upto, base=0 if base is None else base.upto)
        known, old = split_heads(heads, report.base)
        if base is not None:
            made = store.newest_of_service(("compact",), limit=1)[0].seq
            report.n_older_heads = sum(head.seq < made for head in heads)
        if base is not None and old:
            check_old_heads(store, base, old, archive, report, progress)
        with CacheOnDisk(None if user is None else CACHED_BYTES) as cache:
            world = _replay(store, upto, user, known, report, progress, base, cache)
            if world is not None:
                check_users(world, store, upto, user, live or {}, report, progress)
                if not log_alone:
                    check_snapshots(world, store, upto, kept, report, progress)
        if not log_alone:
            _check_keys(store, report)
            check_file(store, report)
            if base is None and not whole and (words := check_ids(store)):
                report.add_words(None, words)
        report.seconds = time.monotonic() - began
        if not any(row.kind in VOIDING for row in store.events(upto)):
            return report


def _check_before(store: Store, after: Head, report: Report) -> None:
    """Check that the event of a head is the one of the log, if the log still has it; note events that go unchecked."""
    first = next(iter(store.events(-LAST, after.seq)), None)
    report.unchecked_from = None if first is None else first.seq
    for row, seal in store.sealed_events(after.seq - 1, after.seq):
        if seal.link != after.link:
            stored, wanted = (None if one is None else one.hex() for one in (seal.link, after.link))
            report.add(row.seq, "the head given by --after", stored, wanted)


def check_file(store: Store, report: Report) -> None:
    """Check the schema, and that the indexes have every event of the table: all reads but the replay's go by them."""
    for words in store.find_changes_of_schema():
        report.add_words(None, f"the schema is not as lcb made it: {words}")
    for seq, words in store.find_damage():
        report.add_words(seq, f"the file is damaged: {words}")


def _check_keys(store: Store, report: Report) -> None:
    try:
        checked = check_keys(store)
    except UnreadableEvent:  # the replay has named the event
        report.add_words(None, "the table of keys was not compared with the log: an event of a key cannot be read")
        return
    if checked is not None:
        report.n_keys = sum(key.revoked is None for key in checked.keys)
        for words in checked.problems.values():
            report.add_words(None, words)


def _replay(
    store: Store,
    upto: int,
    user: str | None,
    heads: Sequence[Head],
    report: Report,
    progress: Progress,
    base: CompactBody | None,
    cache: CacheOnDisk,
) -> World | None:
    """Replay the log and recompute every decision on the way; None if the log cannot be replayed."""
    after = Head(0, None) if base is None else Head(base.upto, base.link)
    farthest = check_order(store, upto, heads, report, progress, after)
    if farthest is None:
        return None
    log = WithoutSnapshots(store, base=after.seq)
    world = World(log, cache=cache)
    log.world = weakref.proxy(world)  # in no cycle: the state is freed at once, not when cycles are collected
    check = None if base is not None else CompactionCheck(store, report)
    if check is not None and not check.ends:  # never compacted
        check = None
    if base is not None and not check_base(world, store, base, report):
        return None
    ahead: deque[tuple[Row, Any]] = deque()
    waiting: dict[int, list[tuple[Row, Any]]] = defaultdict(list)
    for row in store.events(after.seq, upto):
        body = _decode(row, report)
        if body is None:
            return None
        ahead.append((row, body))
        if row.kind == "decision" and user in (None, row.user):
            if body.seen >= after.seq:
                waiting[body.seen].append((row, body))
            else:
                report.n_across += 1
        if len(ahead) > farthest and not _apply_next(world, ahead, waiting, report, check):
            return None
        if row.seq % _REPORT_EVERY == 0:
            progress("recomputing decisions", row.seq, upto)
    while ahead:
        if not _apply_next(world, ahead, waiting, report, check):
            return None
    try:
        world.release()
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a damaged log raises is reported)
        report.add_words(None, f"a user cannot be folded ({type(error).__name__}: {error})")
        return None
    for left in waiting.values():
        for row, body in left:
            report.add(row.seq, "seq the decision was made from", body.seen, f"an event before {row.seq}, within reach")
    for seq in sorted(world.erased):
        report.add(seq, "an erased event that no erasure lists", "erased", "listed by a later erasure")
    progress("recomputing decisions", upto, upto)
    return world


def _find_obstacle(world: World, row: Row, body: Any) -> str | None:
    """Return in words why a decision or reward cannot follow the events before it; None if it can."""
    if row.kind not in ("decision", "reward", "leave"):
        return None
    if row.user is None:
        return "it has no user"
    if body.recommender not in world.state.recommenders:
        return f"the log has no recommender {body.recommender!r}"
    if row.kind != "decision" and row.user not in world.late.names and world.user(row.user) is None:
        return f"its user {row.user!r} has no decision"
    return None


def _decode(row: Row, report: Report) -> Any:
    try:
        return read_event(row)
    except UnreadableEvent as error:
        report.add(row.seq, f"the body of a {row.kind}", f"unreadable ({error.reason})", "a readable body")
        return None


def _apply_next(
    world: World,
    ahead: deque[tuple[Row, Any]],
    waiting: dict[int, list[tuple[Row, Any]]],
    report: Report,
    check: CompactionCheck | None,
) -> bool:
    """Recompute the decisions that were made from this state, then apply the next event."""
    for decision, decision_body in waiting.pop(world.seq, ()):
        check_decision(world, decision, decision_body, report)
    row, body = ahead.popleft()
    if row.kind == "erase":
        for seq, *_ in body.history:
            if seq not in world.erased and seq > report.base:
                report.add(row.seq, f"event {seq}, which it erases", "present", "erased")
    report.n_erased += row.kind == "erased decision"
    if row.kind == "canary":
        check_canary(world, row, body, report)
    obstacle = _find_obstacle(world, row, body)
    try:
        if check is not None:
            check.see(world, row, body)
        if obstacle is None:
            world.late.replay(row, body)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a damaged log raises is reported)
        obstacle = f"it cannot be applied ({type(error).__name__}: {error})"
    if obstacle is not None:
        report.add_words(row.seq, f"this {row.kind} does not fit the events before it: {obstacle}; replay ends here")
        return False
    if row.kind == "model":
        report.n_models += 1
        try:
            world.state.versions[body.version].models()
        except ModelError as error:
            report.add(row.seq, f"model version {body.version}", "damaged", error)
    return True
