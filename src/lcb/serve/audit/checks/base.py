"""Checks what compactions have left: the digest of the base, and with the archive that the base is a fold of it."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.serve.audit.checks.bodies import list_compactions, list_erasures
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
        of_ids = check_ids(store) if digest == base.base else ""
    except Exception as error:  # noqa: BLE001 (whatever a damaged base raises is reported)
        report.add_words(base.upto, f"the base cannot be read ({type(error).__name__}: {error}); replay ends here")
        return False
    if digest != base.base:
        words = f"a row up to event {base.upto}, where the log begins, was changed, added or removed"
        report.add(None, f"the digest of the base ({words}; replay ends here)", digest.hex(), base.base.hex())
    elif of_ids:
        report.add_words(None, of_ids)
    return digest == base.base


def check_digest(store: Store, report: Report) -> None:
    """Compare the base of a store with its digest, beside a verification of the whole log."""
    base = read_base(store)
    if base is not None:
        check_base(World(store), store, base, report)


class CompactionCheck:
    """Compares the state of each compaction with the replayed one, while a whole log is replayed."""

    def __init__(self, store: Store, report: Report) -> None:
        self.ends = {body.upto for _, body in list_compactions(store)}
        self.report, self._worlds = report, dict[int, bytes]()
        self.erased = [(seq, seqs[0]) for seq, seqs in list_erasures(store)] if self.ends else []

    def see(self, world: World, row: Row, body: Any) -> None:
        """Look at the state before an event, and at the event if it is a compaction."""
        if world.seq in self.ends:
            self._worlds[world.seq] = world.snapshot().body
        if row.kind != "compact":
            return
        if any(seq > body.upto >= first for seq, first in self.erased):
            return  # the state may have counts of a user who is gone
        again = self._worlds.get(body.upto)
        names = "unreadable" if again is None else _name_differences(again, body.world)
        if names:
            self.report.add_words(row.seq, f"the base of this compaction is not a fold of the archived events: {names}")


def _name_differences(one: bytes, other: bytes) -> str:
    """Name what differs in two states; after an erasure, what is counted by name may have another order."""
    if one == other:
        return ""
    try:
        again, stored = (msgspec.msgpack.decode(body, type=dict[str, Any]) for body in (one, other))
    except (msgspec.DecodeError, ValueError) as error:
        return f"unreadable ({error})"
    return ", ".join(sorted(name for name in {*again, *stored} if again.get(name) != stored.get(name)))
