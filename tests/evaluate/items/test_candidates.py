"""Candidates of a log read as choices, drawn from generated logs of which everything is known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from lcb.evaluate.items import candidates
from lcb.evaluate.items.labels import read_item_labels
from lcb.storage.logs.log import Log
from lcb.storage.logs.offers import Offers


def make_log(user, item, n_items, offers=None):
    user, item = np.array(user, np.int32), np.array(item, np.int32)
    n_users = int(user.max()) + 1
    return Log(
        users=pa.array(np.arange(n_users)),
        items=pa.array(np.arange(n_items)),
        categories=(),
        item_categories=csr_array((n_items, 0), dtype=bool),
        user=user,
        item=item,
        order=np.arange(len(user)),
        offers=offers,
    )


def of_user(labels, u):
    own = labels.user == u
    return dict(zip(labels.item[own].tolist(), labels.reward[own].tolist(), strict=True))


def test_a_thousand_candidates_are_drawn_for_every_user_of_items_that_someone_took():
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(30), 100), 2 * rng.integers(0, 2500, 3000)  # odd items were never taken
    labels = read_item_labels(make_log(user, item, 5000), "choices", seed=3)
    for u in range(30):
        own = of_user(labels, u)
        assert {one for one, label in own.items() if label} == set(item[user == u].tolist())
        assert 900 < len(own) <= 1000
        assert all(one in item for one in own)
    assert "items drawn at random per user stand beside those taken" in labels.notes[0]
    assert "popularity and item effects look better than they are" in labels.notes[0]
    again = read_item_labels(make_log(user, item, 5000), "choices", seed=3)
    np.testing.assert_array_equal(labels.item, again.item)
    assert (read_item_labels(make_log(user, item, 5000), "choices", seed=4).item[:900] != labels.item[:900]).any()
    assert labels.n_events.max() <= 500  # 5 for each item taken: a test user needs choices, not candidates


def test_with_many_users_each_has_fewer_candidates_and_the_note_says_how_many(monkeypatch):
    monkeypatch.setattr(candidates, "MOST_LABELS", 3000)
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(30), 10), rng.integers(0, 400, 300)
    labels = read_item_labels(make_log(user, item, 400), "choices")
    assert np.bincount(labels.user).max() <= 100
    assert "100 candidates in all, because users are many" in labels.notes[0]


def test_candidates_are_what_the_log_offered():
    offered = [[0, 1, 2], [2, 3], [4, 0]]
    size = np.array([len(one) for one in offered])
    first = np.cumsum(size) - size
    offers = Offers(np.concatenate(offered).astype(np.int32), np.empty(0, np.float32), first, np.full(3, -1), size)
    labels = read_item_labels(make_log([0, 0, 1], [1, 3, 4], 9, offers), "choices")
    assert of_user(labels, 0) == {0: 0, 1: 1, 2: 0, 3: 1}
    assert of_user(labels, 1) == {0: 0, 4: 1}
    assert labels.notes == (
        "read as choices: 2 items per user that were on offer and not taken stand beside those taken, as labels 0",
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_are_sorted_by_user(seed):
    rng = np.random.default_rng(seed)
    user = np.sort(rng.integers(0, 20, 200))
    labels = read_item_labels(make_log(user, rng.integers(0, 40, 200), 40), "choices")
    assert (np.diff(labels.user) >= 0).all()
    assert len(set(zip(labels.user.tolist(), labels.item.tolist(), strict=True))) == len(labels.user)
