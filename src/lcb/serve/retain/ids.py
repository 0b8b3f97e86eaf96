"""The digest of the remembered ids of archived decisions, which is in the event `compact`.

    key      BLAKE2b-256 over (seq as 8 bytes, salt) of each user's row that stays, in the order of seq
    digest   BLAKE2b-256 with this key over the hashes of the ids, 8 bytes each, in order

A compaction changes nothing of it: before, in between and after, the salts and the ids are the same ones.  An erasure
removes a salt, so that nobody can test a guess of an erased id; from then until the next compaction only the archive
tells whether the ids are right.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import numpy as np

from lcb.serve.base_bodies import CompactBody
from lcb.serve.read_event import read_event
from lcb.serve.retain.base import stays
from lcb.storage.store.base import Store
from lcb.storage.store.chain import LINK_BYTES
from lcb.storage.store.retention import BASE, hash_id
from lcb.words import format_count


def digest_ids(store: Store, upto: int, kept: Collection[int]) -> bytes:
    """Return the digest of the ids that are remembered when the log is compacted up to `upto`."""
    going, salts = set[int](), dict[str | None, tuple[int, bytes]]()
    for row, seal in store.sealed_events(0, upto):
        if row.kind == BASE or not stays(row, kept):
            salts[row.user] = row.seq, seal.salt or b""
            if row.kind == "decision":
                going.add(hash_id(row.id))
    salts.pop(None, None)
    key = blake2b(digest_size=LINK_BYTES)
    for seq, salt in sorted(salts.values()):
        key.update(seq.to_bytes(8, "big") + salt)
    ids = np.array(store.list_archived(), np.int64)  # in order
    ids = np.union1d(ids, np.array([*going], np.int64)) if going else ids
    return blake2b(ids.astype(">i8").tobytes(), key=key.digest(), digest_size=LINK_BYTES).digest()


def check_ids(store: Store) -> str:
    """Return in words what is wrong with the remembered ids; nothing if right, or only the archive can tell."""
    rows = store.newest_of_service(("compact",), limit=1)
    if not rows:
        n = len(store.list_archived())
        return f"the table archived has {format_count(n, 'id')}, but this log was never compacted" if n else ""
    base: CompactBody = read_event(rows[0])
    if not base.ids or _has_erased(store, base.upto, rows[0].seq):
        return ""
    if digest_ids(store, base.upto, set(base.kept)) == base.ids:
        return ""
    words = "ids of archived decisions were removed from the table archived, or added to it"
    return f"{words}; lcb log verify --archive tells which"


def warn_of_ids(store: Store) -> None:
    """Write a line at the start of a service if the remembered ids are not what they were."""
    if words := check_ids(store):
        import structlog  # a verification does without it

        structlog.get_logger("lcb.serve").error("archived ids", error=words)


def _has_erased(store: Store, upto: int, after: int) -> bool:
    """Whether a user with archived events was erased after the compaction."""
    found = (row for row in store.newest_of_service(("erase",), limit=1_000_000) if row.seq > after)
    return any(seq <= upto for row in found for seq, *_ in read_event(row).history)
