from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import Softmax
from lcb.stats import UserStats

MODELS = LatentModels(pi=[0.3, 0.7], beta=[[0.5, 0.1], [0.2, 0.6]], sigma2=[0.04, 0.25])


def rewards_seen(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 2)), rng.standard_normal(n)


def weights_after(bandit, xs, rewards):
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    return bandit.weights(state)


def test_weights_are_the_exact_posterior():  # oracle: Bayes' rule, all rewards at once
    xs, rewards = rewards_seen()
    stats = UserStats.from_rows(np.zeros(len(xs)), xs, rewards)
    log_joint = np.log(MODELS.pi) + MODELS.user_log_likelihood(stats)[0]
    weights = weights_after(GeneralizedThompson(MODELS), xs, rewards)
    np.testing.assert_allclose(weights, softmax(log_joint), atol=1e-12)


def test_weights_follow_the_gaussian_density_to_the_power_eta():
    xs, rewards = rewards_seen(5)
    log_density = norm.logpdf(rewards[:, None], xs @ MODELS.beta.T, np.sqrt(MODELS.sigma2)).sum(axis=0)
    weights = weights_after(GeneralizedThompson(MODELS, eta=0.3), xs, rewards)
    np.testing.assert_allclose(weights, softmax(np.log(MODELS.pi) + 0.3 * log_density), atol=1e-12)


def test_square_loss_is_the_squared_miss():
    xs, rewards = rewards_seen(5)
    loss = ((rewards[:, None] - xs @ MODELS.beta.T) ** 2).sum(axis=0)
    weights = weights_after(GeneralizedThompson(MODELS, eta=0.7, loss="square"), xs, rewards)
    np.testing.assert_allclose(weights, softmax(np.log(MODELS.pi) - 0.7 * loss), atol=1e-12)


def test_log_loss_is_the_bernoulli_likelihood_inside_the_unit_interval():
    x, bandit = np.array([0.8, 0.4]), GeneralizedThompson(MODELS, loss="log")
    expected = MODELS.beta @ x
    weights = weights_after(bandit, [x, x, x], [1.0, 0.0, 1.0])
    np.testing.assert_allclose(weights, softmax(np.log(MODELS.pi * expected**2 * (1 - expected))), atol=1e-12)


def test_log_loss_refuses_a_reward_outside_the_unit_interval():
    bandit = GeneralizedThompson(MODELS, loss="log")
    with pytest.raises(InputError, match=r"1.2 is outside \[0, 1\]"):
        bandit.update(bandit.start(), Decision(0, 1.0, np.ones(2)), 1.2)


def test_arms_get_the_weight_of_the_classes_that_like_them_best():
    bandit = GeneralizedThompson(MODELS, uniform=0.1)
    p = bandit.choose(bandit.start(), np.eye(2), np.random.default_rng(0)).distribution
    np.testing.assert_allclose(p, 0.9 * np.array([0.3, 0.7]) + 0.05)


def test_softmax_policies_mix_by_the_weights():
    bandit = GeneralizedThompson(MODELS, policy=Softmax(temperature=0.5))
    p = bandit.choose(bandit.start(), np.eye(2), np.random.default_rng(0)).distribution
    np.testing.assert_allclose(p, MODELS.pi @ softmax(MODELS.beta / 0.5, axis=1))


@pytest.mark.parametrize(
    "setting", [{"uniform": 1.5}, {"uniform": -0.1}, {"eta": 0.0}, {"eta": np.inf}, {"loss": "cubic"}]
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        GeneralizedThompson(MODELS, **setting)


def test_a_class_with_no_share_is_never_played():
    models = LatentModels(pi=[1.0, 0.0], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.1, 0.1])
    bandit = GeneralizedThompson(models)
    state = bandit.start()
    for _ in range(20):
        decision = bandit.choose(state, np.eye(2), np.random.default_rng(0))
        assert decision.arm == 0
        state = bandit.update(state, decision, 0.0)
