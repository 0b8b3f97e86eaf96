"""What a store of the service holds, and the methods every store has.

    event     seq, id, kind, user, model, body      seq counts from 1 without gaps, in the order of the commits;
                                                    a compaction leaves gaps up to the event it names (retention.py)
              salt, digest, link                    make the events a chain (chain.py)
    snapshot  name, seq, body, checksum             a cache of the state as of `seq`; it can be rebuilt from the events
    key       name, scope, sha256, created, revoked
    archived  id                                    hashes of the ids of decisions that a compaction has archived
    common    seq, last, body                       SQLite: bytes that several bodies have (sqlite_bodies.py)

SQLite and PostgreSQL have the same methods.  `append` is one transaction: it writes all rows or none.  It returns the
rows that other processes have written since `seen` together with its own, so that the caller sees the log without gaps.
It does not write, and returns the ids of:

    - rows whose id is in the log already
    - if a user was erased or the log compacted since `seen`: rows of users, and snapshots of users (they may rest on
      events that are gone)
    - if anything was written since `seen`: the rows named in `first`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple, Protocol

from lcb.progress import Progress, silent

COLUMNS = 'seq, id, kind, "user", model, body'
SEALED = f"{COLUMNS}, salt, digest, link"
LAST = 2**63 - 1  # no seq is larger
VOIDING = ("erase", "compact")  # after such an event, events of users that were built before it are built again
USER_SNAPSHOTS = "user/"  # the snapshot of a user is named by this and the user's name


class Row(NamedTuple):
    """One event of the log; `user` and `model` are None for events of the service as a whole."""

    seq: int
    id: str
    kind: str
    user: str | None
    model: int | None
    body: bytes


class NewRow(NamedTuple):
    """An event to append; `append` gives it its seq."""

    id: str
    kind: str
    user: str | None
    model: int | None
    body: bytes


class Seal(NamedTuple):
    """What the chain stores with an event; an erased one has `digest` in place of `salt`."""

    salt: bytes | None
    digest: bytes | None
    link: bytes | None


class Head(NamedTuple):
    """The last event of a log; `link` is None if it was written before there was a chain."""

    seq: int
    link: bytes | None

    def __str__(self) -> str:
        return f"{self.seq}:{'' if self.link is None else self.link.hex()}"


class Snapshot(NamedTuple):
    name: str
    seq: int
    body: bytes


class Key(NamedTuple):
    """`scope` is reader, writer or admin; of the key itself only the SHA-256 is stored."""

    name: str
    scope: str
    sha256: bytes
    created: float
    revoked: float | None


class Appended(NamedTuple):
    """The rows written since `seen`, those of other processes first, and the ids that were not written."""

    rows: list[Row]
    refused: frozenset[str]


class Rewrite(NamedTuple):
    """How an event is rewritten when its user is erased."""

    seq: int
    id: str
    kind: str
    body: bytes
    digest: bytes | None = None  # to be stored in place of the salt; None: that of the event as it is


_new: Any = tuple.__new__
as_row: Callable[[Any], Row] = partial(_new, Row)  # of a tuple, thrice as fast as `Row` itself
as_new_row: Callable[[Any], NewRow] = partial(_new, NewRow)
as_seal: Callable[[Any], Seal] = partial(_new, Seal)
Rewriting = Callable[[list[Row]], tuple[list[Rewrite], NewRow]]  # from a user's events, and the `erase` event


class SharedReads:
    """Reads that are the same statement in every store; `placeholder` is the driver's mark for a value."""

    placeholder: str
    columns, sealed, body = COLUMNS, SEALED, "body"  # of an event, as they are read
    _read: Callable[..., list[Any]]
    _blocks: Callable[[str, int, int], Iterator[list[Any]]]
    chain_head: Callable[[], Head]

    def head(self) -> int:
        return self.chain_head().seq

    def count_events(self, upto: int, after: int = 0) -> int:
        """Count in blocks, each well within the time limit of a statement."""
        mark, block = self.placeholder, 100_000
        statement = f"select count(*) from event where seq > {mark} and seq <= {mark}"
        return sum(int(self._read(statement, (at, min(at + block, upto)))[0][0]) for at in range(after, upto, block))

    def events(self, after: int, upto: int | None = None) -> Iterator[Row]:
        for block in self._blocks(self.columns, after, self.head() if upto is None else upto):
            yield from map(as_row, block)

    def sealed_events(self, after: int, upto: int) -> Iterator[tuple[Row, Seal]]:
        for block in self._blocks(self.sealed, after, upto):
            for found in block:
                yield as_row(found[:6]), as_seal(found[6:])

    def events_of_service(self, upto: int | None = None) -> list[Row]:
        found = self._read(
            f'select {self.columns} from event where "user" is null and seq > 0 and seq <= {self.placeholder} '
            "and kind in ('service', 'recommender', 'items', 'model', 'activate', 'canary', 'teachers', 'compact') "
            "order by seq",
            (LAST if upto is None else upto,),
        )
        return [Row(*row) for row in found]

    def newest_of_service(self, kinds: Sequence[str], upto: int | None = None, limit: int = 10_000) -> list[Row]:
        marks = ", ".join([self.placeholder] * len(kinds))
        found = self._read(
            f'select {self.columns} from event where "user" is null and kind in ({marks}) and seq > 0 '
            f"and seq <= {self.placeholder} order by seq desc limit {limit}",
            (*kinds, LAST if upto is None else upto),
        )
        return [Row(*row) for row in found]

    def users(self, after: str = "", limit: int = 1000) -> list[str]:
        found = self._read(
            f'select distinct "user" from event where "user" is not null and "user" > {self.placeholder} '
            f'order by "user" limit {self.placeholder}',
            (after, limit),
        )
        return [user for (user,) in found]

    def stream_of(self, user: str, after: int = 0, upto: int | None = None) -> Iterator[Row]:
        mark, last = self.placeholder, LAST if upto is None else upto
        of_user = f'select {self.columns} from event where "user" = {mark} and seq > {mark} and seq <= {mark}'
        while block := self._read(f"{of_user} order by seq limit 16", (storable(user), after, last)):
            yield from map(as_row, block)
            after = block[-1][0]

    def events_between(self, ranges: Sequence[tuple[str, str]], upto: int) -> list[Row]:
        mark = self.placeholder
        of_range = f"select {self.columns} from event where id between {mark} and {mark}"  # by the index of ids
        found = self._read(
            " union all ".join([of_range] * len(ranges)), [storable(id) for both in ranges for id in both]
        )
        return sorted(Row(*row) for row in found if 0 < row[0] <= upto)

    def bytes_of(self, user: str, upto: int) -> int:
        mark = self.placeholder
        statement = f'select sum(length({self.body})) from event where "user" = {mark} and seq <= {mark}'
        return int(self._read(statement, (storable(user), upto))[0][0] or 0)

    def ids_there(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids, some hundreds at most, that events have."""
        names = {storable(id): id for id in ids}
        marks = ", ".join([self.placeholder] * len(names))
        found = self._read(f"select id from event where id in ({marks}) and seq > 0", list(names)) if names else []
        return {names[id] for (id,) in found}

    def bytes_of_event(self, id: str) -> int:
        found = self._read(f"select length({self.body}) from event where id = {self.placeholder}", (storable(id),))
        return int(found[0][0]) if found else 0

    def find_damage(self) -> list[tuple[int | None, str]]:
        return []  # SQLite looks at its file; a database server looks after its own files

    def find_unindexed(self) -> str:
        return ""

    def list_keys(self) -> list[Key]:
        return [Key(*row) for row in self._read("select name, scope, sha256, created, revoked from key order by name")]


class Store(Protocol):
    """Methods may be called from any thread; `append`, `erase` and `save` from one at a time."""

    url: str  # without the password
    discarded: int  # bytes of an unfinished commit found when the store was opened to serve
    inline: bool  # reads are short and local, so the event loop may make them itself
    damaged: set[str]  # names of snapshots that cannot be used; the next append deletes them

    def head(self) -> int: ...
    def chain_head(self) -> Head: ...
    def count_events(self, upto: int, after: int = 0) -> int:
        """Count the events with a seq after `after` and up to `upto`, without reading them."""

    def append(
        self, rows: Sequence[NewRow], seen: int, snapshots: Sequence[Snapshot] = (), first: Set[str] = frozenset()
    ) -> Appended: ...
    def erase(self, user: str, rewrite: Rewriting, seen: int, archived: Sequence[str] = ()) -> Appended:
        """Erase a user, and forget the ids of their `archived` decisions."""

    def event(self, id: str) -> Row | None: ...
    def events(self, after: int, upto: int | None = None) -> Iterator[Row]: ...
    def sealed_events(self, after: int, upto: int) -> Iterator[tuple[Row, Seal]]: ...
    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]: ...
    def events_of_each(self, after: Mapping[str, int], upto: int) -> dict[str, list[Row]]: ...
    def stream_of(self, user: str, after: int = 0, upto: int | None = None) -> Iterator[Row]:
        """Yield the same as `events_of`, few at a time and without holding up other reads."""

    def events_between(self, ranges: Sequence[tuple[str, str]], upto: int) -> list[Row]:
        """Return the events whose id lies in one of these ranges, both ends included; ids compare by code point."""

    def bytes_of(self, user: str, upto: int) -> int:
        """Return how many bytes the bodies of a user's events have."""

    def bytes_of_event(self, id: str) -> int: ...
    def ids_there(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids, some hundreds at most, that events have."""
        ...

    def newest_of(self, user: str) -> int: ...
    def events_of_service(self, upto: int | None = None) -> list[Row]: ...
    def newest_of_service(self, kinds: Sequence[str], upto: int | None = None, limit: int = 10_000) -> list[Row]: ...
    def users(self, after: str = "", limit: int = 1000) -> list[str]: ...
    def snapshot(self, name: str) -> Snapshot | None: ...
    def snapshots(self, names: Sequence[str]) -> dict[str, Snapshot]: ...
    def all_snapshots(self, after: str = "") -> Iterator[Snapshot]: ...
    def discard_snapshot(self, name: str, why: str) -> None: ...
    def forget_snapshots(self) -> int: ...
    def write_base(self, rows: Sequence[Any]) -> None: ...
    def remove_events(self, after: int, upto: int, kept: Collection[int]) -> int: ...
    def next_going(self, after: int, upto: int) -> int | None: ...
    def was_archived(self, id: str) -> bool: ...
    def list_archived(self) -> list[int]: ...
    def list_keys(self) -> list[Key]: ...
    def save_key(self, key: Key) -> None: ...
    def size(self) -> int: ...
    def backup(self, path: str, progress: Progress = silent) -> None: ...
    def lead(self, name: str) -> Callable[[], None] | None: ...
    def find_changes_of_schema(self) -> list[str]: ...
    def find_damage(self) -> list[tuple[int | None, str]]:
        """Return what is wrong with the file and its indexes, in words with the event if it is one; reads all of it."""

    def find_unindexed(self) -> str:
        """Return in words that an index lacks events, if their numbers tell; nothing if not."""

    def check(self, *, writing: bool = False) -> None: ...
    def close(self) -> None: ...


def first_of_each_id(rows: Sequence[NewRow]) -> tuple[list[NewRow], frozenset[str]]:
    """The first row of each id, and the ids that come more than once."""
    first: dict[str, NewRow] = {}
    doubled = frozenset(row.id for row in rows if first.setdefault(row.id, row) is not row)
    return list(first.values()), doubled


def drop_outdated(
    others: Sequence[Row], rows: Sequence[NewRow], snapshots: Sequence[Snapshot], first: Set[str]
) -> tuple[Sequence[NewRow], Sequence[Snapshot], frozenset[str]]:
    """The rows and snapshots to write after what others wrote, and the ids of the rows not to write."""
    if not others:
        return rows, snapshots, frozenset()
    late = {row.id for row in rows if row.id in first}
    if any(row.kind in VOIDING for row in others):
        late.update(row.id for row in rows if row.user is not None)
        snapshots = [one for one in snapshots if not one.name.startswith(USER_SNAPSHOTS)]
    return [row for row in rows if row.id not in late], snapshots, frozenset(late)


def storable(text: str) -> str:
    """The text, or "" (which no stored text equals) if it has a character that a store does not take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return "" if "\0" in text else text
