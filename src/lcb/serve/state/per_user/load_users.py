"""Loads users from the store: a snapshot and the events after it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from lcb.serve.event_ids import changes_reward, user_snapshot
from lcb.serve.read_event import lighten, read_event
from lcb.serve.state.per_user.fold_ahead import FoldedAhead, fold_ahead
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.users import EVERYTHING, User
from lcb.storage.store.base import Row, Snapshot, Store

LARGE_HISTORY = 1_000_000  # bytes; reading and folding less takes under 10 ms
_MOST_LARGE = 10_000  # names that are remembered


@dataclass(frozen=True)
class Prefetched:
    """What a batch of events needs: its users as of just before it, and all events of users whose rewards change.

    `rows` is the batch read again, because some events may have been erased since.  `folded` has the users whose
    rewards change as of after the first changes.
    """

    rows: list[Row]
    users: dict[str, User | None]
    histories: dict[str, list[Row]]
    folded: dict[str, FoldedAhead]


class UserLoader:
    """Loads users as of a given seq; its methods may run in any thread."""

    def __init__(self, store: Store, fold: UserFold) -> None:
        self.store, self.fold = store, fold
        self._large: set[str] = set()  # users who were found to be large: to count their bytes takes a while

    def load(self, name: str, upto: int) -> User | None:
        """Return a user as of `upto`; None if the log has no event of them."""
        newest = self.store.newest_of(name)
        if newest == 0:
            return None
        snapshot = self.store.snapshot(user_snapshot(name))
        if snapshot is None or snapshot.seq > upto:
            user = self.fold.fold(self.read_events(name, 0, upto))
            if user is not None and name in self._large:  # the events that were folded are shortened
                user.fresh = EVERYTHING
            return user
        if snapshot.seq == newest and (user := self._unpack(snapshot)) is not None:
            return user
        return self._resume(snapshot, name, self.read_events(name, snapshot.seq - 1, upto), upto)

    def is_large(self, name: str, upto: int) -> bool:
        """Whether a user's events are so many or so large that they should be read in a thread."""
        if name not in self._large:
            if self.store.bytes_of(name, upto) <= LARGE_HISTORY:
                return False
            if len(self._large) >= _MOST_LARGE:
                self._large.clear()
            self._large.add(name)
        return True

    def read_events(self, name: str, after: int, upto: int) -> list[Row]:
        """Read a user's events to fold them; of many or large ones, only what folding needs is kept in memory."""
        if self.is_large(name, upto):
            return list(map(lighten, self.store.stream_of(name, after, upto)))
        return self.store.events_of(name, after, upto)

    def prefetch(self, rows: Sequence[Row], names: Iterable[str]) -> Prefetched:
        """Read what is needed to apply `rows`, the next events of the log; nothing else may be applied meanwhile.

        Users are read first and the rows again after them, so that a user erased in between is in neither.
        """
        upto = rows[0].seq - 1
        found = self.store.snapshots([user_snapshot(name) for name in names])
        snapshots = {name: found.get(user_snapshot(name)) for name in names}
        after = {name: 0 if one is None or one.seq > upto else one.seq - 1 for name, one in snapshots.items()}
        users = {}
        large = {name for name in after if self.is_large(name, upto)}
        events_of = self.store.events_of_each({name: seq for name, seq in after.items() if name not in large}, upto)
        events_of |= {name: self.read_events(name, after[name], upto) for name in large}
        for name, later in events_of.items():
            snapshot = snapshots[name]
            if snapshot is None or not after[name]:
                users[name] = user = self.fold.fold(later)
                if user is not None and name in large:
                    user.fresh = EVERYTHING
            else:
                users[name] = self._resume(snapshot, name, later, upto)
        changed = dict.fromkeys(row.user for row in rows if row.user is not None and needs_history(row))
        histories, seconds = dict[str, list[Row]](), dict[str, float]()
        for name in changed:
            began = time.perf_counter()
            histories[name] = self.read_events(name, 0, upto)
            seconds[name] = time.perf_counter() - began
        again = list(self.store.events(upto, rows[-1].seq))
        folded = {name: fold_ahead(self.fold, name, past, again, seconds[name]) for name, past in histories.items()}
        return Prefetched(again, users, histories, {name: one for name, one in folded.items() if one is not None})

    def _resume(self, snapshot: Snapshot, name: str, rows: list[Row], upto: int) -> User | None:
        """Fold events onto a snapshot; `rows` begin with the event it was made after.

        All events are folded anew if the snapshot is not of this log, or if one of them changes an earlier reward.
        """
        user, bodies = self._unpack(snapshot), [(row, read_event(row)) for row in rows[1:]]
        if user is not None and (not rows or rows[0].seq != snapshot.seq):
            self.store.discard_snapshot(snapshot.name, f"event {snapshot.seq} is not of this user")
            user = None
        if user is None or any(
            row.kind == "base" or (row.kind == "reward" and body.before is not None) for row, body in bodies
        ):
            return self.fold.fold(self.read_events(name, 0, upto))
        for row, body in bodies:
            self.fold.step(user, row, body, getattr(body, "reward", 0.0))
        return user

    def _unpack(self, snapshot: Snapshot) -> User | None:
        try:
            return User.unpack(snapshot.body)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            self.store.discard_snapshot(snapshot.name, f"it cannot be read: {error}")
            return None


def needs_history(row: Row) -> bool:
    """Whether an event changes an earlier reward, so that applying it needs all events of its user."""
    return row.kind == "reward" and changes_reward(row.id)
