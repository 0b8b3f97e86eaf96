"""Bodies of events in an SQLite store: bytes that many events of one commit have in common are stored once.

The decisions of a batch from the same arms differ in little but the user, the time and the arm that was taken.  Where
bodies in a row have the same bytes after their first START, in which the time is, these go to the table `common`:

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
FEWEST = 32  # events; for fewer a second statement is not worth it
_SMALLEST = 256  # bytes in common
_MOST_AT_ONCE = 128
_MOST_APART = 2000  # events of one commit, and more
BODY = (
    f"case when common is null then body else coalesce((select cast(substr(event.body, 1, {START}) || common.body "
    f"|| substr(event.body, {START + 1}) as blob) from common where common.seq = event.common), body) end"
)
COLUMNS = f'seq, id, kind, "user", model, {BODY}'
SEALED = f"{COLUMNS}, salt, digest, link"
_WITHOUT_EVENTS = (
    "not exists (select 1 from event where event.seq between common.seq and common.last and event.common = common.seq)"
)
DROP_COMMON = f"delete from common where seq > ? - {_MOST_APART} and seq <= ? and last >= ? and {_WITHOUT_EVENTS}"


class Common(NamedTuple):
    """Bytes that the bodies from `first` up to but not including `end` have after the START."""

    first: int
    end: int
    body: bytes


def find_common(bodies: Sequence[bytes]) -> list[Common]:
    """Return the bytes that bodies in a row have in common, where that saves enough.

    >>> arms, times = bytes(300), [f"{i:010d}".encode() for i in range(40)]
    >>> [(first, end, len(body)) for first, end, body in find_common([time + arms + b"x" + time for time in times])]
    [(0, 40, 309)]
    """
    found, i, n = list[Common](), 0, len(bodies)
    while i + FEWEST <= n:
        common, end = _find_prefix(bodies[i][START:], bodies[i + 1]), i + 1
        while len(common) >= _SMALLEST and end < n:
            if not bodies[end].startswith(common, START):
                shorter = _find_prefix(common, bodies[end])
                if 4 * len(shorter) < 3 * len(common) or len(shorter) < _SMALLEST:
                    break
                common = shorter
            end += 1
        if end - i >= FEWEST:
            found.append(Common(i, end, common))
        i = end
    return found


def _find_prefix(wanted: bytes, body: bytes) -> bytes:
    """Return how `wanted` begins, as far as it is in a body after the START; nothing if that is little."""
    if not body.startswith(wanted[:_SMALLEST], START):
        return b""
    low, high = 0, len(wanted)
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
    places = list[tuple[int | None, bytes]]((None, row.body) for row in rows) if common else []
    for first, end, body in common:
        seq, rest = rows[first].seq, START + len(body)
        connection.execute("insert into common values(?, ?, ?)", (seq, rows[end - 1].seq, body))
        places[first:end] = [(seq, one[:START] + one[rest:]) for _, one in places[first:end]]
    n_inserted = 0
    for start in range(0, len(rows), _MOST_AT_ONCE):
        values: list[Any] = []
        block = rows[start : start + _MOST_AT_ONCE]
        if common:
            parts = places[start : start + _MOST_AT_ONCE]
            for row, (salt, _, link), (seq_of, own) in zip(block, seals[start:], parts, strict=False):
                values += (*row[:5], own, salt, link, seq_of)
        else:
            for row, (salt, _, link) in zip(block, seals[start:], strict=False):
                values += (*row, salt, link)
        n_inserted += connection.execute(_write_insert(len(block), bool(common)), values).rowcount
    return n_inserted, len(common)


def takes_one_statement(bodies: Sequence[bytes]) -> bool:
    """Whether `insert_rows` inserts events with these bodies by one statement."""
    return 0 < len(bodies) <= _MOST_AT_ONCE and not find_common(bodies)


@cache
def _write_insert(n: int, common: bool) -> str:
    columns = 'seq, id, kind, "user", model, body, salt, link' + (", common" if common else "")
    marks = f"({', '.join(['?'] * (9 if common else 8))})"
    return f"insert into event({columns}) values {', '.join([marks] * n)}"
