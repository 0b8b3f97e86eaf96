"""Why the store does not accept writes, for readiness, metrics and the operational log."""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog

from lcb.errors import StoreError, StoreUnavailable

_DOUBT = 3.0  # seconds after a failed write in which a check alone does not end trouble


class Trouble:
    """The trouble of a store, `words`; None: there is none."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.words: str | None = None
        self.is_passing = False  # it may be over by itself: the disk is full, the file is away or locked
        self.is_lost = False  # the store no longer has what was answered: its file is gone, or its log another one
        self._failed_at = -math.inf  # when a write last failed

    def note(self, error: StoreError | None) -> None:
        """Set the trouble, with a line in the operational log when it begins, changes or is over."""
        words = None if error is None else str(error)
        if words != self.words:
            log = structlog.get_logger("lcb.serve")
            log.info("the store accepts writes again") if words is None else log.error("store", error=words)
        self.words, self.is_passing = words, isinstance(error, StoreUnavailable)
        self.is_lost = error is not None and error.replaced

    def note_failed_write(self, error: StoreError) -> None:
        self._failed_at = self.monotonic()
        self.note(error)

    def note_check(self) -> None:
        """End the trouble after a check that found none, unless a write has just failed: writes tell more."""
        if self.words is not None and self.monotonic() - self._failed_at >= _DOUBT:
            self.note(None)
