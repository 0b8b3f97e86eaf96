"""A cache of users, bounded in bytes; the least recently used are evicted, the next commits write their snapshots.

A snapshot is never needed: one that is not worth it is not written, nor one for which there is no room until the
commits have written those before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

from lcb.serve.state.users import EVERYTHING, User
from lcb.storage.store.base import Snapshot

_MOST_UNKNOWN = 10_000
_MOST_EVICTED = 32_000_000  # bytes of snapshots that wait for a commit
_PER_COMMIT = 4_000_000  # bytes of snapshots that one commit writes: others wait for it


class UserCache:
    """Users of at most `most_bytes` together (None: no limit), and at least the last one used.

    All methods but `take_evicted` are for one thread.

    >>> cache = UserCache(500)
    >>> cache.admit("ann", User("lcb", 0, None, seq=1))
    >>> cache.admit("ben", User("lcb", 0, None, seq=2))
    >>> list(cache), cache.can_get("ann"), [one.name for one in cache.take_evicted()], cache.can_get("ann")
    (['ben'], True, ['user/ann'], False)
    """

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self._users: OrderedDict[str, User] = OrderedDict()
        self._evicted: OrderedDict[str, Snapshot] = OrderedDict()  # by user; not written yet
        self._n_evicted = self._n_taken = 0  # bytes of snapshots that were set aside, and of those taken to be written
        self._unknown: set[str] = set()  # names that the log has no event of
        self._erasing: set[str] = set()
        self._held = False

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """Return a user who is in memory, cached or evicted since the last commit."""
        user = self._users.get(name)
        if user is not None:
            self._users.move_to_end(name)
            return user
        user = self._take_back(name)
        if user is not None:
            user.saved, user.fresh = 0, EVERYTHING
            self.admit(name, user)
        return user

    def _take_back(self, name: str) -> User | None:
        snapshot = self._evicted.get(name)
        if snapshot is None:
            return None
        self._forget_evicted(name)
        return User.unpack(snapshot.body)

    def _forget_evicted(self, name: str) -> None:
        if (snapshot := self._evicted.pop(name, None)) is not None:  # else it is being written meanwhile
            self._n_evicted -= len(snapshot.body)

    def _set_aside(self, name: str, user: User) -> None:
        """Keep what the store does not have of a user who is evicted, if it is worth writing."""
        if name in self._erasing or not user.is_worth_writing or self._n_evicted - self._n_taken > _MOST_EVICTED:
            return
        snapshot = user.snapshot(name)
        self._n_evicted += len(snapshot.body)
        self._evicted[name] = snapshot

    def peek(self, name: str) -> User | None:
        """Return a cached user without counting it as a use."""
        return self._users.get(name)

    def touch(self, names: Iterable[str]) -> None:
        """Count a use of cached users, in this order."""
        move = self._users.move_to_end
        for name in names:
            move(name)

    def can_get(self, name: str) -> bool:
        return name in self._users or name in self._evicted

    def knows(self, name: str) -> bool:
        """Whether the user is cached or known to be new, so that the store need not be read."""
        return name in self._users or name in self._unknown

    def is_unknown(self, name: str) -> bool:
        return name in self._unknown

    def admit(self, name: str, user: User | None) -> None:
        """Cache a user; None records that the log has no event of them."""
        if user is None:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown.add(name)
            return
        self._drop(name)
        self._put(name, user)
        self._unknown.discard(name)
        self._forget_evicted(name)
        if not self._held:
            self._evict()

    def replace(self, name: str, user: User) -> None:
        self._drop(name)
        self._put(name, user)

    def _put(self, name: str, user: User) -> None:
        user.held = user.n_bytes + len(name)
        self.n_bytes += user.held
        self._users[name] = user

    def _drop(self, name: str) -> None:
        if (user := self._users.pop(name, None)) is not None:
            self.n_bytes -= user.held

    def hold(self) -> None:
        """Evict no user until `release`, because events that need these users are being applied."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._evict()

    @property
    def is_over(self) -> bool:
        """Whether users have to be evicted."""
        return self.most_bytes is not None and self.n_bytes > self.most_bytes and len(self._users) > 1

    def _evict(self) -> None:
        while self.is_over:
            name, user = self._users.popitem(last=False)
            self.n_bytes -= user.held
            self._set_aside(name, user)

    def take_evicted(self) -> list[Snapshot]:
        """Return and forget the oldest snapshots of evicted users, at least one; the caller writes them."""
        taken, n_bytes = list[Snapshot](), 0
        while n_bytes < _PER_COMMIT:
            try:
                snapshot = self._evicted.popitem(last=False)[1]
            except KeyError:
                break
            taken.append(snapshot)
            n_bytes += len(snapshot.body)
        self._n_taken += n_bytes
        return taken

    def unsaved_snapshots(self) -> list[Snapshot]:
        """Return snapshots of cached users that the store does not have."""
        return [user.snapshot(name) for name, user in self._users.items() if user.unsaved]

    def begin_erasing(self, name: str) -> None:
        """Drop a user, and make no snapshot of them until `end_erasing`."""
        self._erasing.add(name)
        self._drop(name)
        self._forget_evicted(name)

    def end_erasing(self, name: str) -> None:
        self._erasing.discard(name)

    def forget(self, seqs: Collection[int]) -> None:
        """Drop the user whose newest event is one of these; an `erase` event names seqs, not the user."""
        for name in [name for name, user in self._users.items() if user.seq in seqs]:
            self._drop(name)
        for name in list(self._evicted):
            if (one := self._evicted.get(name)) is not None and one.seq in seqs:
                self._forget_evicted(name)
