from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcb import event_log
from lcb.event_log import EventLog, LogBuilder


def some_clicks(seed=0, n=300, n_users=9, n_arms=4, levels=(0.0, 1.0)):
    rng = np.random.default_rng(seed)
    arms = rng.standard_normal((n_arms, 3))
    chosen = rng.integers(n_arms, size=n)
    return rng.integers(n_users, size=n), arms[chosen], rng.choice(levels, n), chosen, arms


@given(seed=st.integers(0, 1000), levels=st.sampled_from([(0.0, 1.0), (1.0, 0.0), (-0.05, 0.95), (5.0, 1.0)]))
def test_counts_are_the_clicks_and_passes_of_each_user_at_each_arm(seed, levels):
    user, x, reward, _, _ = some_clicks(seed, levels=levels)
    log = EventLog.from_rows(user, x, reward)
    found = log.clicks
    assert (found.low, found.high) == (min(levels), max(levels))
    for i, name in enumerate(log.stats.users):
        for a, arm in enumerate(found.arms):
            here = (user == name) & (x == arm).all(axis=1)
            assert found.clicked[i, a] == (reward[here] == max(levels)).sum()
            assert found.passed[i, a] == (reward[here] == min(levels)).sum()


def test_the_same_arms_are_counted_together_and_different_ones_apart():
    user, x, reward, chosen, _ = some_clicks()
    assert len(EventLog.from_rows(user, x, reward).clicks.arms) == len(np.unique(chosen))
    apart = x + 1e-9 * np.arange(len(x))[:, None]
    assert len(EventLog.from_rows(user, apart, reward).clicks.arms) == len(x)


def test_minus_zero_is_zero():
    log = EventLog.from_rows([0, 0], [[0.0, 1.0], [-0.0, 1.0]], [0, 1])
    assert len(log.clicks.arms) == 1


def test_batches_change_nothing(monkeypatch):
    user, x, reward, _, _ = some_clicks(n=2000)
    whole = EventLog.from_rows(user, x, reward).clicks
    monkeypatch.setattr(event_log, "_PENDING", 100)
    builder = LogBuilder(3)
    for i in range(0, 2000, 37):
        builder.add(user[i : i + 37].tolist(), x[i : i + 37], reward[i : i + 37])
    parts = builder.build().clicks
    np.testing.assert_array_equal(parts.arms, whole.arms)
    np.testing.assert_array_equal(parts.clicked.toarray(), whole.clicked.toarray())
    np.testing.assert_array_equal(parts.passed.toarray(), whole.passed.toarray())


@pytest.mark.parametrize("reward", [[0, 1, 2], [0.5, 0.5, 0.5]])
def test_rewards_of_one_or_three_values_are_not_counted(reward):
    log = EventLog.from_rows([0, 1, 2], np.ones((3, 1)), reward)
    assert log.clicks is None
    assert not log.two_valued


def test_more_pairs_than_can_be_kept_are_said_and_not_counted(monkeypatch):
    monkeypatch.setattr(event_log, "_PENDING", 10)
    monkeypatch.setattr(event_log, "MOST_PAIRS", 50)
    rng = np.random.default_rng(0)
    builder = LogBuilder(2)
    for _ in range(10):
        builder.add(list(range(20)), rng.standard_normal((20, 2)), rng.integers(2, size=20).astype(float))
    log = builder.build()
    assert log.two_valued
    assert log.clicks is None
    assert log.stats.n_events == 200


def test_some_users_of_a_log_are_a_log_of_their_own():
    user, x, reward, _, _ = some_clicks()
    log = EventLog.from_rows(user, x, reward)
    chosen = np.array([4, 1])
    part = log.take(chosen)
    names = [log.stats.users[i] for i in chosen]
    kept = np.isin(user, names)
    alone = EventLog.from_rows(user[kept], x[kept], reward[kept])
    order = [alone.stats.users.index(name) for name in names]
    np.testing.assert_allclose(part.stats.packed, alone.stats.packed[:, order])
    assert part.clicks.clicked.sum() == alone.clicks.clicked.sum()
    owner, rows, _ = part.rows
    np.testing.assert_array_equal(np.bincount(owner), part.stats.count)
    assert len(rows) == kept.sum()


def test_users_taken_twice_are_there_twice():
    user, x, reward, _, _ = some_clicks()
    part = EventLog.from_rows(user, x, reward).take([0, 0, 1])
    owner, rows, _ = part.rows
    assert len(rows) == part.stats.n_events == part.clicks.clicked.sum() + part.clicks.passed.sum()
    np.testing.assert_array_equal(np.bincount(owner), part.stats.count)


def test_a_third_value_is_noticed_even_where_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(event_log, "_PENDING", 5)
    monkeypatch.setattr(event_log, "MOST_PAIRS", 5)
    builder = LogBuilder(1)
    for i in range(10):
        builder.add([f"u{i}a", f"u{i}b"], np.array([[i + 0.1], [i + 0.2]]), np.array([0.0, 1.0]))
    assert builder.build().two_valued
    builder.add(["ann"], np.ones((1, 1)), np.array([7.0]))
    assert not builder.build().two_valued


def test_features_without_end_are_kept_as_rows(monkeypatch):
    monkeypatch.setattr(event_log, "_FREE", 50)
    rng = np.random.default_rng(0)
    builder, rows = LogBuilder(2), []
    for _ in range(10):
        x, reward = rng.standard_normal((20, 2)), rng.integers(2, size=20).astype(float)
        builder.add(list(range(20)), x, reward)
        rows.append((x, reward))
    found = builder.build().clicks
    assert len(found.arms) == 200
    np.testing.assert_array_equal(found.arms[-20:], rows[-1][0])
    assert found.clicked.sum() == sum(reward.sum() for _, reward in rows)


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_it_does_not_matter_which_value_comes_first(first):
    builder = LogBuilder(1)
    builder.add(["ann"], np.ones((1, 1)), np.array([first]))
    builder.add(["ann", "bob"], np.ones((2, 1)), np.array([1 - first, 1.0]))
    found = builder.build().clicks
    np.testing.assert_array_equal(found.clicked.toarray(), [[1.0], [1.0]])
    np.testing.assert_array_equal(found.passed.toarray(), [[1.0], [0.0]])


def test_a_builder_without_rows_has_nobody_and_no_rows():
    builder = LogBuilder(2, count=False, keep_rows=True)
    log = builder.build()
    assert builder.n_users == log.n_users == 0
    assert [part.shape for part in log.rows] == [(0,), (0, 2), (0,)]
    builder.add(["ann", "bob", "ann"], np.ones((3, 2)), np.arange(3.0))
    assert builder.n_users == 2
    np.testing.assert_array_equal(builder.build().rows[0], [0, 1, 0])
