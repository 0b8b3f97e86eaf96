from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lcb.decision import Decision
from lcb.errors import InputError
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import equal_classes
from lcb.recommenders.factorised import Factorised, Factors
from lcb.stats import UserStats

K = 12


def world(seed=0, n_classes=3):
    return FixedArms(equal_classes(np.random.default_rng(seed).random((n_classes, K)), noise=0.1))


def history_of(world, n_users, n_rows, seed=1):
    """Past users who were each given `n_rows` different items."""
    rng = np.random.default_rng(seed)
    users = world.draw(n_users, n_rows, rng)
    arms = np.array([rng.permutation(K)[:n_rows] for _ in range(n_users)])
    rewards = np.take_along_axis(users.rewards, arms[..., None], axis=2)[..., 0]
    return UserStats.from_rows(np.repeat(np.arange(n_users), n_rows), np.eye(K)[arms.ravel()], rewards.ravel())


def factorised(history=None, **settings):
    return Factorised(np.eye(K), rng=np.random.default_rng(0), history=history, **settings)


def give(recommender, user, item, reward):
    recommender.start(user)
    recommender.update(user, Decision(item, 1.0, np.eye(len(recommender.items))[item]), reward)


def test_folding_in_minimises_the_penalised_error():
    rng = np.random.default_rng(3)
    factors = Factors(0.4, 0.5, rng.standard_normal(6), rng.standard_normal((6, 2)))
    rewards = {4: (2.0, 1.1), 1: (1.0, 0.7), 0: (3.0, 2.9)}  # two rewards of item 4 that sum to 1.1, ...
    user = factors.fold_in(rewards, ridge=0.2)

    def loss(w):
        n = sum(count for count, _ in rewards.values())
        return n * 0.2 * w @ w + sum(
            count * ((total / count - 0.4) / 0.5 - factors.bias[i] - factors.q[i] @ w[:2] - w[2]) ** 2
            for i, (count, total) in rewards.items()
        )

    for change in 0.01 * np.concatenate((np.eye(3), -np.eye(3))):
        assert loss(user) < loss(user + change)
    expected = 0.4 + 0.5 * (factors.bias[3] + factors.q[3] @ user[:2] + user[2])
    assert factors.predict(user)[3] == pytest.approx(expected)


def test_a_user_without_rewards_gets_the_popular_item():
    here = world()
    recommender = factorised(history_of(here, 200, 6))
    decision = recommender.choose("new", np.eye(K), np.random.default_rng(0))
    popularity = here.models.pi @ here.models.beta
    assert popularity[decision.arm] > np.sort(popularity)[-3]  # among the best two; the averages are noisy
    assert decision.propensity == 1
    assert decision.arm == recommender.factors.bias.argmax()


def test_a_few_rewards_personalise():
    """Regret of the item predicted best after six rewards, against the popular one's."""
    here = world()
    recommender, users = factorised(history_of(here, 400, 8)), here.draw(100, 6, np.random.default_rng(5))
    best = here.models.beta.max(axis=1)[users.label]
    lost = []
    for u, label in enumerate(users.label):
        for t, item in enumerate(np.random.default_rng(u).permutation(K)[:6]):
            give(recommender, u, int(item), users.rewards[u, t, item])
        lost.append(best[u] - here.models.beta[label, recommender.predict(u).argmax()])
    popular = best - here.models.beta[users.label, recommender.predict("new").argmax()]
    assert np.mean(lost) < 0.35 * popular.mean()


def test_a_prediction_moves_with_every_reward():
    recommender = factorised(history_of(world(), 100, 8))
    before = recommender.predict("ann")
    give(recommender, "ann", 3, 1.5)
    once = recommender.predict("ann")
    give(recommender, "ann", 4, -1.5)
    twice = recommender.predict("ann")
    assert before[3] < once[3]
    assert once[4] > twice[4]
    np.testing.assert_array_equal(before, recommender.predict("bob"))


def test_before_anything_is_learned_all_arms_are_played_alike():
    recommender = factorised(n_warmup_users=2)
    for user in ("a", "b"):
        decision = recommender.choose(user, np.eye(K), np.random.default_rng(0))
        assert decision.at_random
        recommender.update(user, decision, 0.5 + decision.arm / 100)
    assert not recommender.choose("c", np.eye(K), np.random.default_rng(0)).at_random
    assert recommender.factors is not None


def test_an_item_nobody_had_counts_as_the_average_one():
    history = UserStats.from_rows([0, 0, 1, 1], np.eye(3)[[0, 1, 0, 1]], [0.9, 0.1, 0.8, 0.2])
    recommender = Factorised(np.eye(3), rng=np.random.default_rng(0), history=history)
    recommender.start("new")
    predict = recommender.predict("new")
    assert predict[1] < predict[2] < predict[0]
    assert predict[2] == pytest.approx(0.5)


def test_items_may_have_any_rows():
    items = np.array([[0.3, 1.0], [0.3, 2.0], [-0.0, 5.0]])
    recommender = Factorised(items, rng=np.random.default_rng(0), n_warmup_users=1)
    recommender.start("first")
    for row, reward in zip(items, (0.1, 0.9, 0.5), strict=True):
        recommender.update("first", Decision(0, 1.0, row + 0.0), reward)
    decision = recommender.choose("second", items[[2, 1]], np.random.default_rng(0))
    assert decision.arm == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_factors": 0}, "n_factors=0"),
        ({"n_epochs": 0}, "n_epochs=0"),
        ({"retrain_every": 0}, "retrain_every=0"),
        ({"ridge": 0.0}, "ridge=0.0"),
        ({"rate": np.nan}, "rate=nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        factorised(**settings)


def test_what_does_not_name_an_item_is_refused():
    recommender = factorised()
    with pytest.raises(InputError, match="not one of the 12 items"):
        recommender.choose("ann", 0.5 * np.eye(K), np.random.default_rng(0))
    with pytest.raises(InputError, match="2 items with 1 different rows"):
        Factorised(np.ones((2, 3)), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="'bob' has not started"):
        recommender.update("bob", Decision(0, 1.0, np.eye(K)[0]), 0.5)
    with pytest.raises(InputError, match="no items are learned yet"):
        recommender.predict("ann")


def test_history_of_arms_with_features_is_refused():
    features = UserStats.from_rows([0, 1], np.full((2, K), 0.3), [0.5, 0.5])
    with pytest.raises(InputError, match="not one-hot"):
        factorised(features)
    with pytest.raises(InputError, match="3 features, there are 12 items"):
        factorised(UserStats.from_rows([0], np.eye(3)[:1], [0.5]))


def test_without_the_extra_the_error_says_how_to_install_it():
    code = """
import sys
sys.modules["surprise"] = None
import numpy as np
from lcb.errors import MissingExtra
from lcb.recommenders.factorised import Factorised
try:
    Factorised(np.eye(2), rng=np.random.default_rng(0))
except MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "scikit-surprise is not installed; in a checkout of lcb run: pip install '.[factorise]'\n"
