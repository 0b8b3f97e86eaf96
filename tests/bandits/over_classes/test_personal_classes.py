"""Personal classes against Gaussian conditioning on all rewards at once, and in the limits of no and great spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers
from scipy.stats import multivariate_normal

from lcb.bandits.bandit import serve, serve_step_by_step
from lcb.bandits.over_classes._personal_classes_numba import add_to_normals, find_normals, score_normals
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels

D = 3
BETA = np.array([[1.0, 0.0, 0.5], [0.0, 0.8, 0.1]])
SPREAD = np.array([[[0.2, 0.05, 0.0], [0.05, 0.1, 0.0], [0.0, 0.0, 0.3]], 0.1 * np.eye(3)])
PEOPLE = LatentModels([0.6, 0.4], BETA, [0.04, 0.04], covariance=SPREAD, personal=True)
PER_ARM = LatentModels(
    [0.6, 0.4], BETA, [0.04, 0.04], covariance=SPREAD, personal=True, arms=np.eye(3), arm_sigma2=[0.01, 0.04, 0.25]
)


def reward_all(bandit, xs, rewards):
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    return state


@pytest.mark.parametrize("models", [PEOPLE, PER_ARM], ids=["one noise", "noise per arm"])
@settings(max_examples=15, deadline=None)
@given(seed=integers(0, 2**32 - 1), n=integers(1, 12))
def test_the_posterior_is_that_of_all_rewards_at_once(models, seed, n):
    rng = np.random.default_rng(seed)
    xs = np.eye(3)[rng.integers(0, 3, n)] if models.arms is not None else rng.normal(size=(n, D))
    rewards, bandit = rng.normal(size=n), PersonalClasses(models, bonus=0.7)
    state = reward_all(bandit, xs, rewards)
    noise, log_w, means, covariances = np.diag(models.noise_of(xs)), [], [], []
    for h in range(2):  # (weights, rewards) are jointly normal: condition on the rewards
        size = xs @ SPREAD[h] @ xs.T + noise
        gain = SPREAD[h] @ xs.T @ np.linalg.inv(size)
        log_w.append(np.log(models.pi[h]) + multivariate_normal(xs @ BETA[h], size).logpdf(rewards))
        means.append(BETA[h] + gain @ (rewards - xs @ BETA[h]))
        covariances.append(SPREAD[h] - gain @ xs @ SPREAD[h])
    w = np.exp(log_w - np.logaddexp.reduce(log_w))
    np.testing.assert_allclose(bandit.weights(state), w, atol=1e-9)
    np.testing.assert_allclose(bandit.means(state), means, atol=1e-9)
    context = rng.normal(size=(5, D))
    expected = context @ np.array(means).T
    mean = expected @ w
    own = np.einsum("ki,hij,kj->kh", context, np.array(covariances), context)
    sd = np.sqrt((np.square(expected - mean[:, None]) + own) @ w)
    np.testing.assert_allclose(bandit.scores(state, context), mean + 0.7 * sd, atol=1e-8)


def test_without_spread_it_is_the_posterior_mean_with_the_same_bonus():
    models = PEOPLE.without_spread()
    certain = models.with_covariance(np.tile(1e-12 * np.eye(D), (2, 1, 1)))
    rng, points = np.random.default_rng(0), PosteriorMean(models, bonus=0.5)
    bandit, log_w = PersonalClasses(certain, bonus=0.5), points.start()
    state = bandit.start()
    for x, reward in zip(rng.normal(size=(8, D)), rng.normal(size=8), strict=True):
        decision = Decision(0, 1.0, x)
        state, log_w = bandit.update(state, decision, reward), points.update(log_w, decision, reward)
        context = rng.normal(size=(6, D))
        np.testing.assert_allclose(bandit.weights(state), np.exp(log_w), atol=1e-5)
        np.testing.assert_allclose(bandit.scores(state, context), points.scores(log_w, context), atol=1e-4)


def test_one_class_of_great_spread_is_ridge_regression_for_each_user():
    rng, noise, size = np.random.default_rng(1), 0.09, 1e4
    models = LatentModels([1.0], np.zeros((1, D)), [noise], covariance=[size * np.eye(D)], personal=True)
    xs, rewards, bandit = rng.normal(size=(10, D)), rng.normal(size=10), PersonalClasses(models, bonus=2.0)
    state = reward_all(bandit, xs, rewards)
    gram = xs.T @ xs + noise / size * np.eye(D)
    ridge = np.linalg.solve(gram, xs.T @ rewards)
    np.testing.assert_allclose(bandit.means(state)[0], ridge, rtol=1e-8)
    width = np.sqrt(np.einsum("ki,ij,kj->k", np.eye(D), noise * np.linalg.inv(gram), np.eye(D)))
    np.testing.assert_allclose(bandit.scores(state, np.eye(D)), ridge + 2.0 * width, rtol=1e-6)  # LinUCB's rule


def test_any_order_of_rewards_gives_the_same_state():
    rng, bandit = np.random.default_rng(2), PersonalClasses(PER_ARM)
    xs, rewards = np.eye(3)[rng.integers(0, 3, 20)], rng.integers(0, 2, 20).astype(float)
    order = rng.permutation(20)
    np.testing.assert_allclose(
        reward_all(bandit, xs, rewards), reward_all(bandit, xs[order], rewards[order]), atol=1e-10
    )


def test_serve_knows_the_noise_of_each_arm():
    rng, bandit = np.random.default_rng(3), PersonalClasses(PER_ARM, bonus=0.5, uniform=0.1)
    contexts = np.tile(np.vstack([np.eye(3), np.ones((1, 3))]), (6, 12, 1, 1))  # the last arm is not known
    contexts[3:, :, 0, 1] = -0.0  # the same arm
    contexts[4:, :, 3] = [0.0, 0.0, 2.0]  # now all have one feature
    rewards, states = rng.random((6, 12, 4)), np.tile(bandit.start(), (6, 1))
    fast_states, fast = serve(bandit, states, contexts, rewards, np.random.default_rng(0))
    slow_states, slow = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(fast_states, slow_states, atol=1e-10)
    assert set(fast.ravel()) == {0, 1, 2, 3}


def begin(bandit, state):
    log_w, means, covariances = np.empty(2), np.empty((2, D)), np.empty((2, D, D))
    find_normals(state, bandit._terms, log_w, means, covariances)
    return log_w, means, covariances


@settings(max_examples=15, deadline=None)
@given(seed=integers(0, 2**32 - 1), n=integers(1, 100))
def test_serving_adds_rewards_one_by_one_to_what_the_statistics_give_in_any_order(seed, n):
    rng, bandit = np.random.default_rng(seed), PersonalClasses(PEOPLE, bonus=0.7)
    xs, rewards, context = rng.normal(size=(n, D)), rng.normal(size=n), rng.normal(size=(5, D))
    if seed % 2:  # one-hot, with numbers other than 1
        xs, context = 1.5 * np.eye(D)[rng.integers(0, D, n)], np.diag(rng.normal(size=D))[rng.integers(0, D, 5)]
    state, found, scores = reward_all(bandit, xs, rewards), [], np.empty(5)
    for order in (np.arange(n), rng.permutation(n)):
        log_w, means, covariances = begin(bandit, bandit.start())
        for i in order:
            assert add_to_normals(xs[i], rewards[i], 1 / PEOPLE.sigma2, log_w, means, covariances, np.empty(D))
        weights = np.exp(log_w - np.logaddexp.reduce(log_w))
        np.testing.assert_allclose(weights, bandit.weights(state), atol=1e-9)
        np.testing.assert_allclose(means, bandit.means(state), atol=1e-9)
        np.testing.assert_allclose(covariances, begin(bandit, state)[2], atol=1e-9)
        scratch = np.empty(D), np.empty((D, D))
        score_normals(context, np.empty(5, np.int64), 0.7, weights, means, covariances, *scratch, scores)
        np.testing.assert_allclose(scores, bandit.scores(state, context), atol=1e-9)
        found.append(scores.copy())
    np.testing.assert_allclose(*found, atol=1e-9)


def test_serving_begins_at_what_is_known_of_a_user_and_stays_exact_for_long():
    rng, bandit = np.random.default_rng(4), PersonalClasses(PEOPLE, bonus=0.5, uniform=0.1)
    contexts, rewards = rng.normal(size=(3, 260, 4, D)), rng.normal(size=(3, 260, 4))
    known = reward_all(bandit, rng.normal(size=(9, D)), rng.normal(size=9))
    states = np.stack([bandit.start(), known, known])
    fast_states, fast = serve(bandit, states, contexts, rewards, np.random.default_rng(0), 2)
    slow_states, slow = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(0), 2)
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(fast_states, slow_states, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", [1e10, 1e12])
def test_a_spread_beyond_double_precision_leaves_finite_scores(scale):
    models = LatentModels([0.6, 0.4], BETA, [1e-6, 1e-6], covariance=scale * SPREAD, personal=True)
    for seed in range(5):
        rng, bandit = np.random.default_rng(seed), PersonalClasses(models, bonus=1.0)
        state = bandit.start()
        for _ in range(15):
            decision = bandit.choose(state, rng.normal(size=(6, D)), rng)  # refuses a NaN
            state = bandit.update(state, decision, float(rng.normal()))


def test_serving_uses_the_statistics_where_a_reward_would_lose_digits():
    spread = 3e9 * SPREAD  # against a noise of 1e-6: the first reward of a direction takes away nearly all of it
    models = LatentModels([0.6, 0.4], BETA, [1e-6, 1e-6], covariance=spread, personal=True)
    rng, bandit = np.random.default_rng(5), PersonalClasses(models, bonus=1.0)
    weights = rng.normal(size=(20, 1, D, 1))
    contexts = rng.normal(size=(20, 15, 6, D))
    rewards = (contexts @ weights)[..., 0] + 1e-3 * rng.normal(size=(20, 15, 6))
    states = np.tile(bandit.start(), (20, 1))
    _, fast = serve(bandit, states, contexts, rewards, np.random.default_rng(0))
    _, slow = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(fast, slow)


def test_other_settings_and_models_are_refused():
    for own in ({"bonus": -1.0}, {"bonus": float("nan")}, {"uniform": 1.5}):
        with pytest.raises(InputError, match=next(iter(own))):
            PersonalClasses(PEOPLE, **own)
    with pytest.raises(InputError, match="learn them with the learner 'personal'"):
        PersonalClasses(PEOPLE.without_spread())
