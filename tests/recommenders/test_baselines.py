from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.uniform import Uniform
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import serve_step_by_step


def some_users(seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (9, 7, 5, 4)), rng.random((9, 7, 5))


@pytest.mark.parametrize(
    "make",
    [lambda: Pooled(LinUCB(4)), lambda: Individual(LinUCB(4)), lambda: Pooled(Uniform())],
    ids=["population", "individual", "random"],
)
def test_serving_whole_users_makes_the_same_choices_as_step_by_step(make):
    contexts, rewards = some_users()
    fast = make().serve(range(9), contexts, rewards, np.random.default_rng(1))
    slow = serve_step_by_step(make(), range(9), contexts, rewards, np.random.default_rng(1))
    np.testing.assert_array_equal(fast, slow)


def test_individual_users_do_not_touch_each_other():
    contexts, rewards = some_users()
    together = Individual(LinUCB(4)).serve(range(9), contexts, rewards, np.random.default_rng(1))
    for u in range(9):
        alone = Individual(LinUCB(4)).serve([u], contexts[u : u + 1], rewards[u : u + 1], np.random.default_rng(1))
        np.testing.assert_array_equal(alone[0], together[u])


def test_an_individual_who_comes_back_is_known():
    contexts, rewards = some_users()
    recommender, rng = Individual(LinUCB(4)), np.random.default_rng(0)
    recommender.serve(["ann"], contexts[:1], rewards[:1], rng)
    state = recommender.states["ann"].copy()
    recommender.choose("ann", contexts[1, 0], rng)
    np.testing.assert_array_equal(recommender.states["ann"], state)


def test_one_bandit_for_all_can_begin_where_another_stopped():
    contexts, rewards = some_users()
    whole = Pooled(LinUCB(4))
    arms = whole.serve(range(9), contexts, rewards, np.random.default_rng(1))
    first = Pooled(LinUCB(4))
    first.serve(range(4), contexts[:4], rewards[:4], np.random.default_rng(1))
    before = first.state.copy()
    second = Pooled(LinUCB(4), state=first.state)
    np.testing.assert_array_equal(
        second.serve(range(4, 9), contexts[4:], rewards[4:], np.random.default_rng(1)), arms[4:]
    )
    np.testing.assert_array_equal(second.state, whole.state)
    np.testing.assert_array_equal(first.state, before)
