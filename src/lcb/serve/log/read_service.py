"""The event `service`: the settings that a log was begun with."""

from __future__ import annotations

from lcb.errors import InputError
from lcb.serve import events
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Store


def read_service(store: Store, upto: int | None = None) -> events.ServiceBody:
    """Return the settings of a log.  Their event is the first but for those of keys that were created before."""
    for row in store.events_of_service(upto):
        if row.kind == "service":
            found: events.ServiceBody = read_event(row)
            return found
    raise InputError(f"{store.url} is not the store of a service; give one that lcb serve has created")
