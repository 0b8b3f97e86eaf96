from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS
from lcb.evaluate.offline.evaluate_log import evaluate_log, prepare_training
from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.outcomes import AlgorithmRewards, larger_error
from lcb.evaluate.offline.split import Plan, split_users
from lcb.evaluate.tuning import tune_log
from lcb.evaluate.tuning.tune_log import split_training_users, tune_on_training_users
from support.logs import make_log

LIKES = np.array([[0.8, 0.2, 0.2, 0.4], [0.1, 0.7, 0.2, 0.4], [0.1, 0.1, 0.8, 0.4]])  # of three kinds of users


def clicks(n_users=240, n_events=24, seed=0, **columns):
    """Shown at random, so that replay and propensities are at home too; every fourth user has few events."""
    rng = np.random.default_rng(seed)
    kind, n = rng.integers(0, 3, n_users), np.where(np.arange(n_users) % 4, n_events, 3)
    user = np.repeat(np.arange(n_users), n)
    item = rng.integers(0, 4, len(user))
    reward = (rng.random(len(user)) < LIKES[kind[user], item]).astype(float)
    propensity = np.full(len(user), 0.25)
    return make_log(user, item, [[0], [1], [2], [3]], 4, reward=reward, propensity=propensity)


PLAN = Plan(n_train_users=150, n_test_users=60, n_steps=6, n_classes=3)


def test_test_users_have_enough_events_and_are_never_trained_on():
    source = open_source(clicks(), "queue", "labels")
    split = split_users(source, PLAN, seed=1)
    assert not set(split.train) & set(split.test)
    assert (source.n_events[split.test] >= 6).all()
    assert (source.n_events[split.train] < 6).sum() == 150 - (180 - 60)  # those with enough events come first
    assert set(split_users(source, PLAN, seed=2).test) != set(split.test)


@pytest.mark.parametrize("method", ["queue", "replay"])
def test_lcb_auto_serves_held_out_users_of_rewards_of_many_values(method):
    log, plan = clicks(500), replace(PLAN, n_train_users=360)
    rng = np.random.default_rng(3)
    stars = replace(log, reward=(1 + 3 * log.reward + rng.integers(0, 2, len(log.user))).astype(np.float32))
    source = open_source(stars, method, "labels")
    task = prepare_training(source, plan, split_users(source, plan, 1), 1).task
    assert task.history.clicks is None
    recommender = ALGORITHMS["lcb-auto"].build_for(task, np.random.default_rng(0), {})
    assert recommender.why[1].startswith("reward per step of held-out users: ")
    (models,) = recommender.versions
    assert set(models.beta.argmax(axis=1)) == {
        0,
        1,
        2,
    }  # what each kind likes best; Gaussian classes of stars are split


def test_more_users_than_there_are_is_refused_with_the_numbers():
    source = open_source(clicks(), "queue", "labels")
    with pytest.raises(InputError, match="181 test users asked for, but only 180 of 240 users have the 6 labelled"):
        split_users(source, Plan(10, 181, 6), 0)
    with pytest.raises(InputError, match="181 training users asked for, but 180 users are left"):
        split_users(source, Plan(181, 60, 6), 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_train_users": 0}, "n_train_users=0"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"train_on": "some"}, "train_on='some'"),
        ({"train_on": "uniform:0"}, "train_on='uniform:0'"),
        ({"train_on": "uniform"}, "uniform:n"),
    ],
)
def test_plans_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"n_train_users": 1, "n_test_users": 1, **settings})


def test_features_are_fitted_on_training_users_alone():
    """Users who are not trained on could have met anything."""
    log = clicks()
    source = open_source(log, "queue", "labels")
    split = split_users(source, PLAN, seed=0)
    plan = Plan(150, 60, 6, features="pca:2")
    wanted = prepare_training(source, plan, split, 0).x
    item = log.item.copy()
    item[np.isin(log.user, split.test)] = 0
    other = open_source(make_log(log.user, item, [[0], [1], [2], [3]], 4, reward=log.reward), "queue", "labels")
    np.testing.assert_array_equal(prepare_training(other, plan, split, 0).x, wanted)


@pytest.mark.parametrize("method", ["filled", "queue", "replay", "ips", "snips", "dr"])
def test_latent_classes_do_better_than_one_model_for_all_by_every_method(method):
    source = open_source(clicks(n_users=900, n_events=40), method, "labels")
    plan = Plan(n_train_users=500, n_test_users=300, n_steps=10, n_classes=3)
    evaluation = evaluate_log(source, ["lcb-mean", "random"], plan, n_seeds=2, n_workers=1)
    by_name = {row["algorithm"]: row for row in evaluation.to_json()["results"]}
    assert list(by_name) == ["lcb-mean", "random", "linucb-population"]
    assert by_name["linucb-population"]["vs_population_percent"] == 0
    lcb, random = by_name["lcb-mean"], by_name["random"]
    assert lcb["vs_population_percent"] > 4.5 * lcb["vs_se"] > 0
    assert abs(random["relative_ctr"] - 1) < 4.5 * random["se"]  # the log was random itself


def test_the_numbers_depend_neither_on_workers_nor_on_company():
    source = open_source(clicks(), "queue", "labels")
    one = evaluate_log(source, ["lcb-mean", "linucb-individual"], PLAN, n_seeds=2, n_workers=1)
    two = evaluate_log(source, ["linucb-individual"], PLAN, n_seeds=2, n_workers=2)
    np.testing.assert_array_equal(one.outcomes[1].rate, two.outcomes[0].rate)
    np.testing.assert_array_equal(one.outcomes[2].rate, two.outcomes[1].rate)


def test_uniform_pulls_are_what_is_trained_on():
    source = open_source(clicks(), "queue", "labels")
    split = split_users(source, PLAN, seed=1)
    history = prepare_training(source, Plan(150, 60, 6, train_on="uniform:4"), split, 1).history
    np.testing.assert_array_equal(history.stats.count, np.minimum(source.n_events[split.train], 4))
    with pytest.raises(InputError, match="trains on all rows"):
        prepare_training(open_source(clicks(), "replay", "labels"), Plan(150, 60, 6, train_on="uniform:4"), split, 1)


def test_the_standard_error_is_the_larger_of_users_and_seeds():
    rng = np.random.default_rng(0)
    same_users = rng.standard_normal((4, 1000))
    assert larger_error(same_users) == pytest.approx(1 / np.sqrt(4000), rel=0.6)
    shifted = same_users + np.array([[-1.0], [0.0], [1.0], [2.0]])
    assert larger_error(shifted) == pytest.approx(np.std([-1, 0, 1, 2], ddof=1) / 2, rel=0.1)
    assert larger_error(same_users[:1]) == pytest.approx(1 / np.sqrt(1000), rel=0.1)


def test_gains_are_paired_where_every_user_speaks():
    rng = np.random.default_rng(0)
    level = rng.random((1, 500))
    one, other = (AlgorithmRewards("a", {}, factor * level, np.array([1.0]), 0, 0, 0) for factor in (1.1, 1.0))
    gain, error = one.gain_over(other)
    assert gain == pytest.approx(10)
    assert error < 1e-9
    silent = AlgorithmRewards("a", {}, np.where(level < 0.1, np.nan, level + 0.1), np.array([1.0]), 0, 0, 0)
    assert silent.gain_over(other)[1] > 1


@pytest.mark.parametrize(
    ("method", "reading", "message"),
    [("magic", "labels", "method 'magic'"), ("replay", "choices", "for choices, use method filled or queue")],
)
def test_methods_that_cannot_answer_are_refused(method, reading, message):
    with pytest.raises(InputError, match=message):
        open_source(clicks(), method, reading)


def test_propensities_are_needed_where_they_are():
    log = make_log([0, 0, 1], [0, 1, 0], [[0], [1]], 2, reward=[1, 0, 1])
    with pytest.raises(InputError, match="ips needs the propensity of every event"):
        open_source(log, "ips", "labels")


def test_tuning_looks_at_training_users_alone():
    """Whatever the test users say, the settings are the same; and users held out are not trained on."""
    log = clicks()
    source = open_source(log, "queue", "labels")
    split = split_users(source, PLAN, seed=0)
    inner = split_training_users(source, split, PLAN, seed=0)
    assert set(inner.train) | set(inner.test) == set(split.train)
    assert not set(inner.train) & set(inner.test)
    assert (source.n_events[inner.test] >= PLAN.n_steps).all()
    reward = log.reward.copy()
    reward[np.isin(log.user, split.test)] = 1.0
    other = open_source(make_log(log.user, log.item, [[0], [1], [2], [3]], 4, reward=reward), "queue", "labels")
    names = ["linucb-individual", "random"]
    settings = [tune_on_training_users(s, names, PLAN, most=4, n_workers=1) for s in (source, other)]
    assert settings[0] == settings[1]
    assert settings[0]["random"] == {}
    assert set(settings[0]["linucb-individual"]) == {"width", "ridge"}


def test_an_algorithm_without_settings_is_not_tried(monkeypatch):
    monkeypatch.setattr(tune_log, "run_on_split", None)
    source = open_source(clicks(), "queue", "labels")
    assert tune_on_training_users(source, ["random", "lcb-auto"], PLAN, n_workers=1) == {"random": {}, "lcb-auto": {}}


def test_a_user_tested_twice_is_one_user():
    values = np.random.default_rng(0).standard_normal((30, 50))
    assert larger_error(values, 200) > 2 * larger_error(values)
    source = open_source(clicks(), "queue", "labels")
    evaluation = evaluate_log(source, ["random"], PLAN, n_seeds=9, n_workers=1)
    assert evaluation.outcomes[0].n_users <= 180 < 9 * 60


def test_where_nothing_is_ever_liked_no_percentage_is_given():
    log = clicks()
    reward = np.zeros(len(log.reward))
    reward[0] = 1.0
    rare = make_log(log.user, log.item, [[0], [1], [2], [3]], 4, reward=reward)
    with pytest.raises(InputError, match="above 0"):
        evaluate_log(open_source(rare, "queue", "labels"), ["random"], PLAN, n_seeds=1, n_workers=1).to_json()


def test_items_of_several_categories_stay_in_the_unit_ball():
    log = make_log([0, 0, 1], [0, 1, 2], [[0], [0, 1], [0, 1, 2]], 3, reward=[1, 0, 1], propensity=[0.3] * 3)
    for spec in ("one-hot", "one-hot+1", "multi-hot", "multi-hot+1", "pca:2", "pca:2+1"):
        _, x = open_source(log, "ips", "labels").features(spec, np.array([0, 1]))
        assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-12
