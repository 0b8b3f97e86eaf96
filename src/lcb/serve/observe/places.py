"""Errors of the store as callers are told of them: not where the store and the archive are, which the log says."""

from __future__ import annotations

import re
import time
from pathlib import Path

import structlog

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.errors import Problem
from lcb.serve.observe.redaction import redact

_SAY_AGAIN = 60.0  # seconds after which the operational log names the same error again


class Places:
    """Where a service keeps its data; `hide` takes it out of what callers are told.

    >>> Places("lcb.db", Path("lcb.db.archive")).hide("lcb.db could not be written; is lcb.db.archive there?")
    'the store could not be written; is the archive there?'
    """

    def __init__(self, store: str, archive: Path | None) -> None:
        self._server = store if "://" in store else None
        names = {store: "the store"}
        if self._server is None:
            names[str(Path(store).resolve())] = "the store"
        if archive is not None:
            names |= {f"the archive {archive}": "the archive", str(archive): "the archive"}
            names[str(archive.resolve())] = "the archive"
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))
        self._said: tuple[str, float] = "", 0.0

    def hide(self, text: str) -> str:
        """Return the text without these places, and without secrets.

        What a database server says stands in brackets; it names hosts, users and databases.
        """
        text = redact(text)
        if self._server is not None and self._server in text:
            text = re.sub(r" \(.*\)", "", text)
        for name, instead in self._names:
            text = text.replace(name, instead)
        return text

    def build_problem(self, error: StoreError) -> Problem:
        """Return what a caller is told of an error of the store; the operational log gets the error itself."""
        words, now = str(error), time.monotonic()
        if words != self._said[0] or now - self._said[1] > _SAY_AGAIN:
            self._said = words, now
            structlog.get_logger("lcb.serve").error("store", error=words)
        return Problem(503, words, retry_after=1 if isinstance(error, StoreUnavailable) else 60)
