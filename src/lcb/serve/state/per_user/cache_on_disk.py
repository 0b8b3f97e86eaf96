"""A cache of users for a replay that writes no snapshots: those beyond some bytes are in a file that has no name."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection
from hashlib import blake2b
from types import TracebackType

from lcb.errors import StoreUnavailable
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.users import LOST, User

_PAGES = 4_000  # KB of the file that are kept in memory
_MOST_NAMED = 500  # seqs of one statement


class CacheOnDisk(UserCache):
    """Users of at most `most_bytes` together in memory (None: all), and the others in a temporary file; a context.

    The file has keyed digests in place of names, so nobody finds in it who was erased.  Its users come back as they
    were.  All methods are for one thread.

    >>> with CacheOnDisk(500) as cache:
    ...     cache.admit("ann", User("lcb", 0, None, seq=1))
    ...     cache.admit("ben", User("lcb", 0, None, seq=2))
    ...     list(cache), cache.can_get("ann"), cache.get("ann").seq, list(cache)
    (['ben'], True, 1, ['ann'])
    """

    def __init__(self, most_bytes: int | None) -> None:
        super().__init__(most_bytes)
        self._key = secrets.token_bytes(16)
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("pragma journal_mode = off")
        self._file.execute(f"pragma cache_size = -{_PAGES}")
        self._file.execute("create table user (key blob primary key, seq integer, body blob) without rowid")
        self._file.execute("create index user_seq on user (seq)")
        self._file.execute("begin")

    def __enter__(self) -> CacheOnDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget all users."""
        self._file.close()
        self._users.clear()
        self._unknown.clear()
        self.n_bytes = 0

    def can_get(self, name: str) -> bool:
        return name in self._users or self._is_aside(name)

    def knows(self, name: str) -> bool:
        return self.is_unknown(name) or self.can_get(name)

    def forget(self, seqs: Collection[int]) -> None:
        super().forget(seqs)
        left = list(seqs)
        for i in range(0, len(left), _MOST_NAMED):
            some = left[i : i + _MOST_NAMED]
            self._run(f"delete from user where seq in ({','.join('?' * len(some))})", *some)

    def _is_aside(self, name: str) -> bool:
        return bool(self._run("select 1 from user where key = ?", self._hide(name)))

    def _take_back(self, name: str) -> User | None:
        key = self._hide(name)
        found = self._run("select body from user where key = ?", key)
        if not found:
            return None
        self._run("delete from user where key = ?", key)
        user = User.unpack(found[0][0])
        if user.state is not None and not len(user.state):
            user.state = LOST
        return user

    def _set_aside(self, name: str, user: User) -> None:
        self._run("insert or replace into user values (?, ?, ?)", self._hide(name), user.seq, user.pack())

    def _hide(self, name: str) -> bytes:
        return blake2b(name.encode(), digest_size=16, key=self._key).digest()

    def _run(self, statement: str, *values: object) -> list[tuple[bytes]]:
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            remedy = "make room in the folder that TMPDIR names, or in /var/tmp or /tmp"
            raise StoreUnavailable(f"users do not fit into a temporary file ({error}); {remedy}") from None
