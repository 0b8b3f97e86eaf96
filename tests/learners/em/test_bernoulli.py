from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from conftest import largest_error
from lcb.errors import ConvergenceWarning, InputError
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.em import bernoulli
from lcb.learners.em import gaussian as em
from lcb.models.prior import Prior

BETA = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]])


def clicks_of(beta, n_users, n_rows, seed, arms=None, levels=(0.0, 1.0)):
    """Users of these classes; arms are unit vectors of a fixed set, or anywhere on the simplex."""
    rng = np.random.default_rng(seed)
    label = rng.integers(len(beta), size=n_users)
    user = np.repeat(np.arange(n_users), n_rows)
    d = beta.shape[1]
    x = rng.dirichlet(np.ones(d), len(user)) if arms is None else arms[rng.integers(len(arms), size=len(user))]
    p = np.einsum("nd,nd->n", x, beta[label[user]])
    reward = np.where(rng.random(len(user)) < p, levels[1], levels[0])
    return EventLog.from_rows(user, x, reward), label


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_log_posterior_never_falls(seed):
    log, _ = clicks_of(BETA, 80, 6, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trace = bernoulli.fit(log, 5, rng=np.random.default_rng(seed), max_steps=25).trace
    assert np.all(np.diff(trace) >= 0)
    assert np.isfinite(trace).all()


def test_one_class_is_the_maximum_of_its_posterior():  # oracle: a general optimiser
    log, _ = clicks_of(BETA[:1], 50, 10, seed=0)
    prior = Prior.scaled(log.stats)
    found = bernoulli.fit(log, 1, rng=np.random.default_rng(0), tol=1e-12).models.beta[0]
    mean, precision = prior.arrays(4)
    _, x, reward = log.rows

    def loss(beta):
        p = np.clip(x @ beta, 1e-3, 1 - 1e-3)
        offset = beta - mean
        likelihood = np.where(reward == 1, np.log(p), np.log(1 - p)).sum()
        return -likelihood + 0.5 * offset @ precision @ offset * prior.shape / prior.rate

    best = minimize(loss, found + 0.01, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000})
    assert loss(found) <= best.fun + 1e-6


def test_clicks_on_a_fixed_set_of_arms_give_back_the_classes():
    log, _ = clicks_of(BETA, 3000, 20, seed=0, arms=np.eye(4))
    assert len(log.clicks.arms) == 4
    found = bernoulli.fit(log, 3, rng=np.random.default_rng(0)).models
    assert largest_error(found.beta, BETA) < 0.06
    assert found.likelihood == "bernoulli"
    assert found.levels == (0.0, 1.0)


def test_few_clicks_per_user_are_learned_better_than_by_a_gaussian():
    log, _ = clicks_of(BETA, 20_000, 5, seed=0, arms=np.eye(4))
    ours = bernoulli.fit(log, 3, rng=np.random.default_rng(0)).models
    gaussian = em.fit(log.stats, 3, rng=np.random.default_rng(0), variance="shared").models
    assert largest_error(ours.beta, BETA) < 0.04
    assert largest_error(gaussian.beta, BETA) > 2 * largest_error(ours.beta, BETA)


def test_shifted_and_scaled_rewards_shift_and_scale_the_classes():
    plain, _ = clicks_of(BETA, 1500, 10, seed=1, arms=np.eye(4))
    owner, x, reward = plain.rows
    moved = EventLog.from_rows(owner, x, 3 * reward - 1)
    ours, other = (bernoulli.fit(log, 3, rng=np.random.default_rng(0), tol=1e-9).models for log in (plain, moved))
    assert largest_error((other.beta + 1) / 3, ours.beta) < 0.01


def test_the_door_chooses_it_for_two_values_and_says_so():
    log, _ = clicks_of(BETA, 1500, 15, seed=0, arms=np.eye(4))
    found = fit(log, rng=np.random.default_rng(0))
    assert found.models.likelihood == "bernoulli"
    assert found.models.n_classes == 3
    assert "two values" in found.why[0]
    assert "3 classes" in found.why[1]
    gaussian = fit(log, 3, rng=np.random.default_rng(0), likelihood="gaussian")
    assert gaussian.models.likelihood == "gaussian"


def test_rewards_of_many_values_are_refused():
    log = EventLog.from_rows([0, 1, 2], np.ones((3, 1)), [0.1, 0.2, 0.3])
    with pytest.raises(InputError, match="exactly two values"):
        bernoulli.fit(log, 1, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="for a Bernoulli likelihood use em"):
        fit(log, 1, rng=np.random.default_rng(0), learner="gibbs", likelihood="bernoulli")


@pytest.mark.parametrize(
    "kind", ["all clicks but one", "constant feature", "collinear", "one reward each", "zero rows"]
)
def test_hard_data_gives_finite_models(kind):
    rng = np.random.default_rng(0)
    user, x, reward = np.repeat(np.arange(40), 5), rng.random((200, 3)), rng.integers(2, size=200).astype(float)
    if kind == "all clicks but one":
        reward[1:] = 1.0
        reward[0] = 0.0
    if kind == "constant feature":
        x[:, 1] = 1.0
    if kind == "collinear":
        x[:, 2] = 2 * x[:, 1]
    if kind == "one reward each":
        user = np.arange(200)
    if kind == "zero rows":
        x[:50] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = bernoulli.fit(EventLog.from_rows(user, x, reward), 3, rng=rng)
    assert np.isfinite(found.trace).all()
    assert np.isfinite(found.models.beta).all()


def test_stopping_early_is_said():
    log, _ = clicks_of(BETA, 200, 6, seed=0)
    with pytest.warns(ConvergenceWarning, match="EM on clicks stopped at 2 steps"):
        bernoulli.fit(log, 3, rng=np.random.default_rng(0), max_steps=2)
