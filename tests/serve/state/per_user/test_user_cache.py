"""The cache of users: who stays, who is evicted, and which snapshots are written."""

from __future__ import annotations

import numpy as np

from lcb.serve.state.per_user import user_cache
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.users import EVERYTHING, User


def user(seq: int) -> User:
    return User("lcb", 0, None, seq)


def full_cache(*names: str, most: int) -> UserCache:
    """A cache with room for `most` users whose names have 3 letters."""
    cache = UserCache(most * (user(1).n_bytes + 3))
    for seq, name in enumerate(names, 1):
        cache.admit(name, user(seq))
    return cache


def test_the_least_recently_used_user_is_evicted() -> None:
    cache = full_cache("ann", "ben", most=2)
    cache.get("ann")
    cache.admit("cyd", user(3))
    assert list(cache) == ["ann", "cyd"]


def test_an_evicted_user_returns_from_the_snapshot_that_is_not_written_yet() -> None:
    cache = full_cache("ann", "ben", most=1)
    assert cache.peek("ann") is None
    found = cache.get("ann")
    assert found is not None
    assert found.seq == 1
    assert [one.name for one in cache.take_evicted()] == ["user/ben"]


def test_a_user_whose_snapshot_is_stored_leaves_none_behind() -> None:
    cache, known = UserCache(1), user(1)
    known.saved = 1
    cache.admit("ann", known)
    cache.admit("ben", user(2))
    assert cache.take_evicted() == []


def test_nobody_is_evicted_while_the_cache_is_held() -> None:
    cache = UserCache(1)
    cache.hold()
    cache.admit("ann", user(1))
    cache.admit("ben", user(2))
    assert len(cache) == 2
    cache.release()
    assert list(cache) == ["ben"]


def test_a_user_who_is_being_erased_leaves_no_snapshot() -> None:
    cache = full_cache("ann", most=1)
    cache.begin_erasing("ann")
    cache.admit("ann", user(2))  # a request that was under way
    cache.admit("ben", user(3))
    assert cache.take_evicted() == []
    cache.end_erasing("ann")
    cache.admit("ann", user(4))
    assert [one.name for one in cache.take_evicted()] == ["user/ben"]


def test_users_whose_events_were_erased_are_forgotten_wherever_they_are() -> None:
    cache = full_cache("ann", "ben", "cyd", most=2)
    cache.forget({1, 2})
    assert list(cache) == ["cyd"]
    assert cache.take_evicted() == []


def test_a_name_without_events_is_known_until_its_first_event() -> None:
    cache = UserCache(2)
    assert not cache.knows("ann")
    cache.admit("ann", None)
    assert cache.knows("ann")
    assert cache.is_unknown("ann")
    cache.admit("ann", user(1))
    assert not cache.is_unknown("ann")


def large_user(seq: int, fresh: int = EVERYTHING) -> User:
    made = User("lcb", 0, np.ones(100_000), seq)
    made.fresh = fresh
    return made


def evict(*users: User) -> UserCache:
    cache = UserCache(1)
    for i, one in enumerate([*users, user(9)]):
        cache.admit(f"u{i}", one)
    return cache


def test_the_snapshot_of_a_large_user_with_few_new_events_is_not_written() -> None:
    few, many = large_user(1, 0), large_user(2, 0)
    for _ in range(2):
        few.note_event(1000, changes_state=True)
    for _ in range(5):
        many.note_event(1000, changes_state=True)
    assert [one.name for one in evict(few, many, user(3)).take_evicted()] == ["user/u1", "user/u2"]


def test_a_user_who_returned_from_an_unwritten_snapshot_is_written_later() -> None:
    cache = evict(large_user(1))
    assert cache.get("u0") is not None
    cache.admit("ben", user(10))
    assert "user/u0" in [one.name for one in cache.take_evicted()]


def test_a_commit_writes_few_bytes_of_snapshots_and_those_that_wait_are_bounded() -> None:
    n = 100
    cache, sizes = evict(*[large_user(seq) for seq in range(n)]), list[int]()
    while taken := cache.take_evicted():
        sizes.append(sum(len(one.body) for one in taken))
    assert max(sizes) < user_cache._PER_COMMIT + 900_000
    assert 0.9 * user_cache._MOST_EVICTED < sum(sizes) < user_cache._MOST_EVICTED + 900_000
    cache.admit("ann", large_user(n))
    cache.admit("ben", user(n + 1))
    assert "user/ann" in [one.name for one in cache.take_evicted()], "what was written takes room for ever"
