"""What a compaction leaves of the events up to `upto`: base rows of users, and the digest of all rows that stay.

    digest of the base   BLAKE2b-256 over (seq as 8 bytes, digest of the row), in the order of seq

The digest of a row is the one of the chain, with the salt of the event in whose place a base row comes.  So everything
in it can be computed again until the last event is removed, and erasing a user changes none of it: what is left of an
erased user has its digest beside it, and must be listed by an erasure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b

from lcb.errors import StoreError
from lcb.serve import events
from lcb.serve.base_bodies import BaseBody, CompactBody, ErasedBase
from lcb.serve.event_ids import event_id
from lcb.serve.read_event import read_event
from lcb.serve.state.per_user.load_users import UserLoader
from lcb.serve.state.seen_items import fold_seen
from lcb.serve.state.users import LOST
from lcb.serve.state.world import World
from lcb.storage.store.base import LAST, Row, Seal, Store
from lcb.storage.store.chain import LINK_BYTES, compute_digest, compute_link, digest_rewrite
from lcb.storage.store.retention import BASE, ERASED_BASE, GOING, OF_USERS, BaseRow

_ERASED = "erased "  # begins the kinds of erased rows
_ERASURES = 1_000_000  # that are read


def build_base(world: World, rows: list[Row]) -> BaseRow | None:
    """Return the base row of a user from their events; None if there is nothing to fold, or their models are lost."""
    if not rows or rows[-1].kind == BASE:
        return None
    user = world.fold.fold(rows)
    assert user is not None
    if user.state is LOST:
        return None
    begin = max((i for i, row in enumerate(rows) if row.kind == BASE), default=-1)
    before = read_event(rows[begin]).n_events if begin >= 0 else 0
    body = BaseBody(user.recommender, user.pack(), fold_seen(rows).items, before + len(rows) - begin - 1)
    return BaseRow(rows[-1], events.encode(body))


def list_base(
    world: World, store: Store, names: Iterable[str], upto: int
) -> Iterator[tuple[str, list[Row], BaseRow | None]]:
    """Yield users, their events up to `upto`, and their base row if they need a new one."""
    loader = UserLoader(store, world.fold)
    for name in names:
        rows = loader.read_events(name, 0, upto)
        yield name, rows, build_base(world, rows)


def digest_row(row: Row, seal: Seal) -> bytes:
    """Return the digest of a row that stays; one written before there was a chain has no salt.

    A stored digest is believed of erased rows only, which `check_erased` looks at.
    """
    if seal.salt is None and seal.digest is not None and row.kind.startswith(_ERASED):
        return seal.digest
    return compute_digest(seal.salt or b"", row)


def check_erased(store: Store, rows: Sequence[Row]) -> None:
    """Raise StoreError if one of the erased rows that stay is not what an erasure has left."""
    if not rows:
        return
    listed: dict[int, bytes | None] = {}
    for found in store.newest_of_service(("erase",), limit=_ERASURES):
        body: events.EraseBody = read_event(found)
        left: Sequence[bytes | None] = body.left or [None] * len(body.history)
        listed |= {seq: one for (seq, *_), one in zip(body.history, left, strict=True)}
    for row in rows:
        if row.seq not in listed:
            raise StoreError(f"event {row.seq} is kept as {row.kind}, but no erasure lists it")
        wanted = listed[row.seq]
        if row.kind == ERASED_BASE:
            bare = Row(row.seq, event_id("erased", row.seq), ERASED_BASE, None, None, events.encode(ErasedBase()))
            changed = row != bare
        else:
            changed = wanted is not None and digest_rewrite(row) != wanted
        if changed:
            raise StoreError(f"event {row.seq} is not what its erasure has left")


def digest_base_row(row: Row, salt: bytes | None) -> bytes:
    return compute_digest(salt or b"", row)


def digest_rows(digests: dict[int, bytes]) -> bytes:
    """Return the digest of the base from the digests of its rows, by seq."""
    found = blake2b(digest_size=LINK_BYTES)
    for seq in sorted(digests):
        found.update(seq.to_bytes(8, "big", signed=True) + digests[seq])
    return found.digest()


def stays(row: Row, kept: Collection[int]) -> bool:
    """Whether a compaction lets an event stay."""
    return row.kind not in GOING or row.seq in kept


def follows(before: bytes | None, row: Row, seal: Seal) -> bool:
    """Whether an event is what was written after the link `before`; events of the first versions have no link."""
    if seal.link is None:
        return before is None
    if seal.salt is None and (seal.digest is None or not row.kind.startswith(_ERASED)):
        return False
    return compute_link(before, row.seq, digest_row(row, seal)) == seal.link


def build_changed(store: Store, what: str) -> StoreError:
    """Return the error of a log that was changed behind the service's back."""
    words = f"{what} of {store.url} is not what was written, and after a compaction nobody could tell"
    return StoreError(f"{words}; run lcb log verify, and restore the log from a backup")


class BaseCheck:
    """Compares all rows up to the base with its digest; of a log that was never compacted there are none."""

    def __init__(self, base: CompactBody | None) -> None:
        self.base, self.kept = base, set(() if base is None else base.kept)
        self._digests, self._erased = dict[int, bytes](), list[Row]()

    def see(self, row: Row, seal: Seal) -> None:
        if stays(row, self.kept):
            self._digests[row.seq] = digest_row(row, seal)
            if row.kind.startswith(_ERASED):
                self._erased.append(row)

    def end(self, store: Store) -> None:
        """Raise StoreError if a row was changed, added or removed."""
        if self.base is None:
            return
        if digest_rows(self._digests) != self.base.base:
            raise build_changed(store, f"a row up to event {self.base.upto}")
        check_erased(store, self._erased)


def compute_base(store: Store, base: CompactBody, world: World) -> tuple[bytes, int]:
    """Compute the digest of a base from the store, and how many events are still to be removed.

    A compaction that was ended too early left some users' events: their base rows are computed from these.  One that
    goes on meanwhile may write the base row of a user after their events were read here.
    """
    bases = dict[str, list[int]]()
    digests, left, kept = dict[int, bytes](), dict[str, bytes | None](), set(base.kept)  # left: salts of last events
    n_going, first, erased = 0, 0, list[Row]()  # first: the first event that goes
    for row, seal in store.sealed_events(-LAST, base.upto):
        if stays(row, kept):
            digests[row.seq] = digest_row(row, seal)
            if row.kind.startswith(_ERASED):
                erased.append(row)
            elif row.kind == BASE and row.user is not None:
                bases.setdefault(row.user, []).append(row.seq)
            continue
        n_going += 1
        first = first or row.seq
        if row.user is not None:
            left[row.user] = seal.salt
        elif row.kind in OF_USERS:
            raise StoreError(f"event {row.seq} is a {row.kind} without a user")
    _check_left(store, base, first)
    check_erased(store, erased)
    for seqs in bases.values():
        for seq in seqs[:-1]:  # superseded
            digests.pop(seq, None)
    for name, rows, found in list_base(world, store, left, base.upto):
        if found is not None:
            for seq in bases.get(name, ()):
                digests.pop(seq, None)
            digests[found.event.seq] = digest_base_row(found.row, left[name])
        elif rows:  # the base row has been written
            for seq in bases.get(name, ()):
                digests.pop(seq, None)
            for row, seal in store.sealed_events(rows[-1].seq - 1, rows[-1].seq):
                digests[row.seq] = digest_row(row, seal)
    return digest_rows(digests), n_going


def _check_left(store: Store, base: CompactBody, first: int) -> None:
    """Raise StoreError if an event that goes was added, as far as that can be told without the archive.

    A compaction removes events in order, the first ones first: all after one that is left are there, with their links.
    The link of a base row is believed, because the event in its place is gone.
    """
    last, link = 0, None
    for row, seal in store.sealed_events(max(first, base.before + 1) - 1, base.upto) if first else ():
        is_known = row.kind not in (BASE, ERASED_BASE) and last
        if last not in (0, row.seq - 1) or (is_known and not follows(link, row, seal)):
            words = f"event {first} is left of what a compaction removes, but event {row.seq} does not follow"
            raise StoreError(f"{words}: it was added, or others were changed or removed")
        last, link = row.seq, seal.link
    if last and (last, link) != (base.upto, base.link):
        raise StoreError(f"event {last} is not what it was when the log was compacted up to event {base.upto}")
