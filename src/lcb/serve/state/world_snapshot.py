"""The stored form of everything but users, catalogue and models: in the service-wide snapshot, and in `compact`."""

from __future__ import annotations

from msgspec import DecodeError, Struct, msgpack

from lcb.errors import StoreError
from lcb.serve.base_bodies import CompactBody
from lcb.serve.read_event import read_event
from lcb.serve.state.canary import Verdict
from lcb.serve.state.items import ItemSums
from lcb.serve.state.tally import StoredTally, Tally
from lcb.storage.store.base import Snapshot, Store


class WorldSnapshot(Struct):
    seq: int
    n_features: int | None
    n_started: int
    n_rewarded: int
    n_events: int
    started_at_training: int
    shared: dict[str, bytes]
    tallies: dict[str, StoredTally]
    users_per_model: dict[int, int]
    concentration: dict[int, dict[int, int]]
    erased: list[int] = []
    mixtures: bytes | None = None
    items: ItemSums | None = None
    canary: dict[int, tuple[float, bool]] = {}
    verdict: Verdict | None = None


def read_base(store: Store) -> CompactBody | None:
    """Return the newest compaction of a log; None if it has all its events."""
    found = store.newest_of_service(("compact",), limit=1)
    if not found:
        return None
    base: CompactBody = read_event(found[0])
    return base


def decode_snapshot(store: Store, snapshot: Snapshot) -> WorldSnapshot | None:
    """Return the state in a snapshot; discard one that is damaged or of a later event than the log has."""
    head = store.head()
    if snapshot.seq > head:
        store.discard_snapshot(snapshot.name, f"it is of event {snapshot.seq}, but the log ends at {head}")
        return None
    try:
        body = msgpack.decode(snapshot.body, type=WorldSnapshot)
        for stored in body.tallies.values():
            Tally.unpack(stored)
        return body
    except (DecodeError, ValueError, StoreError) as error:
        store.discard_snapshot(snapshot.name, f"it cannot be read: {error}")
        return None
