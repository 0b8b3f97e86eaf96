"""How a compaction writes to a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from lcb.storage.store.retention import Retention, Write


class PostgresRetention(Retention):
    """Writes by the connection of a PostgreSQL store, in one round trip."""

    _transaction: Callable[..., AbstractContextManager[tuple[Any, list[list[Any]]]]]
    _end: Callable[..., None]

    def _write(self, *writes: Write) -> None:
        with self._transaction() as (connection, _):
            self._end(connection, *((statement, one) for statement, values in writes for one in values))
