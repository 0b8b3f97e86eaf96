"""What a store of the service is: an append-only log of events, snapshots that may be lost, and keys.

    event     seq, id, kind, user, model, body      seq counts from 1 without a gap, in the order of the commits
    snapshot  name, seq, body                       a cache: what a fold of the log had come to at `seq`
    key       name, scope, sha256, created, revoked

SQLite and PostgreSQL have the same methods.  `append` is one transaction: all of the rows or none; rows whose id is
there already are left out and named, and rows that others have written meanwhile come back with it, so that whoever
appends has seen the log without a gap.  Where a person was erased meanwhile, rows and snapshots of users were made from
what is no longer there, and they are left out too; so are the rows of `first`, which hold if nobody else wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from lcb.errors import StoreError

USER_SNAPSHOTS = "user/"  # the snapshot of a user is named by this and the user's name


class Row(NamedTuple):
    """One event of the log; `user` and `model` are None where it is not of one user."""

    seq: int
    id: str
    kind: str
    user: str | None
    model: int | None
    body: bytes


class NewRow(NamedTuple):
    """An event that has no place in the log yet."""

    id: str
    kind: str
    user: str | None
    model: int | None
    body: bytes


class Snapshot(NamedTuple):
    name: str
    seq: int
    body: bytes


class Key(NamedTuple):
    """`scope` is reader, writer or admin; the key itself is nowhere, only its SHA-256."""

    name: str
    scope: str
    sha256: bytes
    created: float
    revoked: float | None


class Appended(NamedTuple):
    """All that came into the log since `seen`, those of others first, and the ids that were there already."""

    rows: list[Row]
    refused: frozenset[str]


class Rewrite(NamedTuple):
    """What becomes of an event when its person is erased."""

    seq: int
    id: str
    kind: str
    body: bytes


class Store(Protocol):
    """Methods may be called from any thread; `append`, `erase` and `save` from one at a time."""

    url: str  # without its password
    discarded: int  # bytes of an unfinished commit that were met when it was opened to be served
    inline: bool  # reads are short and local: they may be made where the caller is

    def head(self) -> int: ...

    def append(
        self, rows: Sequence[NewRow], seen: int, snapshots: Sequence[Snapshot] = (), first: Set[str] = frozenset()
    ) -> Appended: ...

    def erase(self, user: str, rewrite: Callable[[list[Row]], tuple[list[Rewrite], NewRow]], seen: int) -> Appended: ...

    def event(self, id: str) -> Row | None: ...

    def events(self, after: int, upto: int | None = None) -> Iterator[Row]: ...

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]: ...

    def events_of_each(self, after: Mapping[str, int], upto: int) -> dict[str, list[Row]]: ...

    def newest_of(self, user: str) -> int: ...

    def events_of_service(self, upto: int | None = None) -> list[Row]: ...

    def users(self, after: str = "", limit: int = 1000) -> list[str]: ...

    def snapshot(self, name: str) -> Snapshot | None: ...

    def snapshots(self, names: Sequence[str]) -> dict[str, Snapshot]: ...

    def all_snapshots(self, after: str = "", limit: int = 1000) -> list[Snapshot]: ...

    def forget_snapshots(self) -> None: ...

    def list_keys(self) -> list[Key]: ...

    def save_key(self, key: Key) -> None: ...

    def size(self) -> int: ...

    def backup(self, path: str) -> None: ...

    def lead(self, name: str) -> Callable[[], None] | None: ...

    def close(self) -> None: ...


def once(rows: Sequence[NewRow]) -> tuple[list[NewRow], frozenset[str]]:
    """The first row of each id, and the ids that are there twice."""
    first: dict[str, NewRow] = {}
    doubled = frozenset(row.id for row in rows if first.setdefault(row.id, row) is not row)
    return list(first.values()), doubled


def outdated(
    others: Sequence[Row], rows: Sequence[NewRow], snapshots: Sequence[Snapshot], first: Set[str]
) -> tuple[Sequence[NewRow], Sequence[Snapshot], frozenset[str]]:
    """The rows and snapshots that still hold after what others wrote, and the ids of the rows that do not."""
    if not others:
        return rows, snapshots, frozenset()
    late = {row.id for row in rows if row.id in first}
    if any(row.kind == "erase" for row in others):
        late.update(row.id for row in rows if row.user is not None)
        snapshots = [one for one in snapshots if not one.name.startswith(USER_SNAPSHOTS)]
    return [row for row in rows if row.id not in late], snapshots, frozenset(late)


def open_store(url: str, *, create: bool = True, serve: bool = False) -> Store:
    """The store at a path (SQLite) or a postgresql:// address; `serve` takes the lock of the one server of a file."""
    if url.startswith(("postgresql://", "postgres://")):
        from lcb.storage.store.postgres import Postgres

        return Postgres(url, create=create)
    if "://" in url:
        raise StoreError(f"store {url.split('://')[0]}://...; give the path of a file, or postgresql://user@host/name")
    from lcb.storage.store.sqlite import SQLite

    return SQLite(url, create=create, serve=serve)
