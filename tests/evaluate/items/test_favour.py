"""Whether a log showed users what they like, in worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.evaluate.evaluate_any import evaluate_log
from lcb.evaluate.items.favour import measure_favour
from lcb.storage.importing.open_any import open_any
from lcb.storage.importing.table_source import Columns

LIKES = np.array([[0.7, 0.1, 0.1], [0.1, 0.7, 0.1], [0.1, 0.1, 0.7]])
N_ITEMS, N_USERS, N_EVENTS = 30, 150, 30
CATEGORY = np.arange(N_ITEMS) % 3


def write_visits(taste=0.0, popularity=0.0, seed=0):
    """Users of three classes; items are drawn by exp(taste x what the user likes + popularity x their own appeal)."""
    rng = np.random.default_rng(seed)
    appeal = rng.normal(0, 1, N_ITEMS)
    kind = rng.integers(0, 3, N_USERS)
    score = np.exp(taste * LIKES[kind][:, CATEGORY] + popularity * appeal)
    chance = score / score.sum(axis=1, keepdims=True)
    item = np.array([rng.choice(N_ITEMS, N_EVENTS, p=own) for own in chance])
    user = np.repeat(np.arange(N_USERS), N_EVENTS).reshape(item.shape)
    likes = np.clip(LIKES[kind][:, CATEGORY] + 0.05 * appeal, 0, 1)
    reward = rng.random(item.shape) < likes[user, item]
    columns = {"user": user, "item": item, "reward": reward.astype(float), "propensity": chance[user, item]}
    visits = {name: values.ravel() for name, values in columns.items()}
    return {**visits, "categories": np.array(["a", "b", "c"])[CATEGORY[visits["item"]]]}, likes


def measure(visits):
    log = open_any(visits, Columns())
    return measure_favour(log, log.labels().astype(float))


def evaluate(visits):
    return evaluate_log(visits, ["popularity"], arms="items", n_steps=5, n_seeds=1, n_workers=1)


def test_a_log_of_what_users_like_gives_no_answer_over_items():
    visits, likes = write_visits(taste=4.0)
    found = measure(visits)
    shown = np.bincount(visits["item"], minlength=N_ITEMS) / len(visits["item"])
    assert found.alike == pytest.approx(likes.mean(axis=0) @ shown, abs=0.03)
    assert found.shown > found.alike + 0.2
    evaluation = evaluate(visits)
    assert evaluation.answer is None
    assert "users were mostly shown what they like" in evaluation.to_json()["why"]
    assert "not over the catalogue" in evaluation.describe()


def test_items_shown_to_all_users_alike_keep_the_answer_without_a_caveat():
    for popularity in (0.0, 1.0):
        visits, _ = write_visits(popularity=popularity)
        assert measure(visits).excess == pytest.approx(0.0, abs=1e-6)
    evaluation = evaluate(write_visits()[0])
    assert evaluation.answer is not None
    assert evaluation.caveat is None


def test_a_little_taste_is_a_caveat():
    found = measure(write_visits(taste=1.0)[0])
    assert found.shortfall is None
    assert "mostly" not in found.caveat
    assert "over the items that a user has labels for" in found.caveat


def test_without_propensities_the_answer_says_what_it_is_over():
    visits, _ = write_visits(taste=4.0)
    del visits["propensity"]
    evaluation = evaluate(visits)
    assert evaluation.answer is not None
    assert "not over the catalogue" in evaluation.describe()
    assert "without propensities" in evaluation.to_json()["caveat"]
