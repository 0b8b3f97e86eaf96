"""Checks at the start of a service that a change of what decides who may sign in, or of a compacted base, would fail.

    base           the rows that a compaction has left have the digest that its event has
    key, compact   each of these events, and the one after it, has the link that follows from the event before it

Everything else is checked by `lcb log verify`: it computes all links, which takes as long as reading the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from lcb.errors import StoreUnavailable
from lcb.serve.base_bodies import CompactBody
from lcb.serve.retain.base import build_changed, compute_base, follows
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Store

_TRIES, _PAUSE = 3, 0.1
_MOST = 10_000  # events of keys, the newest ones


def check_start(store: Store) -> None:
    """Raise StoreError if the base or an event of a key is not what was written."""
    base = read_base(store)
    for left in reversed(range(_TRIES)):  # another compaction may begin meanwhile
        if base is None or has_digest(store, base):
            break
        if not left:
            raise build_changed(store, f"a row up to event {base.upto}")
        time.sleep(_PAUSE)
        base = read_base(store)
    begin = 0 if base is None else base.upto
    seqs = sorted(row.seq for row in store.newest_of_service(("key", "compact"), limit=_MOST) if row.seq > begin)
    for first, last in _join(seqs):
        before, link = begin, None if base is None else base.link
        for row, seal in store.sealed_events(max(first - 2, begin), last + 1):
            known = before == row.seq - 1  # a missing event is told by `check_whole`
            if row.seq >= first and known and not follows(link, row, seal):
                raise build_changed(store, f"event {row.seq} ({row.kind})")
            before, link = row.seq, seal.link


def has_digest(store: Store, base: CompactBody) -> bool:
    """Whether the rows that a compaction has left have the digest that its event has."""
    world = World(store)
    try:
        world.begin_at(base)
        return compute_base(store, base, world)[0] == base.base
    except StoreUnavailable:
        raise
    except Exception as error:  # a damaged base may raise anything
        what = f"the base up to event {base.upto} ({type(error).__name__}: {error})"
        raise build_changed(store, what) from error


def _join(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Join seqs to ranges.

    >>> list(_join([3, 4, 6, 9]))
    [(3, 6), (9, 9)]
    """
    while seqs:
        n = 1
        while n < len(seqs) and seqs[n] <= seqs[n - 1] + 2:
            n += 1
        yield seqs[0], seqs[n - 1]
        seqs = seqs[n:]
