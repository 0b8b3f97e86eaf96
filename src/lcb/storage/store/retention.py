"""Writes of a compaction, the same in both stores: base rows in place of events, and events that go.

Each call is one short transaction, so that a service beside it waits little.  The ids of decisions that go are
remembered as 64-bit hashes in the table `archived`: a repeated request must not decide again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from lcb.storage.store.base import USER_SNAPSHOTS, Row, storable

BASE, ERASED_BASE = "base", "erased base"
GOING = (
    "decision",
    "reward",
    "leave",
    "erased decision",
    "erased reward",
    "erased leave",
    "learning",
    "refit",
    "mixture",
    "refused",
)  # kinds of events that a compaction removes; the others stay whatever their age
OF_USERS = ("decision", "reward", "leave")  # kinds of events with a user
_OF_USERS = f"({', '.join(repr(kind) for kind in OF_USERS)})"
_GOING = f"({', '.join(repr(kind) for kind in GOING)})"
Write = tuple[str, Sequence[Sequence[object]]]  # a statement, and the values of each time it is run


class BaseRow(NamedTuple):
    """A base row, and the event in whose place it comes: the last of its user up to where the log is compacted."""

    event: Row
    body: bytes

    @property
    def row(self) -> Row:
        seq, user = self.event.seq, self.event.user
        return Row(seq, f"{BASE}/{seq}", BASE, user, None, self.body)


def hash_id(id: str) -> int:
    """Return what is remembered of the id of an archived decision.

    >>> hash_id("d1")
    -228682237454388697
    """
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest(), "big", signed=True)


class Retention(ABC):
    """Part of a store; `placeholder` is the driver's mark for a value."""

    placeholder: str
    whole = ""  # what a body that is written whole sets beside it
    _read: Callable[..., list[Any]]

    def write_base(self, rows: Sequence[BaseRow]) -> None:
        """Write base rows in place of events, and drop the users' earlier ones; an erased user is left as they are."""
        m, of_user = self.placeholder, '"user"'
        base = [one.row for one in rows]
        change = (
            f"update event set id = {m}, kind = '{BASE}', model = null, body = {m}{self.whole}, "
            f"salt = coalesce(salt, {m}) "
            f"where seq = {m} and {of_user} = {m} and kind in {_OF_USERS}"
        )
        self._write(
            (change, [(row.id, row.body, b"", row.seq, row.user) for row in base]),
            (
                f"delete from event where {of_user} = {m} and kind = '{BASE}' and seq < {m}",
                [(row.user, row.seq) for row in base],
            ),
            (
                f"delete from snapshot where name = {m} and seq < {m}",
                [(f"{USER_SNAPSHOTS}{row.user}", row.seq) for row in base],
            ),
            self._remember([one.event.id for one in rows if one.event.kind == "decision"]),
            *self._drop_common([(row.seq, row.seq) for row in base]),
        )

    def remove_events(self, after: int, upto: int, kept: Collection[int]) -> int:
        """Remove the events after `after` and up to `upto` that a compaction removes; returns how many."""
        m = self.placeholder
        found = self._read(
            f"select seq, id, kind from event where seq > {m} and seq <= {m} and kind in {_GOING}", (after, upto)
        )
        gone = [(seq, id, kind) for seq, id, kind in found if seq not in kept]
        if not gone:
            return 0
        remember = self._remember([id for _, id, kind in gone if kind == "decision"])
        if len(gone) == len(found):
            remove: Write = (
                f"delete from event where seq > {m} and seq <= {m} and kind in {_GOING}",
                [(after, upto)],
            )
        else:
            remove = (f"delete from event where seq = {m}", [(seq,) for seq, _, _ in gone])
        self._write(remember, remove, *self._drop_common([(gone[0][0], gone[-1][0])]))
        return len(gone)

    def next_going(self, after: int, upto: int) -> int | None:
        """Return the first seq after `after`, up to `upto`, of an event that a compaction removes."""
        m = self.placeholder
        found = self._read(
            f"select seq from event where seq > {m} and seq <= {m} and kind in {_GOING} order by seq limit 1",
            (after, upto),
        )
        return int(found[0][0]) if found else None

    def was_archived(self, id: str) -> bool:
        """Whether a decision of this id is in the archive."""
        if not storable(id):
            return False
        return bool(self._read(f"select 1 from archived where id = {self.placeholder}", (hash_id(id),)))

    def _forget(self, ids: Sequence[str]) -> Write:
        """Return how to forget that decisions of an erased user were archived."""
        return f"delete from archived where id = {self.placeholder}", [(hash_id(id),) for id in ids]

    def list_archived(self) -> list[int]:
        """Return all that is remembered of ids of archived decisions, in order."""
        return [one for (one,) in self._read("select id from archived order by id")]

    def _remember(self, ids: Sequence[str]) -> Write:
        return (
            f"insert into archived(id) values({self.placeholder}) on conflict do nothing",
            [(hash_id(id),) for id in ids],
        )

    def _drop_common(self, ranges: Sequence[tuple[int, int]]) -> list[Write]:
        """Return what removes bytes that events of these ranges of seqs had in common, and no event has any more."""
        return []

    @abstractmethod
    def _write(self, *writes: Write) -> None:
        """Run statements in one transaction."""
