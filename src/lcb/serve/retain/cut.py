"""Where a log can be cut: after an old event, and where as few decisions as possible rest on what comes before."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from lcb.errors import UnreadableEvent
from lcb.progress import Progress
from lcb.storage.store.base import Row, Store

_REACH = 5000  # events before and after the newest old one that are looked at
_EVERY = 5000


class _At(Struct, array_like=True, gc=False):
    """The first field of most bodies."""

    at: float


class _Decision(Struct, array_like=True, gc=False):
    at: float
    seen: int


_AT, _DECISION = msgspec.msgpack.Decoder(_At), msgspec.msgpack.Decoder(_Decision)


class Cut(NamedTuple):
    """`upto` is the last event that can go; `n_ahead` counts the events met on the way whose time was not come yet."""

    upto: int
    n_ahead: int


def find_newest(store: Store, now: float) -> float | None:
    """Return the time of the newest event of a user that is not in the future, of the last events; None without one.

    Commands write events by their own clock, a compaction among them, so these tell nothing about it.
    """
    head = store.head()
    times = (_read_time(row.body) for row in store.events(max(0, head - _EVERY), head) if row.user is not None)
    return max((at for at in times if at is not None and at <= now), default=None)


def find_cut(store: Store, after: int, until: float, progress: Progress, now: float = math.inf) -> Cut:
    """Find the event up to which the log after `after` can be compacted; `after` itself: nowhere.

    Only events before the first one that is not older than `until` can go.  A time later than `now` was written by a
    clock that was ahead: it says nothing, and its event goes if an old one follows.  Several decisions are often made
    from one state: where that lies before the cut, only the archive can tell whether they are right.  Of the last
    possible places, the one with the fewest such decisions is taken.
    """
    head, last, ended, n_ahead = store.head(), after, False, 0
    seqs, seens = list[int](), list[int]()  # of the decisions since `_REACH` before the cut
    for row in store.events(after, head):
        at = _read_time(row.body)
        if at is not None and at > now:
            at, n_ahead = None, n_ahead + 1
        ended = ended or (at is not None and at >= until)
        if ended and row.seq > last + _REACH:
            break
        if at is not None and not ended:
            last = row.seq
        if row.kind == "decision":
            seqs.append(row.seq)
            seens.append(_read_seen(row))
            if len(seqs) > 4 * _REACH and row.seq <= last + _REACH:
                del seqs[: 2 * _REACH], seens[: 2 * _REACH]
        if row.seq % _EVERY == 0:
            progress("looking for old events", row.seq - after, head - after)
    return Cut(_choose(after, last, seqs, seens), n_ahead)


def _read_seen(row: Row) -> int:
    """Return the seq that a decision was made from; the rest of its body, which is most of it, is not read."""
    try:
        return _DECISION.decode(row.body).seen
    except msgspec.DecodeError as error:
        raise UnreadableEvent(row.seq, f"the body of this decision: {error}") from None


def _read_time(body: bytes) -> float | None:
    """Return when an event was written; what is left of an erased one has no time."""
    try:
        return _AT.decode(body).at
    except msgspec.DecodeError:
        return None


def _choose(after: int, last: int, seqs: list[int], seens: list[int]) -> int:
    """Return the latest of the places within reach with the fewest decisions after it that were made from before it."""
    first = max(after + 1, last - _REACH)
    if last < first:
        return after
    n_across = np.zeros(last - first + 2, np.int64)  # by place: decisions with seen < place < seq
    for seq, seen in zip(seqs, seens, strict=True):
        low, high = max(seen + 1, first), min(seq - 1, last)
        if low <= high:
            n_across[low - first] += 1
            n_across[high - first + 1] -= 1
    across = np.cumsum(n_across)[: last - first + 1]
    return last - int(np.argmin(across[::-1]))
