from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from conftest import rows_of
from lcb.errors import InputError, ModelError
from lcb.models import LatentModels, weight_covariance
from lcb.models.prior import Prior
from lcb.stats import UserStats

MODELS = LatentModels(
    pi=[0.2, 0.8], beta=[[0.5, -0.1, 0.3], [0.0, 0.4, 0.9]], sigma2=[0.04, 0.3], features=("a", "b", "c")
)


def test_log_likelihood_is_the_sum_of_the_log_densities():
    user, x, reward, _ = rows_of(MODELS, 5, 4, seed=1)
    stats = UserStats.from_rows(user, x, reward)
    by_row = norm.logpdf(reward[:, None], x @ MODELS.beta.T, np.sqrt(MODELS.sigma2))
    by_user = np.array([by_row[user == name].sum(axis=0) for name in stats.users])
    np.testing.assert_allclose(MODELS.user_log_likelihood(stats), by_user, atol=1e-10)
    np.testing.assert_allclose([MODELS.log_density(row, r) for row, r in zip(x, reward, strict=True)], by_row)


def test_posterior_is_bayes_rule():
    user, x, reward, _ = rows_of(MODELS, 5, 4, seed=2)
    stats = UserStats.from_rows(user, x, reward)
    joint = np.exp(MODELS.user_log_likelihood(stats)) * MODELS.pi
    np.testing.assert_allclose(MODELS.posterior(stats), joint / joint.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(MODELS.user_scores(stats), np.log(joint.sum(axis=1)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pi": [0.5, 0.6]}, "sums to 1.1"),
        ({"pi": [1.5, -0.5]}, "smallest -0.5"),
        ({"pi": [1.0]}, "shape"),
        ({"beta": [[np.nan, 0, 0], [0, 0, 0]]}, "beta has 1 values that are not finite"),
        ({"beta": np.empty((0, 3))}, "shape"),
        ({"sigma2": [0.0, 1.0]}, "above 0"),
        ({"sigma2": [np.inf, 1.0]}, "not finite"),
        ({"features": ("a", "b")}, "2 different feature names for 3"),
        ({"features": ("a", "b", "b")}, "2 different feature names for 3"),
    ],
)
def test_impossible_models_are_refused(change, message):
    parts = {"pi": MODELS.pi, "beta": MODELS.beta, "sigma2": MODELS.sigma2, "features": MODELS.features, **change}
    with pytest.raises(ModelError, match=message):
        LatentModels(**parts)


def test_models_cannot_be_changed_by_accident():
    beta = np.ones((1, 2))
    models = LatentModels(pi=[1.0], beta=beta, sigma2=[1.0])
    beta[:] = 7
    assert models.beta[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        models.beta[0, 0] = 2


def test_models_travel_between_processes_bit_for_bit():
    models = LatentModels(pi=np.random.default_rng(0).dirichlet(np.ones(7)), beta=np.ones((7, 2)), sigma2=np.ones(7))
    there = pickle.loads(pickle.dumps(models))
    np.testing.assert_array_equal(there.pi, models.pi)


def test_data_of_another_dimension_is_refused_by_name():
    stats = UserStats.from_rows([0], [[1.0, 2.0]], [1])
    with pytest.raises(InputError, match=r"2 features, the models were learned from 3 \(a, b, c\)"):
        MODELS.user_log_likelihood(stats)


def test_features_in_another_order_are_refused():
    stats = UserStats.from_rows([0], [[1.0, 2.0, 3.0]], [1], features=("a", "c", "b"))
    with pytest.raises(InputError, match="feature c where the models have b"):
        MODELS.posterior(stats)


CLICKS = LatentModels(
    pi=[0.5, 0.5], beta=[[0.8, 0.1], [0.2, 0.9]], sigma2=[0.2, 0.2], likelihood="bernoulli", levels=(0.0, 1.0)
)


def test_the_likelihood_of_clicks_is_the_product_of_their_probabilities():
    from lcb.event_log import EventLog

    user, x, reward = [0, 0, 0, 1], np.array([[1.0, 0], [0, 1], [1, 0], [0.5, 0.5]]), [1, 0, 0, 1]
    log = EventLog.from_rows(user, x, reward)
    p = x @ CLICKS.beta.T
    rows = np.where(np.array(reward)[:, None] == 1, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(CLICKS.user_log_likelihood(log), [rows[:3].sum(axis=0), rows[3]])
    np.testing.assert_allclose([CLICKS.log_density(a, r) for a, r in zip(x, reward, strict=True)], rows)


def test_the_levels_of_clicks_shift_and_scale_their_probability():
    shifted = LatentModels(pi=[1.0], beta=[[0.6, 0.02]], sigma2=[0.2], likelihood="bernoulli", levels=(-0.05, 0.95))
    x = np.array([0.5, 0.5])
    np.testing.assert_allclose(shifted.log_density(x, 0.95), np.log(0.31 + 0.05))
    with pytest.raises(InputError, match=r"reward 2 is outside \[-0.05, 0.95\]"):
        shifted.log_density(x, 2.0)


def test_models_of_clicks_need_the_counts():
    with pytest.raises(InputError, match="read_log"):
        CLICKS.posterior(UserStats.from_rows([0], [[1.0, 0.0]], [1]))


@pytest.mark.parametrize(
    ("likelihood", "levels"), [("poisson", None), ("bernoulli", None), ("gaussian", (0, 1)), ("bernoulli", (1, 0))]
)
def test_impossible_likelihoods_are_refused(likelihood, levels):
    with pytest.raises(ModelError):
        LatentModels(pi=[1.0], beta=[[1.0]], sigma2=[1.0], likelihood=likelihood, levels=levels)


def test_the_probability_of_a_click_is_smooth_and_its_slope_is_its_slope():
    from lcb.models import squash

    z = np.concatenate([np.linspace(-2, 3, 2001), [0.0, 1.0]])
    p, slope = squash(z)
    assert ((p > 0) & (p < 1)).all()
    inside = (z > 1e-3) & (z < 1 - 1e-3)
    np.testing.assert_array_equal(p[inside], z[inside])
    step = 1e-8
    np.testing.assert_allclose((squash(z + step)[0] - squash(z - step)[0]) / (2 * step), slope, atol=1e-4)


def test_the_weights_of_a_class_are_as_uncertain_as_a_regression_on_its_users_leaves_them():
    user, x, reward, _ = rows_of(MODELS, 30, 12, seed=3)
    stats = UserStats.from_rows(user, x, reward)
    resp = MODELS.posterior(stats)
    found = weight_covariance(MODELS, stats, Prior(precision=[1.0, 2.0, 3.0]))
    for h in range(2):
        precision = np.diag([1.0, 2.0, 3.0])
        for row, name in zip(x, user, strict=True):
            precision = precision + resp[stats.users.index(name), h] * np.outer(row, row)
        np.testing.assert_allclose(found[h], MODELS.sigma2[h] * np.linalg.inv(precision), rtol=1e-9)


def test_without_a_prior_the_covariance_takes_the_one_scaled_from_the_data():
    user, x, reward, _ = rows_of(MODELS, 30, 12, seed=3)
    stats = UserStats.from_rows(user, x, reward)
    np.testing.assert_array_equal(
        weight_covariance(MODELS, stats), weight_covariance(MODELS, stats, Prior.scaled(stats))
    )
    in_halves = weight_covariance(MODELS, stats.astype(np.float32), Prior())
    np.testing.assert_allclose(in_halves, weight_covariance(MODELS, stats, Prior()), rtol=1e-4)


def test_the_covariance_goes_with_the_models_between_processes():
    models = MODELS.with_covariance(np.tile(np.diag([0.1, 0.2, 0.3]), (2, 1, 1)))
    travelled = pickle.loads(pickle.dumps(models))
    np.testing.assert_array_equal(travelled.covariance, models.covariance)
    assert not models.covariance.flags.writeable
    assert models.with_provenance({"a": 1}).covariance is not None
    assert models.with_covariance(None).covariance is None


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(3), r"covariance has shape \(3, 3\)"),
        (np.tile(np.eye(2), (2, 1, 1)), r"covariance has shape \(2, 2, 2\)"),
        (np.full((2, 3, 3), np.nan), "18 values that are not finite"),
        (np.tile([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], (2, 1, 1)), "not symmetric"),
        (np.tile(np.diag([1.0, 0.0, 1.0]), (2, 1, 1)), "positive diagonal"),
        (np.ones((2, 3, 3)) + np.diag([0.0, 0.0, -0.5]), "not positive definite"),
    ],
)
def test_an_impossible_covariance_is_refused(covariance, message):
    with pytest.raises(ModelError, match=message):
        MODELS.with_covariance(covariance)


def test_noise_is_the_deviation_or_half_the_distance_of_two_levels():
    np.testing.assert_allclose(MODELS.noise, np.sqrt(MODELS.sigma2))
    clicks = LatentModels(MODELS.pi, MODELS.beta, MODELS.sigma2, likelihood="bernoulli", levels=(1.0, 4.0))
    np.testing.assert_array_equal(clicks.noise, [1.5, 1.5])


def test_personal_models_that_cannot_be_are_refused():
    spread = np.tile(np.eye(3), (2, 1, 1))
    arms = {"arms": np.eye(3), "arm_sigma2": np.ones(3)}
    for own, words in (
        ({"personal": True}, "without a covariance"),
        ({"personal": True, "covariance": spread, "likelihood": "bernoulli", "levels": (0.0, 1.0)}, "not Gaussian"),
        ({"covariance": spread, **arms}, "needs personal models"),
        ({"personal": True, "covariance": spread, "arms": np.eye(3)}, "give all, or neither"),
        ({"personal": True, "covariance": spread, **arms, "arms": np.eye(2)}, "wanted \\(A, d\\)"),
        ({"personal": True, "covariance": spread, **arms, "arm_sigma2": [1.0, 0.0, 1.0]}, "not above 0"),
    ):
        with pytest.raises(ModelError, match=words):
            replace(MODELS, **own)


def test_personal_models_travel_between_processes_and_become_points():
    spread = np.tile(np.eye(3), (2, 1, 1))
    models = replace(MODELS, covariance=spread, personal=True, arms=np.eye(3), arm_sigma2=np.arange(1.0, 4.0))
    travelled = pickle.loads(pickle.dumps(models))
    np.testing.assert_array_equal(travelled.noise_of(np.eye(3)), [1.0, 2.0, 3.0])
    points = models.without_spread()
    assert (points.personal, points.covariance, points.arms) == (False, None, None)


def test_one_user_with_features_of_1e9_does_not_stop_the_scores_of_others():
    """Two rewards of three features: rounding takes more from their Gram matrix than the spread of the weights adds."""
    rng = np.random.default_rng(0)
    user, x, reward = np.repeat(np.arange(60), 2), rng.standard_normal((120, 3)), rng.random(120)
    x[14:16] *= 9e8
    spread = np.stack([np.eye(3), 0.1 * np.eye(3)])
    models = LatentModels([0.5, 0.5], np.zeros((2, 3)), np.full(2, 0.01), covariance=spread, personal=True)
    scores = models.user_scores(UserStats.from_rows(user, x, reward))
    assert np.isfinite(scores).all()
    others = user != 7
    alone = models.user_scores(UserStats.from_rows(user[others], x[others], reward[others]))
    np.testing.assert_allclose(np.delete(scores, 7), alone)
