"""Checks the order of a log's events: seq without gaps, unique ids, and the chain (lcb.storage.store.chain)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.errors import UnreadableEvent
from lcb.progress import Progress
from lcb.serve.audit.report import Report
from lcb.serve.log.check_whole import begins_with_chain
from lcb.serve.read_event import read_event
from lcb.storage.store.base import LAST, Head, Row, Seal, Store
from lcb.storage.store.chain import compute_digest, compute_link, digest_rewrite
from lcb.storage.store.retention import OF_USERS

_FARTHEST = 200_000  # most events between a decision and the seq it was made from
_REPORT_EVERY = 500


class _Seen(Struct, array_like=True, gc=False):
    """The first fields of a decision's body."""

    at: float
    seen: int


_BYTES = (bytes, type(None))
_ALLOWED = ((int,), (str,), (str,), (str, type(None)), (int, type(None)), (bytes,), _BYTES, _BYTES, _BYTES)
_TYPES: set[tuple[type, ...]] = set()  # of the columns of events, as they were met and are allowed
_SEEN = msgspec.msgpack.Decoder(_Seen)


def check_order(
    store: Store,
    upto: int,
    heads: Sequence[Head],
    report: Report,
    progress: Progress,
    after: Head = Head(0, None),  # noqa: B008 (never changed)
) -> int | None:
    """Check that seq has no gaps, ids are unique, the links are right, and the log had these `heads`.

    `after` is the head before a part of a log; none of `heads` is before it.  Returns the largest distance between a
    decision and the seq it was made from; None if the log has a gap.
    """
    ids, last, farthest = array("q"), after.seq, 1
    chain = _Chain(heads, report, after)
    try:
        for row in store.events(-LAST, 0):
            report.add_words(row.seq, f"added: an event with the number {row.seq}, which no service reads; remove it")
        for row, seal in _read_typed(store, after.seq, upto):
            if row.seq != last + 1:
                report.add_words(last + 1, _describe_gap(last, row.seq))
                report.n_events = last - after.seq
                return None
            last = row.seq
            chain.check(row, seal)
            ids.append(hash(row.id))
            farthest = max(farthest, _find_distance(row))
            if last % _REPORT_EVERY == 0:
                progress("checking the order", last, upto)
    except UnreadableEvent as error:
        report.add_words(error.seq, f"this event cannot be read ({error.reason}); nothing after it was checked")
        report.n_events = last - after.seq
        return None
    report.n_events = last - after.seq
    chain.end(last)
    check_head(store, Head(last, chain.link), report)
    if last != upto:
        report.add(last, "the last event", last, upto)
        return None
    _check_unique(store, after.seq, upto, np.frombuffer(ids, np.int64), report)
    return farthest


def check_head(store: Store, last: Head, report: Report) -> None:
    """Compare the head that a store keeps with the last event, unless there is a newer one."""
    if last.link and (head := store.chain_head()).seq == last.seq and head.link != last.link:
        report.add_words(last.seq, "the head of the log has another link than its last event: its table was changed")


def _read_typed(store: Store, after: int, upto: int) -> Iterator[tuple[Row, Seal]]:
    """Yield events; UnreadableEvent if a column has a value of a type that lcb does not write (no strict table)."""
    for row, seal in store.sealed_events(after, upto):
        types = tuple(map(type, (*row, *seal)))
        if types not in _TYPES:
            names = (*Row._fields, *Seal._fields)
            wrong = [name for name, one, its in zip(names, types, _ALLOWED, strict=True) if one not in its]
            if wrong:
                raise UnreadableEvent(row.seq, f"its {wrong[0]} is of another type than lcb writes")
            _TYPES.add(types)
        yield row, seal


def _find_distance(row: Row) -> int:
    """Return how far before a decision the seq is that it was made from; 1 for other events."""
    if row.kind != "decision":
        return 1
    try:
        seen = _SEEN.decode(row.body).seen
    except msgspec.DecodeError:
        return 1
    return row.seq - seen if 0 <= seen < row.seq and row.seq - seen <= _FARTHEST else 1


def _describe_gap(last: int, found: int) -> str:
    if last == 0:
        remedy = "to check a part of a log, give the head before it (lcb log verify --after)"
        return f"missing: the log begins with event {found}; {remedy}"
    return f"missing: event {last} is followed by event {found}; nothing after event {last} was checked"


class _Chain:
    """Follows the links from event to event; after a wrong link it goes on from the stored one."""

    def __init__(self, heads: Sequence[Head], report: Report, after: Head) -> None:
        self.report, self.after = report, after.seq
        self.link = after.link
        report.chain_start = after.seq + 1 if after.link else None
        self.heads: dict[int, list[Head]] = {}
        for head in heads:
            self.heads.setdefault(head.seq, []).append(head)
        self.agreed = 0  # seq of the last of `heads` that the log has
        self.left: dict[int, bytes] = {}  # seq -> digest of an erased event that no erasure has listed yet
        self._check_heads(after)

    def check(self, row: Row, seal: Seal) -> None:
        report, before, self.link = self.report, self.link, seal.link
        if row.kind in OF_USERS and before is not None and row.seq not in self.heads:  # nearly all events
            salt, digest, link = seal
            if digest is None and salt is not None and compute_link(before, row.seq, compute_digest(salt, row)) == link:
                return
        if row.kind not in OF_USERS:
            self._check_service(row)
        if row.seq == 1 and begins_with_chain(row):
            report.chain_start = 1
        if seal.link is None:
            if report.chain_start is not None:
                report.add(row.seq, "link", "none", f"a link, because the chain begins at event {report.chain_start}")
        else:
            report.chain_start = report.chain_start or row.seq
            if seal.salt is not None:
                digest = compute_digest(seal.salt, row)
                if seal.digest is not None:
                    report.add(row.seq, "digest", seal.digest.hex(), "none, because the event has a salt")
            elif seal.digest is not None and row.kind.startswith("erased "):
                digest = seal.digest
            else:
                report.add(row.seq, "salt", "none", "a salt, because the event is not erased")
                return
            if (link := compute_link(before, row.seq, digest)) != seal.link:
                links = f"the chain has the link {seal.link.hex()[:16]}..., the event gives {link.hex()[:16]}..."
                report.add_words(row.seq, f"this {row.kind} is not what was written at this place ({links})")
        self._check_heads(Head(row.seq, seal.link))

    def _check_heads(self, found: Head) -> None:
        """Compare the given heads of an event with what the log has there."""
        for head in self.heads.pop(found.seq, ()):
            if found.link == head.link:
                self.agreed = head.seq
            else:
                since = f"{head.link.hex() if head.link else 'none'}; an event after {self.agreed} is not what it was"
                self.report.add(head.seq, "the given head", found.link.hex() if found.link else "none", since)

    def _check_service(self, row: Row) -> None:
        """Look for a user or a model in an event that has none: one of the service, or an erased one."""
        for column, value in (("user", row.user), ("model", row.model)):
            if value is not None:
                why = "is erased" if row.kind.startswith("erased ") else "is none of a user"
                self.report.add(row.seq, column, value, f"none, because the event {why}")
        if row.kind.startswith("erase"):
            self._check_erased(row)

    def _check_erased(self, row: Row) -> None:
        """Compare what is left of erased events with the digests in their `erase` event."""
        if row.kind != "erase":
            self.left[row.seq] = digest_rewrite(row)
            return
        try:
            body = read_event(row)
        except UnreadableEvent:  # reported when the event is replayed
            return
        for (seq, *_), digest in zip(body.history, body.left or (), strict=False):
            if seq > self.after and (stored := self.left.pop(seq, None)) != digest:
                stored_hex = "none" if stored is None else stored.hex()
                self.report.add(seq, f"what erasure {row.seq} left of it", stored_hex, digest.hex())

    def end(self, last: int) -> None:
        self.report.head = str(Head(last, self.link))
        for seq in self.heads:
            self.report.add(last, "the last event", last, f"at least {seq}, which the given head is of")


def _check_unique(store: Store, after: int, upto: int, hashes: Any, report: Report) -> None:
    ordered = np.sort(hashes)
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    known: dict[str, int] = {}
    for row in store.events(after, upto):
        if hash(row.id) in repeated:
            if row.id in known:
                report.add(row.seq, f"the id {row.id!r}", f"also the id of event {known[row.id]}", "a unique id")
            known[row.id] = row.seq
