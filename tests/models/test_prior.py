from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import invgamma, multivariate_normal

from conftest import stats_of
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import paper_classes
from lcb.models.prior import Prior
from lcb.stats import UserStats

PRIOR = Prior(mean=[0.2, -0.1], precision=[[2.0, 0.5], [0.5, 1.0]], shape=3.0, rate=0.7)


def one_class(seed=0, n=12):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    return x, x @ [0.7, 0.3] + 0.2 * rng.standard_normal(n)


def log_joint(beta, sigma2, x, reward):
    mean, precision = PRIOR.arrays(2)
    return (
        -0.5 * len(reward) * np.log(2 * np.pi * sigma2)
        - 0.5 * np.sum((reward - x @ beta) ** 2) / sigma2
        + multivariate_normal.logpdf(beta, mean, sigma2 * np.linalg.inv(precision))
        + invgamma.logpdf(sigma2, PRIOR.shape, scale=PRIOR.rate)
    )


def test_the_mode_is_where_the_joint_density_is_highest():  # oracle: a general optimiser
    x, reward = one_class()
    stats = UserStats.from_rows(np.zeros(len(x)), x, reward)
    best = minimize(lambda v: -log_joint(v[:2], np.exp(v[2]), x, reward), [0, 0, 0], method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000})  # fmt: skip
    beta, sigma2 = PRIOR.mode(stats, shared=False)
    np.testing.assert_allclose(beta[0], best.x[:2], atol=1e-5)
    np.testing.assert_allclose(sigma2[0], np.exp(best.x[2]), rtol=1e-4)


def test_the_density_of_parameters_is_that_of_its_parts():
    beta, sigma2, pi = np.array([[0.3, 0.1], [-0.2, 0.9]]), np.array([0.5, 0.2]), np.array([0.25, 0.75])
    mean, precision = PRIOR.arrays(2)
    parts = sum(
        multivariate_normal.logpdf(b, mean, s * np.linalg.inv(precision)) + invgamma.logpdf(s, 3.0, scale=0.7)
        for b, s in zip(beta, sigma2, strict=True)
    )
    from scipy.stats import dirichlet

    expected = parts + dirichlet.logpdf(pi, np.full(2, 1.5))
    assert PRIOR.log_density(pi, beta, sigma2, shared=False) == pytest.approx(expected)


def test_a_class_without_users_takes_the_prior_mode():
    empty = UserStats(np.zeros((7, 1)), 2)
    beta, sigma2 = PRIOR.mode(empty, shared=False)
    np.testing.assert_allclose(beta[0], PRIOR.mean)
    np.testing.assert_allclose(sigma2[0], 2 * PRIOR.rate / (2 + 2 * PRIOR.shape + 2))


def test_the_scaled_prior_finds_the_noise_within_users():
    stats, _ = stats_of(paper_classes(noise=0.1), 300, 20, seed=0)
    assert Prior.scaled(stats).rate == pytest.approx(0.01, rel=0.1)


def test_the_scaled_prior_follows_the_units_of_rewards_and_features():
    rng = np.random.default_rng(0)
    user, x, reward = np.repeat(np.arange(50), 8), rng.standard_normal((400, 3)), rng.standard_normal(400)
    unit = np.array([1e3, 1.0, 1e-3])
    plain = Prior.scaled(UserStats.from_rows(user, x, reward))
    scaled = Prior.scaled(UserStats.from_rows(user, x * unit, reward * 10))
    np.testing.assert_allclose(scaled.rate, plain.rate * 100, rtol=1e-4)
    np.testing.assert_allclose(scaled.mean, plain.mean * 10 / unit, rtol=1e-3)
    np.testing.assert_allclose(np.diag(scaled.precision), np.diag(plain.precision) * unit**2, rtol=1e-3)


@pytest.mark.parametrize("setting", [{"shape": 0.0}, {"rate": -1.0}, {"concentration": np.nan}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        Prior(**setting)


def test_a_precision_of_another_dimension_is_refused():
    with pytest.raises(InputError, match="3 features"):
        Prior(precision=np.eye(2)).arrays(3)


@pytest.mark.parametrize(
    "setting",
    [
        {"mean": np.nan},
        {"precision": np.nan},
        {"precision": -np.eye(2)},
        {"precision": 0},
        {"precision": [[1, 2], [2, 1]]},
    ],
)
def test_a_prior_that_is_none_is_refused_by_name(setting):
    with pytest.raises(InputError, match=f"prior {next(iter(setting))}"):
        Prior(**setting)


def test_a_mean_of_another_dimension_is_refused():
    with pytest.raises(InputError, match="the data has 5 features"):
        Prior(mean=[1.0, 2.0]).arrays(5)
