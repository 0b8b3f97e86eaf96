"""Users in a temporary file come back as they were, until they are erased."""

from __future__ import annotations

import numpy as np

from lcb.serve.state.per_user.cache_on_disk import CacheOnDisk
from lcb.serve.state.users import LOST, NO_RESIDUALS, User, add_own


def make(seq: int) -> User:
    user = User("lcb", 2, np.arange(float(seq)), seq)
    user.n_decisions, user.reward_sum, user.left, user.canary = seq, 0.1 * seq, seq, -seq
    user.residuals = add_own(NO_RESIDUALS, f"item{seq}", 0.5)
    return user


def test_users_come_back_as_they_were_however_often() -> None:
    packed = {f"user{seq}": make(seq).pack() for seq in range(1, 50)}
    with CacheOnDisk(1) as cache:
        for name, data in packed.items():
            cache.admit(name, User.unpack(data))
        for _ in range(2):
            for name, data in packed.items():
                assert cache.can_get(name)
                assert cache.knows(name)
                user = cache.get(name)
                assert user is not None
                assert user.pack() == data
                assert list(cache) == [name]
        assert cache.get("nobody") is None
    assert len(cache) == cache.n_bytes == 0


def test_a_user_whose_models_cannot_be_read_stays_lost() -> None:
    with CacheOnDisk(1) as cache:
        cache.admit("ann", User("lcb", 1, LOST, 1))
        cache.admit("ben", User("lcb", 1, None, 2))
        ann, ben = cache.get("ann"), cache.get("ben")
    assert ann is not None
    assert ann.state is LOST
    assert ben is not None
    assert ben.state is None


def test_an_erased_user_is_in_neither_memory_nor_file() -> None:
    with CacheOnDisk(1) as cache:
        for seq in range(1, 2001):
            cache.admit(f"user{seq}", User("lcb", 1, None, seq))
        cache.forget(set(range(2, 2001, 2)))
        found = [seq for seq in range(1, 2001) if cache.get(f"user{seq}") is not None]
    assert found == list(range(1, 2001, 2))
