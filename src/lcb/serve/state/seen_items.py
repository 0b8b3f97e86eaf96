"""What a user was shown and took, folded from the user's own events.

Only users for whom a request asks are kept, so that other services pay nothing.  The least recently used are dropped
and read from the log again when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from lcb.serve.event_ids import slot_of_reward
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Row, Store

MOST_BYTES = 32_000_000
_ITEM_BYTES, _USER_BYTES = 110, 400  # of an item in a dict and of a user, without their names


class Seen(Struct):
    """The items that one user was shown, each with the number of its slots that have a reward above 0."""

    items: dict[str, int]
    seq: int = 0  # of the user's newest event
    n_bytes: int = _USER_BYTES

    def apply(self, row: Row, body: Any, slots: Mapping[str, str] | None = None) -> bool:
        """Apply an event of the user; False if it names its item only by the slot, which `slots` does not have."""
        self.seq = row.seq
        if row.kind == "decision":
            for arm in body.shown:
                self._add(arm.id)
        elif row.kind == "reward":
            item = body.item or (slots or {}).get(slot_of_reward(row.id))
            if item is None:
                return False
            self._add(item)
            self.items[item] += (body.reward > 0) - ((body.before or 0.0) > 0)
        return True

    def _add(self, item: str) -> None:
        if item not in self.items:
            self.items[item] = 0
            self.n_bytes += _ITEM_BYTES + len(item)

    def find(self, rule: str) -> Collection[str]:
        """Return the items that a rule rules out: what was shown, or of that what was taken."""
        return self.items if rule == "exclude" else {item for item, n in self.items.items() if n > 0}


class SeenItems:
    """The items of users who were asked for; all methods but `read` are for one thread."""

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self.store, self.most_bytes = store, most_bytes
        self.n_bytes = 0
        self._users: OrderedDict[str, Seen] = OrderedDict()
        self._reading: dict[str, list[tuple[Row, Any]] | None] = {}  # events applied while a user is read

    def __bool__(self) -> bool:
        """Whether events need to be applied here."""
        return bool(self._users or self._reading)

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def get(self, name: str, upto: int) -> Seen:
        """Return what a user was shown up to the event `upto`, the last one that was applied."""
        seen = self._users.get(name)
        if seen is None:
            seen = self.read(name, upto)
            self._put(name, seen)
        else:
            self._users.move_to_end(name)
        return seen

    def read(self, name: str, upto: int) -> Seen:
        """Fold the events of a user up to `upto`; may run in any thread."""
        return fold_seen(self.store.stream_of(name, 0, upto))

    def begin_reading(self, name: str) -> None:
        """Keep the events of a user that are applied from here on, until `admit` is called with what was read."""
        self._reading[name] = []

    def admit(self, name: str, seen: Seen | None) -> None:
        """Keep what was read in another thread, unless a user was erased meanwhile; None: it could not be read."""
        since = self._reading.pop(name)
        if seen is not None and since is not None and all(seen.apply(row, body) for row, body in since):
            self._put(name, seen)

    def _put(self, name: str, seen: Seen) -> None:
        self._users[name] = seen
        self.n_bytes += seen.n_bytes + len(name)
        while self.n_bytes > self.most_bytes and len(self._users) > 1:
            self._drop(next(iter(self._users)))

    def _drop(self, name: str) -> None:
        self.n_bytes -= self._users.pop(name).n_bytes + len(name)

    def apply(self, row: Row, body: Any) -> None:
        """Apply an event to its user, if the user is kept."""
        name = row.user
        if name is None:
            return
        if (since := self._reading.get(name)) is not None:
            since.append((row, body))
        if (seen := self._users.get(name)) is not None:
            before = seen.n_bytes
            if seen.apply(row, body):
                self.n_bytes += seen.n_bytes - before
            else:
                self._drop(name)

    def forget(self, seqs: Collection[int]) -> None:
        """Drop the user whose newest event is one of these, and what is being read."""
        self._reading = dict.fromkeys(self._reading)
        for name in [name for name, seen in self._users.items() if seen.seq in seqs]:
            self._drop(name)


def fold_seen(rows: Iterable[Row]) -> Seen:
    """Fold all events of a user."""
    seen, slots = Seen({}), dict[str, str]()
    for row in rows:
        body = read_event(row)
        if row.kind == "base":
            seen = Seen(dict(body.seen), row.seq)
            seen.n_bytes += sum(_ITEM_BYTES + len(item) for item in body.seen)
            continue
        if row.kind == "decision":
            slots.update({id: arm.id for id, arm in body.slots(row.id).items()})
        seen.apply(row, body, slots)
    return seen
