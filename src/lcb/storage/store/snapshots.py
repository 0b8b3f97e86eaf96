"""Snapshots with a checksum: a damaged one is never returned, and the next append deletes it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from lcb.storage.store.base import USER_SNAPSHOTS, Snapshot, storable

_COLUMNS = "name, seq, body, checksum"
_PAGE = 1000


def add_checksums(snapshots: Iterable[Snapshot]) -> list[tuple[str, int, bytes, bytes]]:
    """Return the rows to store."""
    return [(*one, _checksum(*one)) for one in snapshots]


def _checksum(name: str, seq: int, body: bytes) -> bytes:
    """Return a checksum against damage; it is no protection against somebody who can write to the store."""
    return blake2b(f"{seq} {name}\n".encode() + body, digest_size=16).digest()


class CheckedSnapshots(ABC):
    """Reading snapshots, the same in every store; `damaged` are the names of those to delete with the next append."""

    placeholder: str
    damaged: set[str]
    _read: Callable[..., list[Any]]

    def snapshot(self, name: str) -> Snapshot | None:
        found = self._read(f"select {_COLUMNS} from snapshot where name = {self.placeholder}", (storable(name),))
        return next(self._take_intact(found), None)

    def snapshots(self, names: Sequence[str]) -> dict[str, Snapshot]:
        found = self._read_snapshots(f"select {_COLUMNS} from snapshot where name", [*map(storable, names)])
        return {one.name: one for one in self._take_intact(found)}

    def all_snapshots(self, after: str = "") -> Iterator[Snapshot]:
        """Yield all snapshots whose name comes after `after`, in the order of names."""
        mark = self.placeholder
        statement = f"select {_COLUMNS} from snapshot where name > {mark} order by name limit {_PAGE}"
        while found := self._read(statement, (after,)):
            yield from self._take_intact(found)
            after = found[-1][0]

    def discard_snapshot(self, name: str, why: str) -> None:
        """Say in the operational log why a snapshot is not used, and delete it with the next append."""
        if name not in self.damaged:
            self.damaged.add(name)
            whose = "a user" if name.startswith(USER_SNAPSHOTS) else "the service"
            words = "the snapshot of %s is dropped (%s); its state is computed from the events of the log again"
            logging.getLogger("lcb.storage").warning(words, whose, why)

    def _take_intact(self, found: list[tuple[str, int, bytes, bytes]]) -> Iterator[Snapshot]:
        for name, seq, body, checksum in found:
            if checksum == _checksum(name, seq, body):
                if name not in self.damaged:
                    yield Snapshot(name, seq, body)
            else:
                self.discard_snapshot(name, "its checksum is wrong")

    @abstractmethod
    def _read_snapshots(self, statement: str, names: list[str]) -> list[Any]:
        """Run a statement that ends in `where name`, completed by a test for these names."""
