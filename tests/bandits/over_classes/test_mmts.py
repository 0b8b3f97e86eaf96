from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from lcb.bandits.over_classes.mmts import MMTS, normal_points
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import equal_classes
from lcb.models import LatentModels
from lcb.recommenders.individual import Individual

PARTS = {"pi": [0.3, 0.5, 0.2], "beta": [[0.5, 0.1], [0.2, 0.6], [-0.3, 0.4]], "sigma2": [0.04, 0.25, 0.1]}
COVARIANCE = [[[0.05, 0.02], [0.02, 0.04]], [[0.5, -0.1], [-0.1, 0.2]], [[0.01, 0.0], [0.0, 0.3]]]
MODELS = LatentModels(**PARTS, covariance=COVARIANCE)


def rewards_seen(n=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, 2)), rng.standard_normal(n)


def state_after(bandit, xs, rewards):
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    return state


def exact_posterior(models, xs, rewards):
    """By conditioning the joint Gaussian of weights and rewards, class by class: weights, means, covariances."""
    log_joint, means, covariances = [], [], []
    for h in range(models.n_classes):
        beta, covariance = models.beta[h], models.covariance[h]
        of_rewards = xs @ covariance @ xs.T + models.sigma2[h] * np.eye(len(xs))
        gain = covariance @ xs.T @ np.linalg.inv(of_rewards)
        log_joint.append(np.log(models.pi[h]) + multivariate_normal.logpdf(rewards, xs @ beta, of_rewards))
        means.append(beta + gain @ (rewards - xs @ beta))
        covariances.append(covariance - gain @ xs @ covariance)
    return softmax(log_joint), np.array(means), np.array(covariances)


@pytest.mark.parametrize("n", [1, 7, 60])
def test_class_weights_and_means_are_the_exact_posterior(n):
    xs, rewards = rewards_seen(n)
    weights, means, _ = exact_posterior(MODELS, xs, rewards)
    bandit = MMTS(MODELS)
    state = state_after(bandit, xs, rewards)
    np.testing.assert_allclose(bandit.weights(state), weights, atol=1e-9)
    np.testing.assert_allclose(bandit.means(state), means, atol=1e-9)


def test_the_distribution_counts_the_points_at_which_an_arm_is_best():
    xs, rewards = rewards_seen(3)
    weights, means, covariances = exact_posterior(MODELS, xs, rewards)
    context = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    bandit = MMTS(MODELS, n_points=32)
    expected = np.zeros(5)
    for h in range(3):
        root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(covariances[h]))).T  # L'^-1, L L' the precision
        for z in normal_points(2, 32).T:
            expected[np.argmax(context @ (means[h] + root @ z))] += weights[h] / 32
    decision = bandit.choose(state_after(bandit, xs, rewards), context, np.random.default_rng(0))
    np.testing.assert_allclose(decision.distribution, expected, atol=1e-12)


def test_the_distribution_is_close_to_that_of_gaussian_draws():
    xs, rewards = rewards_seen(2)
    weights, means, covariances = exact_posterior(MODELS, xs, rewards)
    rng, context = np.random.default_rng(2), np.random.default_rng(3).uniform(-1, 1, (4, 2))
    n = 100_000
    label = rng.choice(3, size=n, p=weights)
    draws = np.empty((n, 2))
    for h in range(3):
        draws[label == h] = rng.multivariate_normal(means[h], covariances[h], (label == h).sum())
    frequency = np.bincount((draws @ context.T).argmax(axis=1), minlength=4) / n
    bandit = MMTS(MODELS, n_points=1024)
    p = bandit.choose(state_after(bandit, xs, rewards), context, rng).distribution
    assert np.abs(p - frequency).max() < 0.01  # the draws alone scatter by 0.0016


def test_an_arm_that_is_offered_twice_is_played_half_the_time_in_each_place():  # 4.5 sd
    bandit, rng, n = MMTS(MODELS, n_points=16), np.random.default_rng(0), 20_000
    once = bandit.choose(bandit.start(), np.array([[0.5, 0.1], [0.1, 0.5]]), rng).distribution
    twice = np.array([[0.5, 0.1], [0.1, 0.5], [0.5, 0.1]])
    decisions = [bandit.choose(bandit.start(), twice, rng) for _ in range(n)]
    p = decisions[0].distribution
    np.testing.assert_allclose(p, [once[0] / 2, once[1], once[0] / 2], atol=1e-12)
    frequency = np.bincount([decision.arm for decision in decisions], minlength=3) / n
    assert (np.abs(frequency - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_weights_that_are_nearly_certain_give_mts():
    certain = LatentModels(**PARTS, covariance=1e-12 * np.array(COVARIANCE))
    xs, rewards = rewards_seen(4)
    context = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    mmts, mts = MMTS(certain), GeneralizedThompson(MODELS)
    p, q = (
        bandit.choose(state_after(bandit, xs, rewards), context, np.random.default_rng(0)).distribution
        for bandit in (mmts, mts)
    )
    np.testing.assert_allclose(p, q, atol=1e-6)


def test_a_class_with_no_share_is_never_drawn():
    models = LatentModels([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], [0.1, 0.1], covariance=[1e-6 * np.eye(2)] * 2)
    bandit = MMTS(models)
    decision = bandit.choose(bandit.start(), np.eye(2), np.random.default_rng(0))
    assert decision.distribution.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(bandit.weights(bandit.start()), [1.0, 0.0])


@pytest.mark.parametrize("n_features", [1, 2, 10, 40])
@pytest.mark.parametrize("n_points", [2, 16, 128])
def test_points_have_the_moments_of_a_standard_normal(n_features, n_points):
    points = normal_points(n_features, n_points)
    np.testing.assert_allclose(points.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.mean(points**2, axis=1), 1)
    if n_points > 2 * n_features:
        np.testing.assert_allclose(points @ points.T / n_points, np.eye(n_features), atol=1e-9)


def test_points_of_one_dimension_are_spread_as_a_normal_is():
    inside = (np.abs(normal_points(1, 1024)) < 1.0).mean()
    assert inside == pytest.approx(0.6827, abs=0.005)


def test_where_the_weights_are_wrong_knowing_it_helps():
    """Classes off by 0.3 a weight, users of 60 steps: drawing the weights too finds what the classes do not know."""
    truth = equal_classes(np.array([[0.9, 0.5, 0.1, 0.3], [0.1, 0.6, 0.8, 0.2]]))
    wrong = equal_classes(truth.beta + 0.3 * np.array([[-1, 1, 1, 1], [1, 1, -1, 1]]))
    users = FixedArms(truth).draw(60, 60, np.random.default_rng(0))

    def regret(bandit):
        arms = Individual(bandit).serve(range(60), users.contexts, users.rewards, np.random.default_rng(1))
        return users.regret(arms).mean()

    uncertain = wrong.with_covariance(np.tile(0.09 * np.eye(4), (2, 1, 1)))
    assert regret(MMTS(uncertain)) < 0.5 * regret(GeneralizedThompson(wrong))


@pytest.mark.parametrize("n_points", [0, 1, 3, 100])
def test_a_number_of_points_that_is_no_power_of_two_is_refused(n_points):
    with pytest.raises(InputError, match=f"n_points={n_points}"):
        MMTS(MODELS, n_points)


def test_models_that_do_not_know_their_covariance_are_refused():
    with pytest.raises(InputError, match="weight_covariance"):
        MMTS(LatentModels(**PARTS))
