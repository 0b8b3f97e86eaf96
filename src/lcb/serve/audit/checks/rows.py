"""Compares every row that compactions have left with the archived events that it was made of.

    an event that stays, or is kept    the archived event, in all columns
    base row of a user                 a fold of the archived events of the user up to it
    row of an erased user              an archived event that is erased; the digest beside it cannot be computed again
    event `compact`                    its link, `before`, `kept` and `n_users` follow from the archive

So nobody who can only write to the store can change the base, however many digests and links they compute anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lcb.serve import events
from lcb.serve.audit.checks.bodies import list_compactions, list_erasures, read_body
from lcb.serve.audit.report import Report
from lcb.serve.base_bodies import CompactBody
from lcb.serve.event_ids import changes_reward, event_id
from lcb.serve.retain.archive import Archive
from lcb.serve.retain.base import build_base
from lcb.serve.state.world import World
from lcb.storage.store.base import LAST, Row, Seal, Store
from lcb.storage.store.retention import BASE, ERASED_BASE, GOING, BaseRow

_Sealed = tuple[Row, Seal]


def check_rows(store: Store, whole: Store, archive: Archive, report: Report) -> None:
    """Compare the rows of a store up to its base with the archive; `whole` is the log with its archived events."""
    compactions = list_compactions(whole)
    if compactions:
        check = _RowsCheck(whole, compactions, report)
        for archived, found in _pair(archive.sealed_events(0, archive.upto), store.sealed_events(-LAST, archive.upto)):
            check.see(archived, found)
        check.end()


def _pair(archived: Iterator[_Sealed], found: Iterator[_Sealed]) -> Iterator[tuple[_Sealed | None, _Sealed | None]]:
    """Pair archived events with rows of the store by their seq; None: there is no such event or row."""
    one = next(archived, None)
    for row in found:
        while one is not None and one[0].seq < row[0].seq:
            yield one, None
            one = next(archived, None)
        if one is not None and one[0].seq == row[0].seq:
            yield one, row
            one = next(archived, None)
        else:
            yield None, row
    while one is not None:
        yield one, None
        one = next(archived, None)


class _RowsCheck:
    def __init__(self, whole: Store, compactions: list[tuple[Row, CompactBody]], report: Report) -> None:
        self.whole, self.compactions, self.report = whole, compactions, report
        self.ends = {body.upto for _, body in compactions}
        self.links: dict[int, bytes | None] = {}  # of the archived events where a compaction ends
        self.bases: dict[str, Row] = {}  # base rows by user
        self.missing: dict[str, int] = {}  # by user: the last event that only the archive has
        self.new: set[str] = set()  # users with events since the compaction before the newest
        self.erased: set[int] = set()  # seqs of archived events that are erased
        self.there: set[int] = set()  # seqs of rows of erased users that the store has

    def see(self, archived: _Sealed | None, found: _Sealed | None) -> None:
        """Compare a row with the archived event of its seq."""
        if archived is None:
            assert found is not None
            row = found[0]
            self.report.add_words(row.seq, f"this {row.kind} was added to the base: the archive has no such event")
            return
        event, seal = archived
        if event.seq in self.ends:
            self.links[event.seq] = seal.link
        newest = self.compactions[-1][1]
        if event.user is not None and event.kind in GOING and event.seq > newest.before:
            self.new.add(event.user)
        if event.kind.startswith("erased "):
            self.erased.add(event.seq)
            if found is not None:
                self.there.add(event.seq)
        if found is not None:
            self._compare(event, seal, *found)
        elif event.kind not in GOING:
            self.report.add_words(event.seq, f"this {event.kind} was removed from the base: only the archive has it")
        elif event.user is not None:
            self.missing[event.user] = event.seq

    def _compare(self, event: Row, seal: Seal, row: Row, found: Seal) -> None:
        wanted, sealed = event, seal
        if row.kind == BASE and event.user is not None:
            wanted = Row(event.seq, event_id(BASE, event.seq), BASE, event.user, None, row.body)
            sealed = seal._replace(salt=seal.salt or b"")
            self.bases[event.user] = row
        elif row.kind == ERASED_BASE and event.kind.startswith("erased "):
            wanted = wanted._replace(kind=ERASED_BASE, body=row.body)  # its id and body are checked with the digest
            sealed = sealed._replace(digest=found.digest)
        if row == wanted and found == sealed:
            return
        for name, stored, again in zip((*Row._fields, *Seal._fields), (*row, *found), (*wanted, *sealed), strict=True):
            if stored != again:
                self.report.add(
                    row.seq, f"{name} of this row of the base, which the archive has otherwise", stored, again
                )
                return

    def end(self) -> None:
        for user, seq in self.missing.items():
            if user not in self.bases or self.bases[user].seq < seq:
                self.report.add_words(seq, f"the base has neither this event of {user!r} nor a base row after it")
        world = World(self.whole)
        try:
            world.begin_at(self.compactions[-1][1])
        except Exception as error:  # noqa: BLE001 (whatever a damaged base raises is reported)
            self.report.add_words(
                self.compactions[-1][0].seq, f"the base cannot be read ({type(error).__name__}: {error})"
            )
            return
        for user, row in self.bases.items():
            again = self._fold(world, self.whole.events_of(user, 0, row.seq))
            if again is None or again.body != row.body:
                names = "" if again is None else f": {_name_differences(row.body, again.body)}"
                self.report.add_words(row.seq, f"the base row of {user!r} is not a fold of the archived events{names}")
        self._check_compactions(world)

    def _check_compactions(self, world: World) -> None:
        before = 0
        for row, body in self.compactions:
            facts = (
                ("the id of a compaction", row.id, event_id("compact", body.upto)),
                ("the compaction before it", body.before, before),
                ("the link of the last archived event", _hex(body.link), _hex(self.links.get(body.upto))),
            )
            for what, stored, again in facts:
                if stored != again:
                    self.report.add(row.seq, what, stored, again)
            before = body.upto
        row, body = self.compactions[-1]
        kept, wanted = set(body.kept) - self.erased, self._find_kept(world)
        if kept != wanted:
            self.report.add(row.seq, "the events that a compaction keeps", sorted(kept - wanted), sorted(wanted - kept))
        self._check_erasures()
        if not self._has_erased_since(row.seq, body.upto):
            n_users = self._count_users(world)
            if body.n_users != n_users:
                self.report.add(row.seq, "the number of users of a compaction", body.n_users, n_users)

    def _find_kept(self, world: World) -> set[int]:
        """Return the seqs of the events that stay, because a reward after the cut changes one of them."""
        row, body = self.compactions[-1]
        users = set[str]()
        for one in self.whole.events(body.upto, row.seq):
            reward = read_body(one) if one.kind == "reward" else None
            if reward is None or one.user is None or reward.decision > body.upto:
                continue
            if changes_reward(one.id) or reward.item is None:
                users.add(one.user)
        kept = set(body.kept)
        users |= {
            one for one in self._list_kept_users(kept) if self._fold(world, self._read(one)) is None
        }  # lost models
        return {one.seq for user in users for one in self._read(user) if one.seq > self._find_base(user)}

    def _list_kept_users(self, kept: set[int]) -> set[str]:
        found = (next(iter(self.whole.events(seq - 1, seq)), None) for seq in kept - self.erased)
        return {one.user for one in found if one is not None and one.user is not None}

    def _fold(self, world: World, rows: list[Row]) -> BaseRow | None:
        """Return the base row that these events give; None if there is none, or an event cannot be read."""
        return None if any(read_body(row) is None for row in rows) else build_base(world, rows)

    def _read(self, user: str) -> list[Row]:
        return self.whole.events_of(user, 0, self.compactions[-1][1].upto)

    def _find_base(self, user: str) -> int:
        return self.bases[user].seq if user in self.bases else 0

    def _count_users(self, world: World) -> int:
        kept = set(self.compactions[-2][1].kept) if len(self.compactions) > 1 else set[int]()
        users = self.new | self._list_kept_users(kept)
        return sum(self._fold(world, self._read(user)) is not None for user in users)

    def _check_erasures(self) -> None:
        """Look for the rows that erasures left of users with a base row."""
        kept = {seq for _, body in self.compactions for seq in body.kept}
        for erasure, seqs in list_erasures(self.whole):
            upto = max((body.upto for one, body in self.compactions if one.seq < erasure), default=0)
            last = max((seq for seq in seqs if seq <= upto), default=None)
            if last is not None and last not in self.there and last not in kept:
                self.report.add_words(last, f"the row that erasure {erasure} left of this event was removed")

    def _has_erased_since(self, seq: int, upto: int) -> bool:
        return any(erasure > seq and seqs[0] <= upto for erasure, seqs in list_erasures(self.whole))


def _name_differences(one: bytes, other: bytes) -> str:
    try:
        stored, again = (events.decode(BASE, body) for body in (one, other))
    except (msgspec.DecodeError, ValueError) as error:
        return f"unreadable ({error})"
    return ", ".join(name for name in again.__struct_fields__ if getattr(stored, name) != getattr(again, name))


def _hex(link: bytes | None) -> str:
    return "none" if link is None else link.hex()
