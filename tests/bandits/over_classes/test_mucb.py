from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.bandits.bandit import choose_uniformly
from lcb.bandits.over_classes.mucb import MUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels

MODELS = LatentModels(
    pi=[0.2, 0.3, 0.5], beta=[[0.9, 0.1, 0.0], [0.2, 0.8, 0.1], [0.1, 0.2, 0.7]], sigma2=[0.04, 0.09, 0.01]
)


def played_by_the_book(models, contexts, rewards, n, epsilon, width):
    """Algorithm 1 of Hong et al. 2020, rounds kept in lists; `width` 1 is the publication's."""
    rounds, arms, consistent_sets = [], [], []
    for context, reward in zip(contexts, rewards, strict=True):
        consistent = []
        for s in range(models.n_classes):
            own = [(x, r) for b, x, r in rounds if b == s]
            gap = sum(float(models.beta[s] @ x) - epsilon - r for x, r in own)
            if gap <= width * math.sqrt(models.sigma2[s]) * math.sqrt(6 * len(own) * math.log(n)):
                consistent.append(s)
        pairs = [(float(models.beta[s] @ x), s, a) for s in consistent for a, x in enumerate(context)]
        _, b, a = max(pairs)
        rounds.append((b, context[a], reward[a]))
        arms.append(a)
        consistent_sets.append(consistent)
    return arms, consistent_sets


@pytest.mark.parametrize(("epsilon", "width", "truth"), [(0.0, 1.0, 2), (0.1, 0.4, 1), (0.05, 0.15, 2), (0.0, 0.5, 0)])
def test_it_plays_the_published_algorithm(epsilon, width, truth):
    rng = np.random.default_rng(5)
    contexts = rng.uniform(-1, 1, (200, 4, 3))
    rewards = contexts @ MODELS.beta[truth] + np.sqrt(MODELS.sigma2[truth]) * rng.standard_normal((200, 4))
    arms, sets = played_by_the_book(MODELS, contexts, rewards, 200, epsilon, width)
    assert len({len(consistent) for consistent in sets}) > 1  # some class is refuted on the way
    bandit = MUCB(MODELS, n_steps=200, width=width, epsilon=epsilon)
    state = bandit.start()
    for context, reward, arm, consistent in zip(contexts, rewards, arms, sets, strict=True):
        assert np.flatnonzero(bandit.consistent(state)).tolist() == consistent
        decision = bandit.choose(state, context, rng)
        assert decision.arm == arm
        state = bandit.update(state, decision, reward[arm])


def test_a_larger_epsilon_forgives_a_larger_shortfall():
    x, promise = np.array([1.0, 0.0, 0.0]), 0.9
    allowed = 0.2 * math.sqrt(6 * math.log(50))
    decision = Decision(0, 1.0, x, advice=np.array([1.0, 0.0, 0.0]))
    for epsilon in (0.0, 0.3):
        bandit = MUCB(MODELS, n_steps=50, epsilon=epsilon)
        for reward, kept in ((promise - epsilon - allowed + 1e-9, True), (promise - epsilon - allowed - 1e-9, False)):
            assert bandit.consistent(bandit.update(bandit.start(), decision, reward))[0] == kept


def test_a_class_that_gives_more_than_it_promised_stays():
    decision = Decision(0, 1.0, np.array([1.0, 0.0, 0.0]), advice=np.ones(3))
    bandit = MUCB(MODELS, n_steps=10)
    assert bandit.consistent(bandit.update(bandit.start(), decision, 50.0)).all()


def test_where_all_classes_are_refuted_the_least_refuted_is_played():
    bandit = MUCB(MODELS, n_steps=10, width=0.0)
    state = np.array([1.0, 1.0, 1.0, 0.5, 0.2, 0.3])
    assert bandit.consistent(state).tolist() == [False, True, False]
    assert bandit.choose(state, np.eye(3), np.random.default_rng(0)).arm == 1


def test_an_arm_taken_at_random_counts_for_the_classes_whose_best_it_is():
    bandit = MUCB(MODELS, n_steps=10)
    decision = choose_uniformly(bandit, np.eye(3), 0.5)
    assert decision.arm == 1
    assert decision.advice.tolist() == [0.0, 1.0, 0.0]
    assert bandit.update(bandit.start(), decision, 0.6) == pytest.approx([0, 1, 0, 0, 0.2, 0])


def test_clicks_have_the_noise_of_half_the_distance_of_their_levels():
    clicks = LatentModels(MODELS.pi, MODELS.beta, MODELS.sigma2, likelihood="bernoulli", levels=(0.0, 3.0))
    np.testing.assert_allclose(MUCB(clicks, n_steps=7).bound, 1.5 * math.sqrt(6 * math.log(7)))


@pytest.mark.parametrize(
    "setting", [{"n_steps": 0}, {"n_steps": 5, "width": -1.0}, {"n_steps": 5, "epsilon": np.nan}], ids=str
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=list(setting)[-1]):
        MUCB(MODELS, **setting)


def test_a_decision_that_names_no_class_is_refused():
    bandit = MUCB(MODELS, n_steps=5)
    with pytest.raises(InputError, match="not credited to any class"):
        bandit.update(bandit.start(), Decision(0, 1.0, np.ones(3)), 0.5)
