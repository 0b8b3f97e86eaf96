from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcb.errors import EventError, InputError
from lcb.stats import StatsBuilder, UserStats, add_row, add_rows, n_packed


def some_rows(seed=0, n=200, n_users=7, d=3):
    rng = np.random.default_rng(seed)
    return rng.integers(n_users, size=n), rng.standard_normal((n, d)), rng.standard_normal(n)


def test_statistics_are_the_sums_they_are_named_for():
    user, x, reward = some_rows()
    stats = UserStats.from_rows(user, x, reward)
    for i, name in enumerate(stats.users):
        own_x, own_r = x[user == name], reward[user == name]
        np.testing.assert_allclose(stats.gram[i], own_x.T @ own_x, atol=1e-12)
        np.testing.assert_allclose(stats.moment[i], own_x.T @ own_r, atol=1e-12)
        np.testing.assert_allclose(stats.square_sum[i], own_r @ own_r, atol=1e-12)
        assert stats.count[i] == len(own_r)
    assert stats.n_events == 200
    assert stats.packed.shape == (n_packed(3), 7)


def test_users_keep_the_order_of_their_first_row():
    assert UserStats.from_rows(["b", "a", "b", "c"], np.ones((4, 1)), np.ones(4)).users == ("b", "a", "c")


@given(split=st.integers(1, 199), seed=st.integers(0, 1000))
def test_parts_of_a_log_add_up_to_the_whole(split, seed):
    user, x, reward = some_rows(seed)
    parts = [UserStats.from_rows(user[i], x[i], reward[i]) for i in (slice(split), slice(split, None))]
    whole, joined = UserStats.from_rows(user, x, reward), parts[0] + parts[1]
    assert joined.users == whole.users
    np.testing.assert_allclose(joined.packed, whole.packed, atol=1e-10)
    left = joined - parts[1]
    known = [left.users.index(name) for name in parts[0].users]
    np.testing.assert_allclose(left.packed[:, known], parts[0].packed, atol=1e-10)


def test_adding_leaves_both_sides_untouched():
    user, x, reward = some_rows()
    stats = UserStats.from_rows(user, x, reward)
    before = stats.packed.copy()
    stats + stats
    np.testing.assert_array_equal(stats.packed, before)


def test_a_builder_gives_the_same_whatever_the_batches():
    user, x, reward = some_rows(n=3000, n_users=1500)
    builder = StatsBuilder(3)
    for i in range(0, 3000, 170):
        builder.add(user[i : i + 170].tolist(), x[i : i + 170], reward[i : i + 170])
    np.testing.assert_allclose(builder.build().packed, UserStats.from_rows(user, x, reward).packed, atol=1e-12)


def test_float32_keeps_half_the_bytes():
    user, x, reward = some_rows()
    stats = UserStats.from_rows(user, x, reward)
    assert stats.astype(np.float32).packed.nbytes * 2 == stats.packed.nbytes
    assert UserStats.from_rows(user, x, reward, dtype=np.float32).packed.dtype == np.float32


def test_the_total_is_one_user_with_everything():
    user, x, reward = some_rows()
    total = UserStats.from_rows(user, x, reward).total
    np.testing.assert_allclose(total.gram[0], x.T @ x)
    assert total.n_users == 1


@pytest.mark.parametrize(
    ("user", "x", "reward", "message"),
    [
        ([0, 1], [[1.0], [1.0, 2.0]], [1, 1], "ragged"),
        ([0], [["a"]], [1], "not numbers"),
        ([0], [[1.0]], ["abc"], "not numbers"),
        ([0, 1], [[1.0], [np.nan]], [1, 1], r"row 2: feature x\[0\] is nan"),
        ([0, 1], [[1.0], [2.0]], [1, np.inf], "row 2: reward is inf"),
        ([0], [[1e200]], [1], "at most 1e"),
        ([0, 1], [[1.0], [2.0]], [1], "2 users, x of shape"),
        ([0], [1.0], [1], "wanted"),
        ([], np.empty((0, 3)), [], "nothing to learn from"),
        ([0], np.empty((1, 0)), [1], "nothing to learn from"),
    ],
)
def test_bad_rows_are_refused_with_their_place(user, x, reward, message):
    with pytest.raises(EventError, match=message):
        UserStats.from_rows(user, x, reward)


def test_rewards_outside_the_declared_range_are_refused():
    with pytest.raises(EventError, match=r"row 2: reward 7 is outside the declared range \[0, 1\]"):
        UserStats.from_rows([0, 0], np.ones((2, 1)), [1, 7], reward_range=(0, 1))


def test_a_stranger_cannot_be_taken_away():
    ann, bob = (UserStats.from_rows([name], [[1.0]], [1]) for name in ("ann", "bob"))
    with pytest.raises(InputError, match="bob"):
        ann - bob
    with pytest.raises(InputError, match="features"):
        ann + UserStats.from_rows(["bob"], [[1.0, 2.0]], [1])


def test_a_number_and_its_text_are_two_users():
    assert UserStats.from_rows([1, "1", 2], np.ones((3, 1)), np.ones(3)).users == (1, "1", 2)


def test_every_column_needs_a_name_and_names_must_agree():
    with pytest.raises(EventError, match="1 feature names for 2 columns"):
        UserStats.from_rows([0], [[1.0, 2.0]], [1], features=("only",))
    one, other = (UserStats.from_rows([0], [[1.0]], [1], features=(name,)) for name in "ab")
    with pytest.raises(InputError, match="both need the same"):
        one + other


def test_statistics_do_not_change_with_the_builder_they_came_from():
    builder = StatsBuilder(1)
    builder.add(["ann"], np.ones((1, 1)), np.ones(1))
    before = builder.build()
    builder.add(["ann"], np.ones((1, 1)), np.ones(1))
    assert before.count[0] == 1


def test_statistics_taken_are_in_c_order():  # in Fortran order EM takes a fifth longer, and rounds otherwise
    stats = UserStats.from_rows(np.arange(6) % 3, np.ones((6, 2)), np.arange(6))
    taken = stats.take([2, 0])
    assert taken.packed.flags.c_contiguous
    np.testing.assert_array_equal(taken.packed, stats.packed[:, [2, 0]])


def test_several_rewards_at_one_x_are_added_as_each_alone():
    rng = np.random.default_rng(0)
    packed, x, rewards = rng.random((9, n_packed(4))), rng.normal(size=4), rng.normal(size=9)
    found = add_rows(packed, x, rewards)
    for i in range(9):
        assert found[i].tobytes() == add_row(packed[i], x, float(rewards[i])).tobytes()
