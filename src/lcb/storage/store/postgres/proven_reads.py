"""Reads that tell also what the log does not have, and so must prove that it is the one that this process knows.

After a failover to a standby that was behind, an event that was acknowledged is missing.  Who is told that there is no
such decision or user does not ask again; so the statement that finds nothing looks for the known event as well.  Other
reads rest on their connection: none is used before it has led to the known event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lcb.storage.store.base import COLUMNS, Head, Row, storable
from lcb.storage.store.postgres.connections import Connection, read_one
from lcb.storage.store.postgres.known_log import IS_KNOWN, KnownLog, list_values

_EVENT = (
    f"select found.*, found.seq is not null or {IS_KNOWN} from (select) as one left join "
    f"(select {COLUMNS} from event where id = %s and seq > 0) as found on true"
)
_IDS = f"select array(select id from event where id = any(%b::text[]) and seq > 0), {IS_KNOWN}"
_NEWEST = f'select (select seq from event where "user" = %s order by seq desc limit 1), {IS_KNOWN}'


class ProvenReads:
    """Part of the store.  The known event is taken before a read begins, so it was committed before."""

    _known: KnownLog
    _read: Callable[..., list[Any]]

    def head(self) -> int:
        known = self._known.head
        ((seq, is_known),) = self._read(f"select seq, {IS_KNOWN} from head", list_values(known))
        self._refuse_unknown(known, is_known)
        return int(seq)

    def event(self, id: str) -> Row | None:
        known = self._known.head
        ((*row, is_known),) = self._read(_EVENT, (*list_values(known), storable(id)))
        self._refuse_unknown(known, is_known)
        return None if row[0] is None else Row(*row)

    def ids_there(self, ids: Sequence[str]) -> set[str]:
        names, known = {storable(id): id for id in ids}, self._known.head
        ((found, is_known),) = self._read(_IDS, (list(names), *list_values(known)))
        self._refuse_unknown(known, is_known)
        return {names[id] for id in found}

    def newest_of(self, user: str) -> int:
        known = self._known.head
        ((seq, is_known),) = self._read(_NEWEST, (storable(user), *list_values(known)))
        self._refuse_unknown(known, is_known)
        return int(seq or 0)

    def _refuse_unknown(self, known: Head, is_known: bool) -> None:
        if not is_known:
            raise self._known.build_error(known.seq)

    def _prove(self, connection: Connection) -> None:
        """Raise StoreError if a new connection leads to a server without the known event: no read begins there."""
        known = self._known.head
        if known.link is not None:
            self._refuse_unknown(known, *read_one(connection, f"select {IS_KNOWN}", list_values(known)))
