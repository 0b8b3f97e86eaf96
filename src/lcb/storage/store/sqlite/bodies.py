"""Bodies of events in an SQLite store: bytes that many events of one commit have in common are stored once.

The decisions of a batch from the same arms differ in little but the user, the time and the arm that was taken.  Where
bodies have the same bytes after their first START, in which the time is, these go to the table `common`:

    common    seq, last, body     the bytes, and the first and the last event that may have them
    event     common, body        `seq` of these bytes, and the body without them; null: the body is whole

Every read puts them together, so nothing else knows of it: digests and links are of whole bodies.  The bytes go with
the last event that has them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from lcb.storage.store.base import Row, Seal

START = 10  # bytes of a body before those in common: the time of the event is in them
FEWEST = 64  # events; for fewer a second statement is not worth it
_SMALLEST, _FEW = 256, 8  # bytes in common; events of which one may make them fewer
MOST_AT_ONCE = 128  # events of one statement
_MOST_APART = 2000  # events of one commit, and more
BODY = (
    f"case when common is null then body else coalesce((select cast(substr(event.body, 1, {START}) || common.body "
    f"|| substr(event.body, {START + 1}) as blob) from common where common.seq = event.common), body) end"
)
COLUMNS = f'seq, id, kind, "user", model, {BODY}'
SEALED = f"{COLUMNS}, salt, digest, link"
WITHOUT_EVENTS = (
    "not exists (select 1 from event where event.seq between common.seq and common.last and event.common = common.seq)"
)
DROP_COMMON = f"delete from common where seq > ? - {_MOST_APART} and seq <= ? and last >= ? and {WITHOUT_EVENTS}"


class Common(NamedTuple):
    """Bytes that the bodies at `places` have after the START."""

    places: list[int]
    body: bytes


def find_common(bodies: Sequence[bytes]) -> list[Common]:
    """Return the bytes that bodies have in common, where that saves enough.

    >>> arms, times = bytes(300), [f"{i:010d}".encode() for i in range(80)]
    >>> [(len(places), len(body)) for places, body in find_common([time + arms + b"x" + time for time in times])]
    [(80, 309)]
    """
    if len(bodies) < FEWEST:
        return []
    groups: dict[bytes, list[int]] = {}
    for i, body in enumerate(bodies):
        if len(body) >= START + _SMALLEST:
            groups.setdefault(body[START : START + _SMALLEST], []).append(i)
    found = (_compare(bodies, places) for places in groups.values() if len(places) >= FEWEST)
    return [one for one in found if len(one.places) >= FEWEST]


def _compare(bodies: Sequence[bytes], places: Sequence[int]) -> Common:
    """Return what bodies that begin alike have in common; one that has much less of it than many others is left out."""
    common, taken = bodies[places[0]][START:], [places[0]]
    for i in places[1:]:
        if not bodies[i].startswith(common, START):
            shorter = _find_prefix(common, bodies[i])
            if len(taken) > _FEW and 2 * len(shorter) < len(common):
                continue
            common = shorter
        taken.append(i)
    return Common(taken, common)


def _find_prefix(wanted: bytes, body: bytes) -> bytes:
    """Return how `wanted` begins, as far as a body has it after the START."""
    low, high = _SMALLEST, len(wanted)  # they begin alike
    while low < high:
        middle = (low + high + 1) // 2
        if body.startswith(wanted[:middle], START):
            low = middle
        else:
            high = middle - 1
    return wanted[:low]


def insert_rows(
    connection: sqlite3.Connection, rows: Sequence[Row], seals: Sequence[Seal], common: Sequence[Common]
) -> tuple[int, int]:
    """Insert events with their seals; returns how many, and how many rows of `common` beside them.

    Without these and for few events it is one statement, which is prepared.
    """
    stored = list[tuple[int | None, bytes]]((None, row.body) for row in rows) if common else []
    for places, body in common:
        seq, rest = rows[places[0]].seq, START + len(body)
        connection.execute("insert into common values(?, ?, ?)", (seq, rows[places[-1]].seq, body))
        for i in places:
            one = rows[i].body
            stored[i] = seq, one[:START] + one[rest:]
    n_inserted = 0
    for start in range(0, len(rows), MOST_AT_ONCE):
        values: list[Any] = []
        block = rows[start : start + MOST_AT_ONCE]
        if common:
            parts = stored[start : start + MOST_AT_ONCE]
            for (seq, id, kind, user, model, _), (salt, _, link), (seq_of, own) in zip(
                block, seals[start:], parts, strict=False
            ):
                values += (seq, id, kind, user, model, own, salt, link, seq_of)
        else:
            for row, (salt, _, link) in zip(block, seals[start:], strict=False):
                values += (*row, salt, link)
        n_inserted += connection.execute(_write_insert(len(block), bool(common)), values).rowcount
    return n_inserted, len(common)


@cache
def _write_insert(n: int, common: bool) -> str:
    columns = 'seq, id, kind, "user", model, body, salt, link' + (", common" if common else "")
    marks = f"({', '.join(['?'] * (9 if common else 8))})"
    # `or rollback`: without it, SQLite copies every page that the statement changes, in case it fails
    return f"insert or rollback into event({columns}) values {', '.join([marks] * n)}"
