from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels

MODELS = LatentModels(pi=[0.6, 0.4], beta=[[1.0, 0.0, 0.7], [0.0, 1.0, 0.7]], sigma2=[0.1, 0.2])


def test_it_plays_the_arm_best_on_average_which_no_class_likes_best():
    decision = PosteriorMean(MODELS).choose(np.log(MODELS.pi), np.eye(3), np.random.default_rng(0))
    assert decision.arm == 2
    assert decision.propensity == 1


def test_its_weights_are_those_of_thompson():
    decision = Decision(0, 1.0, np.array([0.3, -0.2, 0.5]))
    for reward in (-1.0, 0.0, 2.5):
        ours = PosteriorMean(MODELS).update(np.log(MODELS.pi), decision, reward)
        thompson = GeneralizedThompson(MODELS).update(np.log(MODELS.pi), decision, reward)
        np.testing.assert_allclose(ours, thompson, atol=1e-12)


def test_the_uniform_slice_reaches_every_arm():
    p = PosteriorMean(MODELS, uniform=0.3).choose(np.log(MODELS.pi), np.eye(3), np.random.default_rng(0)).distribution
    np.testing.assert_allclose(p, [0.1, 0.1, 0.8])


def test_a_uniform_slice_of_everything_is_the_uniform_policy():
    bandit, rng = PosteriorMean(MODELS, uniform=1.0), np.random.default_rng(0)
    decisions = [bandit.choose(bandit.start(), np.eye(3), rng) for _ in range(200)]
    assert {decision.arm for decision in decisions} == {0, 1, 2}
    np.testing.assert_allclose(decisions[0].distribution, np.full(3, 1 / 3))


@pytest.mark.parametrize("uniform", [-0.1, 1.1, float("nan")])
def test_a_slice_outside_the_unit_interval_is_refused(uniform):
    with pytest.raises(InputError, match="uniform"):
        PosteriorMean(MODELS, uniform=uniform)


def test_the_bonus_is_the_spread_of_the_classes_expected_rewards():
    bandit, state = PosteriorMean(MODELS, bonus=0.8), np.log([0.3, 0.7])
    context = np.random.default_rng(0).normal(size=(5, 3))
    expected = context @ MODELS.beta.T  # (arms, classes)
    mean = expected @ [0.3, 0.7]
    sd = np.sqrt(np.square(expected - mean[:, None]) @ [0.3, 0.7])
    np.testing.assert_allclose(bandit.scores(state, context), mean + 0.8 * sd, rtol=1e-12)


def test_with_a_bonus_it_tries_the_arm_the_classes_disagree_about_until_the_class_is_known():
    models = LatentModels(pi=[0.5, 0.5], beta=[[0.6, 0.9], [0.6, 0.1]], sigma2=[0.1, 0.1])
    for bonus, arm in ((0.0, 0), (0.2, 0), (0.3, 1)):  # means 0.6 and 0.5, standard deviations 0 and 0.4
        decision = PosteriorMean(models, bonus=bonus).choose(np.log(models.pi), np.eye(2), np.random.default_rng(0))
        assert (decision.arm, decision.propensity) == (arm, 1.0)
    known = PosteriorMean(models, bonus=10.0).choose(np.array([-np.inf, 0.0]), np.eye(2), np.random.default_rng(0))
    assert known.arm == 0


@pytest.mark.parametrize("bonus", [-0.1, float("inf"), float("nan")])
def test_a_bonus_that_is_no_number_from_0_on_is_refused(bonus):
    with pytest.raises(InputError, match="bonus"):
        PosteriorMean(MODELS, bonus=bonus)
