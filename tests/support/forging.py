"""Somebody who can write to a compacted store and its archive, and computes anew whatever can be computed from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.serve import events
from lcb.serve.base_bodies import CompactBody
from lcb.serve.retain.base import digest_row, digest_rows, stays
from lcb.serve.retain.ids import digest_ids
from lcb.storage.store.base import LAST, SEALED, Row, Seal, Store
from lcb.storage.store.chain import compute_digest, compute_link
from support.tampering import run_sql


def read_rows(url: str, upto: int = LAST) -> list[tuple[Row, Seal]]:
    found = run_sql(url, f"select {SEALED} from event where seq <= ? order by seq", (upto,))
    return [(Row(*one[:6]), Seal(*one[6:])) for one in found]


def read_compaction(url: str) -> tuple[Row, CompactBody]:
    """Return the newest event `compact`, and its body."""
    row = [row for row, _ in read_rows(url) if row.kind == "compact"][-1]
    return row, events.decode(row.kind, row.body)


def forge_base(store: Store, **changes: Any) -> None:
    """Make the newest compaction agree with the rows that are there, and all links from it on with that."""
    url = str(store.url)
    row, body = read_compaction(url)
    body = msgspec.structs.replace(body, **changes)
    if "base" not in changes:
        kept = set(body.kept)
        body.base = digest_rows(
            {one.seq: digest_row(one, seal) for one, seal in read_rows(url, body.upto) if stays(one, kept)}
        )
    if "ids" not in changes:
        body.ids = digest_ids(store, body.upto, set(body.kept))
    run_sql(url, "update event set body = ? where seq = ?", (events.encode(body), row.seq))
    run_sql(url, "delete from snapshot")
    forge_links(url, row.seq)


def forge_links(url: str, first: int) -> None:
    """Compute all links from an event on anew."""
    link: bytes | None = None
    changes = []
    for row, seal in read_rows(url):
        if row.seq >= first:
            digest = seal.digest if seal.salt is None else compute_digest(seal.salt, row)
            assert digest is not None
            link = compute_link(link, row.seq, digest)
            changes.append((link, row.seq))
        else:
            link = seal.link
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("pragma synchronous = off")
        connection.executemany("update event set link = ? where seq = ?", changes)


def change_value(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    if isinstance(value, list | tuple):
        return type(value)([*value[:-1], change_value(value[-1])]) if value else type(value)([_OTHER])
    if isinstance(value, dict):
        return {name: change_value(one) for name, one in value.items()} if value else {"x": 1}
    if isinstance(value, msgspec.Struct):
        first = value.__struct_fields__[0]
        return msgspec.structs.replace(value, **{first: change_value(getattr(value, first))})
    assert value is None
    return _OTHER


_OTHER = 1


def list_fields(kind: str) -> tuple[str, ...]:
    return events.KINDS[kind].__struct_fields__


class ArchivedRows:
    """The events in the files of an archive, which can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.folder / "events").glob("*.parquet")):
            yield from pq.read_table(path).to_pylist()

    def change(self, seq: int, columns: dict[str, Any]) -> None:
        for path in sorted((self.folder / "events").glob("*.parquet")):
            table = pq.read_table(path)
            rows = table.to_pylist()
            for row in rows:
                if row["seq"] == seq:
                    row.update(columns)
            pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path, write_page_checksum=True)
