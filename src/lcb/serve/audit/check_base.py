"""Checks what compactions have left: the digest of the base, and with the archive that the base is a fold of it."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.serve import events
from lcb.serve.audit.report import Report
from lcb.serve.base_bodies import CompactBody
from lcb.serve.retain.base import compute_base
from lcb.serve.retain.ids import check_ids
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Row, Store


def check_base(world: World, store: Store, base: CompactBody, report: Report) -> bool:
    """Begin the replay at the base, and compare the rows of it with its digest; False if they differ."""
    try:
        world.begin_at(base)
        digest, report.n_unfinished = compute_base(store, base, world)
    except Exception as error:  # noqa: BLE001 (whatever a damaged base raises is reported)
        report.add_words(base.upto, f"the base cannot be read ({type(error).__name__}: {error}); replay ends here")
        return False
    if digest != base.base:
        words = f"a row up to event {base.upto}, where the log begins, was changed, added or removed"
        report.add(None, f"the digest of the base ({words}; replay ends here)", digest.hex(), base.base.hex())
    elif words := check_ids(store):
        report.add_words(None, words)
    return digest == base.base


def check_digest(store: Store, report: Report) -> None:
    """Compare the base of a store with its digest, beside a verification of the whole log."""
    base = read_base(store)
    if base is not None:
        check_base(World(store), store, base, report)


class CompactionCheck:
    """Compares the state of each compaction with the replayed one, while a whole log is replayed."""

    def __init__(self, store: Store, report: Report) -> None:
        found = store.newest_of_service(("compact",))
        self.bodies: dict[int, list[CompactBody]] = {}
        for row in found:
            body = events.decode(row.kind, row.body)
            self.bodies.setdefault(body.upto, []).append(body)
        self.report, self._worlds = report, dict[int, bytes]()
        erasures = store.newest_of_service(("erase",), limit=1_000_000) if found else []
        self.erased = [(row.seq, events.decode(row.kind, row.body).history[0][0]) for row in erasures]

    def see(self, world: World, row: Row, body: Any) -> None:
        """Look at the state before an event, and at the event if it is a compaction."""
        if world.seq in self.bodies:
            self._worlds[world.seq] = world.snapshot().body
        if row.kind != "compact":
            return
        if any(seq > body.upto >= first for seq, first in self.erased):
            return  # the state may have counts of a user who is gone
        again = self._worlds.get(body.upto)
        if again != body.world:
            names = "unreadable" if again is None else _name_differences(again, body.world)
            self.report.add_words(row.seq, f"the base of this compaction is not a fold of the archived events: {names}")


def _name_differences(one: bytes, other: bytes) -> str:
    again, stored = msgspec.msgpack.decode(one), msgspec.msgpack.decode(other)
    return ", ".join(name for name in again if again[name] != stored.get(name)) or "order"
