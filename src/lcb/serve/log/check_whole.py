"""A cheap look at a log before it is served; `lcb log verify` looks at everything.

The start reads only the events after the newest snapshot, so it would not meet an event that is missing before it.
"""

from __future__ import annotations

import structlog

from lcb.errors import StoreError
from lcb.storage.store.base import Store
from lcb.storage.store.chain import compute_digest, compute_link

_LAST = 200  # events whose links are computed again


def check_whole(store: Store) -> None:
    """Refuse a log in which events are missing; write a line about a chain that is broken near its end.

    If somebody removes or adds an event and numbers those after it anew, all later links are wrong, the last ones too.
    """
    head = store.head()
    if (n := store.count_events(head)) != head:
        raise StoreError(
            f"{store.url} ends with event {head}, but has {n} events: {head - n} are missing; restore it from a backup "
            "(lcb log verify names the first that is missing)"
        )
    link = None
    for row, seal in store.sealed_events(max(head - _LAST, 0), head):
        digest = seal.digest if seal.salt is None else compute_digest(seal.salt, row)
        if link is not None and digest is not None and compute_link(link, row.seq, digest) != seal.link:
            words = f"event {row.seq} is not what was written at this place; run: lcb log verify {store.url}"
            structlog.get_logger("lcb.serve").error("chain", error=words)
            return
        link = seal.link
