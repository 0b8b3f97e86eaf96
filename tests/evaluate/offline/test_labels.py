from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.evaluate.offline.labels import read_labels
from lcb.evaluate.offline.queue import draw_uniform_history
from lcb.event_log import EventLog
from support.logs import make_log

LOG = make_log(
    user=[0, 0, 0, 1, 1], item=[0, 1, 2, 2, 0], categories_of=[[0], [0, 1], [2], []], n_categories=3,
    rating=[5, 2, 5, 4, 5], reward=[0.5, 1.5, 2.5, 0.0, 1.0],
)  # fmt: skip


def test_a_label_belongs_to_every_category_of_its_item():
    labels = read_labels(LOG, "labels", like=5)
    np.testing.assert_array_equal(labels.count, [[2, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(labels.total, [[1, 0, 1], [1, 0, 0]])
    assert labels.logged_rate(np.array([0, 1])) == pytest.approx(3 / 5)
    assert labels.logged_rate(np.array([1])) == pytest.approx(1 / 2)


def test_a_choice_is_a_one_for_what_was_taken_and_a_zero_for_all_else():
    labels = read_labels(LOG, "choices")
    np.testing.assert_array_equal(labels.count, [[3, 3, 3], [2, 2, 2]])
    np.testing.assert_array_equal(labels.total, [[2, 1, 1], [1, 0, 1]])
    assert labels.logged_rate(np.array([0, 1])) == pytest.approx(6 / 15)


def test_rewards_of_many_values_are_kept_as_they_are():
    labels = read_labels(LOG, "labels")
    assert labels.levels is None
    np.testing.assert_array_equal(labels.values, [0.5, 1.5, 1.5, 2.5, 1.0, 0.0])
    assert labels.reward_range == (0.0, 2.5)


def some_log(seed=0, **columns):
    rng = np.random.default_rng(seed)
    n = 300
    columns = {name: make(rng, n) for name, make in columns.items()}
    categories_of = [rng.choice(4, size=rng.integers(1, 4), replace=False) for _ in range(12)]
    return make_log(rng.integers(0, 9, n), rng.integers(0, 12, n), categories_of, 4, **columns)


@pytest.mark.parametrize("kind", ["two values", "many values"])
def test_a_history_is_that_of_its_rows(kind):
    make = {"two values": lambda rng, n: rng.integers(0, 2, n) * 3.0 - 1, "many values": lambda rng, n: rng.random(n)}
    log = some_log(reward=make[kind])
    labels, x = read_labels(log, "labels"), np.random.default_rng(1).standard_normal((4, 3))
    users = np.array([5, 0, 7])
    rows = [
        (u, x[c], log.reward[i])
        for u in users
        for i in np.flatnonzero(log.user == u)
        for c in log.item_categories[[log.item[i]]].indices
    ]
    wanted = EventLog.from_rows([u for u, _, _ in rows], [v for _, v, _ in rows], [float(r) for _, _, r in rows])
    history = labels.history(users, x, ())
    np.testing.assert_allclose(history.stats.packed, wanted.stats.packed, rtol=1e-6)
    assert (history.clicks is None) == (kind == "many values")
    if history.clicks:
        arms = [int(np.flatnonzero((x == arm).all(axis=1))[0]) for arm in wanted.clicks.arms]
        np.testing.assert_array_equal(history.clicks.clicked.toarray()[:, arms], wanted.clicks.clicked.toarray())
        assert (history.clicks.low, history.clicks.high) == (-1, 2)


@pytest.mark.parametrize("kind", ["two values", "many values"])
def test_uniform_pulls_use_every_label_once(kind):
    make = {"two values": lambda rng, n: rng.integers(0, 2, n) * 1.0, "many values": lambda rng, n: rng.random(n)}
    labels, x = read_labels(some_log(reward=make[kind]), "labels"), np.eye(4)
    users = np.arange(9)
    everything = draw_uniform_history(labels, users, x, (), 10_000, np.random.default_rng(0))
    np.testing.assert_allclose(everything.stats.packed, labels.history(users, x, ()).stats.packed, rtol=1e-6)
    few = draw_uniform_history(labels, users, x, (), 7, np.random.default_rng(0))
    np.testing.assert_array_equal(few.stats.count, 7)


def test_uniform_pulls_take_arms_alike():
    log = make_log(
        np.repeat(np.arange(2000), 30), np.tile([0] * 20 + [1] * 10, 2000), [[0], [1]], 2, reward=[0, 1] * 30_000
    )
    labels = read_labels(log, "labels")
    taken = draw_uniform_history(labels, np.arange(2000), np.eye(2), (), 1, np.random.default_rng(0)).stats
    assert abs(taken.packed[0].mean() - 0.5) < 4.5 * np.sqrt(0.25 / 2000)


def test_items_are_met_as_often_as_the_users_have_events_of_them():
    vectors, n = read_labels(LOG, "choices").count_items(np.array([1]))
    np.testing.assert_array_equal(vectors, [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(n, [1, 0, 1, 0])


@pytest.mark.parametrize(
    ("reading", "like", "message"),
    [
        ("ratings", None, "reading 'ratings'"),
        ("choices", 4.0, "ignores ratings"),
        ("labels", 6.0, "every label is 0"),
        ("labels", 1.0, "every label is 1"),
    ],
)
def test_readings_that_cannot_be_are_refused(reading, like, message):
    with pytest.raises(InputError, match=message):
        read_labels(LOG, reading, like)


def test_items_without_categories_are_left_out_and_a_log_of_such_is_refused():
    log = make_log([0, 0, 1], [0, 1, 1], [[0], []], 1)
    np.testing.assert_array_equal(read_labels(log, "choices").n_events, [1, 0])
    with pytest.raises(InputError, match="no event has an item with an arm"):
        read_labels(make_log([0], [0], [[]], 1), "choices")
