"""Entries and other work that wait for the thread that writes, and why some must be built again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from lcb.serve.decide.entry import Entry
from lcb.storage.store.base import Appended, Store


class IdTaken(Exception):
    """Other events with these ids were stored first, or the users were erased: build them again from the new state."""

    def __init__(self, *ids: str) -> None:
        super().__init__(*ids)
        self.ids = frozenset(ids)


class WorldBehindLog(Exception):
    """Raised by a job that needs the state in memory to have caught up with the log."""


class Waiting(Struct):
    """The entries of one request, which one commit stores."""

    entries: Sequence[Entry]
    done: asyncio.Future[None]
    since: float
    seq: int  # of the state when they were appended
    caller: str

    def is_older(self, entry: Entry, seq: int) -> bool:
        """Whether an entry was built from a state before `seq`."""
        return (self.seq if entry.made_from is None else entry.made_from) < seq


class Job(Struct):
    """Other work for the writing thread: `work(store, seen)`."""

    work: Callable[[Store, int], Appended]
    done: asyncio.Future[None]


def list_entries(batch: Iterable[Waiting]) -> list[Entry]:
    return [entry for one in batch for entry in one.entries]
