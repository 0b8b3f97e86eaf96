"""Who is told about events after they are applied: the dashboard, the schedule of learning, sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from lcb.storage.store.base import Row

Watcher = Callable[[Row, Any], None]
BatchWatcher = Callable[[Sequence[Row], Sequence[Any]], None]


class Watchers:
    """Calls watchers with the events of the kinds that they want, once a batch of events is applied.

    >>> watchers, seen = Watchers(), []
    >>> watchers.watch(lambda row, body: seen.append(row.seq), ("reward",))
    >>> watchers.watch_batches(lambda rows, bodies: seen.append([row.seq for row in rows]), ("reward", "decision"))
    >>> kinds = ("reward", "decision", "audit", "reward")
    >>> rows = [Row(seq, f"e{seq}", kind, None, None, b"") for seq, kind in enumerate(kinds)]
    >>> watchers.notify(rows, [None] * 4)
    >>> seen
    [[0, 1, 3], 0, 3]
    """

    def __init__(self) -> None:
        self._watchers: list[tuple[Watcher, frozenset[str]]] = []
        self._of_batches: list[tuple[BatchWatcher, frozenset[str]]] = []

    def watch(self, watcher: Watcher, kinds: Collection[str]) -> None:
        """Call `watcher` with every event of these kinds."""
        self._watchers.append((watcher, frozenset(kinds)))

    def watch_batches(self, watcher: BatchWatcher, kinds: Collection[str]) -> None:
        """Call `watcher` once with all events of these kinds that are applied together."""
        self._of_batches.append((watcher, frozenset(kinds)))

    def unwatch(self, watcher: Watcher | BatchWatcher) -> None:
        self._watchers = [one for one in self._watchers if one[0] != watcher]
        self._of_batches = [one for one in self._of_batches if one[0] != watcher]

    def notify(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        """Tell the watchers about events that were applied, in their order."""
        came = {row.kind for row in rows}
        for of_batches, kinds in self._of_batches:
            if came <= kinds:
                of_batches(rows, bodies)
            elif not came.isdisjoint(kinds):
                places = [i for i, row in enumerate(rows) if row.kind in kinds]
                of_batches([rows[i] for i in places], [bodies[i] for i in places])
        watchers = [(watcher, kinds) for watcher, kinds in self._watchers if not came.isdisjoint(kinds)]
        if watchers:
            for row, body in zip(rows, bodies, strict=True):
                for watcher, kinds in watchers:
                    if row.kind in kinds:
                        watcher(row, body)
