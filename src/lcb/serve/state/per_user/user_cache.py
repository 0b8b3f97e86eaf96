"""A cache of users, bounded in bytes; the least recently used are evicted, the next commit writes their snapshots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

from lcb.serve.state.users import User
from lcb.storage.store.base import Snapshot

_MOST_UNKNOWN = 10_000


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
        self._evicted: dict[str, Snapshot] = {}  # by user; not written yet
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
            user.saved = 0
            self.admit(name, user)
        return user

    def _take_back(self, name: str) -> User | None:
        snapshot = self._evicted.pop(name, None)
        return None if snapshot is None else User.unpack(snapshot.body)

    def _set_aside(self, name: str, user: User) -> None:
        """Keep what the store does not have of a user who is evicted."""
        if user.unsaved and name not in self._erasing:
            self._evicted[name] = user.snapshot(name)

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
        self._evicted.pop(name, None)
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
        """Return and forget the snapshots of evicted users; the caller writes them."""
        evicted, self._evicted = self._evicted, {}
        return list(evicted.values())

    def unsaved_snapshots(self) -> list[Snapshot]:
        """Return snapshots of cached users that the store does not have."""
        return [user.snapshot(name) for name, user in self._users.items() if user.unsaved]

    def begin_erasing(self, name: str) -> None:
        """Drop a user, and make no snapshot of them until `end_erasing`."""
        self._erasing.add(name)
        self._drop(name)
        self._evicted.pop(name, None)

    def end_erasing(self, name: str) -> None:
        self._erasing.discard(name)

    def forget(self, seqs: Collection[int]) -> None:
        """Drop the user whose newest event is one of these; an `erase` event names seqs, not the user."""
        for name in [name for name, user in self._users.items() if user.seq in seqs]:
            self._drop(name)
        self._evicted = {name: one for name, one in self._evicted.items() if one.seq not in seqs}
