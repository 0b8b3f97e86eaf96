"""Who is told about events after they are applied: the dashboard, the schedule of learning, sessions.

An error of a watcher does not reach the state, which is right, nor the other watchers.  It is logged and counted, and
the watcher makes up for what it missed: `missed` is called, and with each later batch again until it does not fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import structlog

from lcb.storage.store.base import Row

Watcher = Callable[[Row, Any], None]
BatchWatcher = Callable[[Sequence[Row], Sequence[Any]], None]


class _Watching(ABC):
    """A watcher, the kinds of events that it wants, and how it makes up for events that it missed."""

    def __init__(self, watcher: Watcher | BatchWatcher, kinds: Collection[str], missed: Callable[[], None]) -> None:
        self.watcher, self.kinds, self.missed = watcher, frozenset(kinds), missed
        self.name = getattr(watcher, "__qualname__", type(watcher).__name__)
        self.has_missed = False

    @abstractmethod
    def tell(self, rows: Sequence[Row], bodies: Sequence[Any], came: set[str]) -> None:
        """Tell the watcher of the events that it wants; `came` are the kinds of all."""


class _OfEach(_Watching):
    def tell(self, rows: Sequence[Row], bodies: Sequence[Any], came: set[str]) -> None:
        watcher: Any = self.watcher
        for row, body in zip(rows, bodies, strict=True):
            if row.kind in self.kinds:
                watcher(row, body)


class _OfBatches(_Watching):
    def tell(self, rows: Sequence[Row], bodies: Sequence[Any], came: set[str]) -> None:
        watcher: Any = self.watcher
        if came <= self.kinds:
            watcher(rows, bodies)
        else:
            places = [i for i, row in enumerate(rows) if row.kind in self.kinds]
            watcher([rows[i] for i in places], [bodies[i] for i in places])


class Watchers:
    """Calls watchers with the events of the kinds that they want, once a batch of events is applied.

    >>> watchers, seen = Watchers(), []
    >>> watchers.watch(lambda row, body: seen.append(row.seq), ("reward",), seen.clear)
    >>> watchers.watch_batches(lambda rows, bodies: seen.append(len(rows)), ("reward", "decision"), seen.clear)
    >>> kinds = ("reward", "decision", "audit", "reward")
    >>> rows = [Row(seq, f"e{seq}", kind, None, None, b"") for seq, kind in enumerate(kinds)]
    >>> watchers.notify(rows, [None] * 4)
    >>> seen
    [0, 3, 3]
    """

    def __init__(self) -> None:
        self._watching: list[_Watching] = []
        self.n_failed: Counter[str] = Counter()  # by watcher, since the start

    def watch(self, watcher: Watcher, kinds: Collection[str], missed: Callable[[], None]) -> None:
        """Call `watcher` with every event of these kinds; `missed` after an error, in place of the events it missed."""
        self._add(_OfEach(watcher, kinds, missed))

    def watch_batches(self, watcher: BatchWatcher, kinds: Collection[str], missed: Callable[[], None]) -> None:
        """Call `watcher` once with all events of these kinds that are applied together; `missed` as for `watch`."""
        self._add(_OfBatches(watcher, kinds, missed))

    def _add(self, one: _Watching) -> None:
        self._watching.append(one)
        self.n_failed.setdefault(one.name, 0)

    def unwatch(self, watcher: Watcher | BatchWatcher) -> None:
        self._watching = [one for one in self._watching if one.watcher != watcher]

    def notify(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        """Tell the watchers about events that were applied, in their order."""
        came = {row.kind for row in rows}
        for one in self._watching:
            try:
                if one.has_missed:
                    self._make_up(one)
                elif not came.isdisjoint(one.kinds):
                    one.tell(rows, bodies, came)
            except Exception as error:  # noqa: BLE001 (whatever it is, the state is right and others are told)
                self._note_failure(one, error)

    def _make_up(self, one: _Watching) -> None:
        """Let a watcher make up for what it missed, up to the events that were just applied."""
        one.missed()
        one.has_missed = False

    def _note_failure(self, one: _Watching, error: Exception) -> None:
        again, one.has_missed = one.has_missed, True
        with suppress(MemoryError):  # it is told again with the next batch
            self.n_failed[one.name] += 1
            n, words = self.n_failed[one.name], f"{type(error).__name__}: {error}"
            if n & (n - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
                log = structlog.get_logger("lcb.serve")
                log.error("a watcher failed", watcher=one.name, error=words, n=n, exc_info=error)
        if not again:
            try:
                self._make_up(one)
            except Exception as second:  # noqa: BLE001 (as above)
                self._note_failure(one, second)
