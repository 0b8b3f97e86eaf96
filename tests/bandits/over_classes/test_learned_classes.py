"""Learned classes of either kind make the choices of the bandits for one kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits.bandit import serve, serve_step_by_step
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.models import LatentModels

BETA = np.array([[1.0, 0.0, 0.5], [0.0, 0.8, 0.1], [0.3, 0.3, 0.9]])
POINT = LatentModels([0.5, 0.3, 0.2], BETA, [0.04, 0.09, 0.05])
PEOPLE = LatentModels([0.5, 0.3, 0.2], BETA, [0.04] * 3, covariance=np.tile(0.1 * np.eye(3), (3, 1, 1)), personal=True)


@pytest.mark.parametrize(
    ("models", "other"), [(POINT, PosteriorMean(POINT, bonus=0.7)), (PEOPLE, PersonalClasses(PEOPLE, bonus=0.7))]
)
def test_it_chooses_and_learns_as_the_bandit_of_its_kind(models, other):
    rng, bandit = np.random.default_rng(0), LearnedClasses(models, bonus=0.7)
    state, twin = bandit.start(), other.start()
    for _ in range(25):
        context = rng.normal(size=(5, 3))
        decision = bandit.choose(state, context, np.random.default_rng(1))
        assert decision.arm == other.choose(twin, context, np.random.default_rng(1)).arm
        reward = rng.normal(0.5, 0.3)
        state, twin = bandit.update(state, decision, reward), other.update(twin, decision, reward)
        np.testing.assert_allclose(bandit.weights(state), other.weights(twin), atol=1e-9)


CLICKS = replace(POINT, likelihood="bernoulli", levels=(0.0, 1.0))


@pytest.mark.parametrize("models", [POINT, CLICKS, PEOPLE], ids=["point", "clicks", "personal"])
def test_many_users_at_once_are_served_as_by_the_verbs(models):
    rng, bandit = np.random.default_rng(3), LearnedClasses(models, bonus=0.7, uniform=0.1)
    states = np.tile(bandit.start(), (20, 1))
    contexts, rewards = rng.normal(size=(20, 12, 5, 3)), rng.integers(0, 2, (20, 12, 5)).astype(float)
    for _ in range(2):  # new users, then users with statistics
        fast, arms = serve(bandit, states, contexts, rewards, np.random.default_rng(1), 2)
        slow, same = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(1), 2)
        np.testing.assert_array_equal(arms, same)
        np.testing.assert_allclose(fast, slow, atol=1e-9)
        states = fast


def test_the_bonus_is_the_one_chosen_with_the_classes_and_noise_is_one_number():
    context = np.eye(3)
    chosen = replace(POINT, provenance={"bonus": 1.5})
    for models, bonus, expected in ((chosen, None, 1.5), (POINT, None, 0.5), (chosen, 0.25, 0.25)):
        bandit = LearnedClasses(models, bonus)
        same = PosteriorMean(POINT, bonus=expected)
        np.testing.assert_allclose(bandit.scores(bandit.start(), context), same.scores(same.start(), context))
    per_arm = LearnedClasses(replace(PEOPLE, arms=np.eye(3), arm_sigma2=np.array([0.01, 0.04, 0.25])))
    assert per_arm.models.arms is None


def test_a_state_can_be_served_by_other_classes():
    rng, bandit = np.random.default_rng(2), LearnedClasses(POINT)
    state = bandit.start()
    for _ in range(10):
        decision = bandit.choose(state, np.eye(3), rng)
        state = bandit.update(state, decision, float(BETA[1] @ decision.x))
    assert bandit.weights(state).argmax() == 1
    turned = LearnedClasses(replace(POINT, beta=BETA[::-1].copy()))
    assert turned.weights(state).argmax() == 1  # the second class is in the middle either way
    assert LearnedClasses(PEOPLE).weights(state).argmax() == 1
