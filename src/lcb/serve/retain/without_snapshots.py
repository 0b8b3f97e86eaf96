"""A store seen without its snapshots, so that a state is replayed from the log alone."""

from __future__ import annotations

from typing import Any

from lcb.serve.event_ids import WORLD_SNAPSHOT
from lcb.serve.state.world import World
from lcb.storage.store.base import Row, Snapshot, Store


class WithoutSnapshots:
    """A store whose snapshots are hidden, except the service-wide one if it is given as `kept`.

    If `world` is set, it keeps all users in memory; of a user it does not have, only the rows up to `base` are read,
    the event that the world began after.
    """

    def __init__(self, store: Store, kept: Snapshot | None = None, base: int = 0) -> None:
        self._store, self._kept, self._base = store, kept, base
        self.world: World | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, name: str) -> Snapshot | None:
        return self._kept if name == WORLD_SNAPSHOT else None

    def events_of(self, user: str, after: int = 0, upto: int | None = None) -> list[Row]:
        if not self._is_new(user):
            return self._store.events_of(user, after, upto)
        last = self._base if upto is None else min(upto, self._base)
        return self._store.events_of(user, after, last) if last else []

    def newest_of(self, user: str) -> int:
        if not self._is_new(user):
            return self._store.newest_of(user)
        rows = self.events_of(user)
        return rows[-1].seq if rows else 0

    def _is_new(self, user: str) -> bool:
        world = self.world
        return world is not None and not world.cache.can_get(user)
