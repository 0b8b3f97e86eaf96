"""The stored form of everything but users, catalogue and models: in the service-wide snapshot, and in `compact`."""

from __future__ import annotations

from msgspec import Struct

from lcb.serve import events
from lcb.serve.base_bodies import CompactBody
from lcb.serve.state.canary import Verdict
from lcb.serve.state.items import ItemSums
from lcb.serve.state.tally import StoredTally
from lcb.storage.store.base import Store


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
    base: CompactBody | None = events.decode("compact", found[0].body) if found else None
    return base
