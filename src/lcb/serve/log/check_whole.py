"""A cheap look at a log before it is served; `lcb log verify` looks at everything.

The start reads only the events after the newest snapshot, so it would not meet an event that is missing before it.
"""

from __future__ import annotations

from lcb.errors import StoreError, UnreadableEvent
from lcb.serve.read_event import read_event
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Row, Seal, Store
from lcb.storage.store.chain import compute_digest, compute_link

_LAST = 200  # events whose links are computed again


def check_whole(store: Store) -> None:
    """Refuse a log in which events are missing; write a line about a chain that is broken near its end.

    If somebody removes or adds an event and numbers those after it anew, all later links are wrong, the last ones too.
    """
    head, base = store.head(), read_base(store)
    begin, words = (0, "") if base is None else (base.upto, f" after event {base.upto}, which the log begins with")
    if (n := store.count_events(head, begin)) != head - begin:
        missing = head - begin - n
        what = f"{missing} are missing" if missing > 0 else f"{-missing} more than it can have"
        raise StoreError(
            f"{store.url} ends with event {head}, but has {n} events{words}: {what}; restore it from a backup "
            f"(lcb log verify names the first that is {'missing' if missing > 0 else 'not in its place'})"
        )
    first, link = max(head - _LAST, begin), None
    has_chain = any(_has_link(row, seal) for row, seal in store.sealed_events(0, min(head, 1)))
    for row, seal in store.sealed_events(first, head):
        digest = seal.digest if seal.salt is None else compute_digest(seal.salt, row)
        if seal.link is None:
            broken = has_chain
        else:
            broken = digest is None or (link is not None and compute_link(link, row.seq, digest) != seal.link)
        if broken:
            words = f"event {row.seq} is not what was written at this place; run: lcb log verify {store.url}"
            import structlog  # a verification does without it

            structlog.get_logger("lcb.serve").error("chain", error=words)
            return
        link = seal.link
        has_chain = has_chain or link is not None


def begins_with_chain(first: Row) -> bool:
    """Whether a log with this first event has a chain from it on; logs of the first versions began without one."""
    if first.kind == "key":
        return True
    try:
        return first.kind == "service" and read_event(first).has_key_events
    except UnreadableEvent:  # told where the event is read
        return True


def _has_link(row: Row, seal: Seal) -> bool:
    return seal.link is not None or begins_with_chain(row)
