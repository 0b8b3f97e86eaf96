"""Bodies of events that somebody may have changed: what cannot be read is named by the replay, and left out here."""

from __future__ import annotations

from typing import Any

from lcb.errors import UnreadableEvent
from lcb.serve.base_bodies import CompactBody
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Row, Store

_ERASURES = 1_000_000  # that are read


def read_body(row: Row) -> Any:
    """Return the body of an event; None if it cannot be read."""
    try:
        return read_event(row)
    except UnreadableEvent:
        return None


def list_compactions(store: Store) -> list[tuple[Row, CompactBody]]:
    """Return the compactions of a log that can be read, the oldest first."""
    found = [(row, read_body(row)) for row in reversed(store.newest_of_service(("compact",)))]
    return [(row, body) for row, body in found if body is not None]


def list_erasures(store: Store) -> list[tuple[int, list[int]]]:
    """Return the erasures of a log that can be read: the seq of the event, and those of the events that it erased."""
    found = [(row.seq, read_body(row)) for row in store.newest_of_service(("erase",), limit=_ERASURES)]
    return [(seq, [one for one, *_ in body.history]) for seq, body in found if body is not None and body.history]
