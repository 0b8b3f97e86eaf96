"""Empties the write-ahead log of an SQLite store, where erased rows remain."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path


class WalScrubber:
    """Empties the write-ahead log; while that is `due`, the store tries again with every check."""

    def __init__(self, path: Path, *, due: bool) -> None:
        self.due = due  # erased rows are, or from before may be, still in the write-ahead log
        self._wal = f"{path}-wal"
        self._failing = False

    def scrub(self, connection: sqlite3.Connection, *, wait: bool = True) -> None:
        """Try once; a long read delays it, and a full or faulty disk, of which the operational log has a line."""
        self.due = True
        busy_timeout = connection.execute("pragma busy_timeout").fetchone()[0]
        try:
            if not wait:
                connection.execute("pragma busy_timeout = 0")
            busy, _, _ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        except sqlite3.Error as error:  # the erasure is committed
            self._note_failure(error)
        else:
            self.due = bool(busy)
            if not busy:
                self._note_success()
        finally:
            connection.execute(f"pragma busy_timeout = {busy_timeout}")

    def _note_failure(self, error: sqlite3.Error) -> None:
        if not self._failing:
            self._failing = True
            words = (
                "what was erased may still be in %s, which cannot be emptied (%s); check the disk: it is tried again"
            )
            logging.getLogger("lcb.storage").warning(words, self._wal, error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            logging.getLogger("lcb.storage").warning("what was erased is no longer in %s: it is emptied", self._wal)
