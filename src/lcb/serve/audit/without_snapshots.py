"""A store seen without its snapshots, so that a state is replayed from the log alone."""

from __future__ import annotations

from typing import Any

from lcb.serve.event_ids import WORLD_SNAPSHOT
from lcb.serve.state.world import World
from lcb.storage.store.base import Row, Snapshot, Store


class WithoutSnapshots:
    """A store whose snapshots are hidden, except the service-wide one if it is given as `kept`.

    If `world` is set, it keeps all users in memory; a user it does not have is new, and the store is not asked.
    """

    def __init__(self, store: Store, kept: Snapshot | None = None) -> None:
        self._store, self._kept = store, kept
        self.world: World | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, name: str) -> Snapshot | None:
        return self._kept if name == WORLD_SNAPSHOT else None

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]:
        return [] if self._is_new(user) else self._store.events_of(user, after, upto)

    def newest_of(self, user: str) -> int:
        return 0 if self._is_new(user) else self._store.newest_of(user)

    def _is_new(self, user: str) -> bool:
        world = self.world
        return world is not None and not world.cache.can_get(user)
