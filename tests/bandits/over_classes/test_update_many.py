"""Updates of many users at once have the bits of each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import LOSSES, GeneralizedThompson
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.stats import add_rows

SHAPES = [(1, 1, 1), (2, 3, 7), (5, 6, 100), (9, 2, 4), (33, 4, 5), (12, 130, 3)]  # classes, features, users


def build_models(rng: np.random.Generator, n_classes: int, d: int, **more: Any) -> LatentModels:
    beta = rng.normal(size=(n_classes, d)) / d
    return LatentModels(rng.dirichlet(np.ones(n_classes)), beta, 0.1 + rng.random(n_classes), **more)


def hold_against_each(bandit: Any, rng: np.random.Generator, n_users: int) -> None:
    d = bandit.models.n_features
    states = np.array([bandit.start()] * n_users)
    for _ in range(3):
        x, rewards = rng.random((n_users, d)), rng.integers(2, size=n_users).astype(float)
        effects = rng.normal(size=n_users) if bandit.traits.takes_effects and bandit.models.levels is None else None
        of_items = np.zeros(n_users) if effects is None else effects
        found = bandit.update_many(states, x, rewards, of_items)
        for i in range(n_users):
            decision = Decision(0, 1.0, x[i], effect=float(of_items[i]))
            assert found[i].tobytes() == bandit.update(states[i], decision, float(rewards[i])).tobytes()
        states = found


@pytest.mark.parametrize("loss", LOSSES)
def test_of_thompson_sampling_with_every_loss(loss: Any) -> None:
    rng = np.random.default_rng(0)
    for n_classes, d, n_users in SHAPES:
        hold_against_each(GeneralizedThompson(build_models(rng, n_classes, d), 0.7, loss=loss), rng, n_users)


@pytest.mark.parametrize("make", [GeneralizedThompson, PosteriorMean])
def test_of_gaussian_rewards_and_of_clicks(make: Any) -> None:
    rng = np.random.default_rng(1)
    for n_classes, d, n_users in SHAPES:
        hold_against_each(make(build_models(rng, n_classes, d)), rng, n_users)
        clicks = build_models(rng, n_classes, d, likelihood="bernoulli", levels=(0.0, 1.0))
        hold_against_each(make(clicks), rng, n_users)


@pytest.mark.parametrize("make", [GeneralizedThompson, PosteriorMean])
def test_a_reward_that_is_not_a_number_is_refused(make: Any) -> None:
    bandit = make(build_models(np.random.default_rng(2), 2, 2))
    with pytest.raises(InputError, match="reward is nan"):
        bandit.update_many(np.array([bandit.start()] * 2), np.eye(2), np.array([1.0, np.nan]), np.zeros(2))


@pytest.mark.parametrize("personal", [False, True])
def test_the_weights_of_learned_classes_for_many_are_those_for_each(personal: bool) -> None:
    rng = np.random.default_rng(3)
    for n_classes, d, n_users in SHAPES[:-1]:
        covariance = np.tile(0.1 * np.eye(d), (n_classes, 1, 1)) if personal else None
        bandit = LearnedClasses(build_models(rng, n_classes, d, covariance=covariance, personal=personal))
        states = np.array([bandit.start()] * n_users)
        for _ in range(5):
            states = add_rows(states, rng.random(d), rng.random(n_users))
        each = np.array([bandit.weights(state) for state in states])
        np.testing.assert_allclose(bandit.weights_of_many(states), each, rtol=1e-12, atol=1e-15)
