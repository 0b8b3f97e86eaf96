"""Item effects in the bandits that take them: the rule, the update, exact propensities, and nothing changed without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.registry import BANDITS
from lcb.models import LatentModels
from lcb.models.item_effects import ArmEffects

BETA = np.array([[1.0, 0.0, 0.5], [0.0, 0.8, 0.1]])
POINT = LatentModels([0.6, 0.4], BETA, [0.04, 0.09])
PEOPLE = LatentModels([0.6, 0.4], BETA, [0.04] * 2, covariance=np.tile(0.1 * np.eye(3), (2, 1, 1)), personal=True)
CONTEXT = np.random.default_rng(5).normal(size=(6, 3))
EFFECTS = ArmEffects(np.random.default_rng(6).normal(size=6), np.random.default_rng(7).random(6))
NONE = ArmEffects(np.zeros(6), np.zeros(6))
SETTINGS = {"bonus": 0.7, "item_bonus": 0.4}
OVER_CLASSES = [
    PosteriorMean(POINT, **SETTINGS),
    PosteriorMean(POINT, bonus=0.0, item_bonus=0.4),
    PersonalClasses(PEOPLE, **SETTINGS),
    LearnedClasses(POINT, **SETTINGS),
    LearnedClasses(PEOPLE, **SETTINGS),
]
ALL = [*OVER_CLASSES, LinUCB(3)]


def after_some_rewards(bandit):
    rng, state = np.random.default_rng(1), bandit.start()
    for _ in range(4):
        context = rng.normal(size=(5, 3))
        state = bandit.update(state, bandit.choose(state, context, rng), rng.normal())
    return state


def test_every_bandit_that_says_so_is_tested_here():
    assert {name for name, kind in BANDITS.items() if kind.traits.takes_effects} == {
        "posterior-mean", "personal-classes", "learned-classes", "linucb",
    }  # fmt: skip


def index_of(s):
    """Brezzi & Lai (2002), (3.4): Gittins' index of a normal arm beyond its mean, in standard deviations."""
    root = np.sqrt(s)
    parts = [(s <= 0.2, np.sqrt(s / 2)), (s <= 1, 0.49 - 0.11 / root), (s <= 5, 0.63 - 0.26 / root)]
    large = np.log(np.maximum(s, 15))
    parts += [(s <= 15, 0.77 - 0.58 / root), (s > 15, np.sqrt(2 * large - np.log(large) - np.log(16 * np.pi)))]
    return np.select(*zip(*parts, strict=True))


@pytest.mark.parametrize("horizon", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("bandit", OVER_CLASSES, ids=str)
def test_the_best_arm_is_that_of_the_formula(bandit, horizon):
    bandit = replace(bandit, item_horizon=horizon)
    state, rng = after_some_rewards(bandit), np.random.default_rng(0)
    scores = bandit.scores(state, CONTEXT)
    for _ in range(50):
        effect, variance = rng.normal(size=6), rng.gamma(0.5, size=6)
        decision = bandit.choose(state, CONTEXT, rng, ArmEffects(effect, variance, noise=0.3))
        means = decision.means
        sd = (scores - means) / 0.7  # no bonus: 0
        relative = 1 + 4 * np.log(
            np.maximum(variance / variance.mean(), 1)
        )  # in logs written before there was a horizon
        lift = 1.5 * index_of(horizon * variance / 0.3) ** 2 if horizon else relative
        mine = means + effect + np.sqrt(0.7**2 * sd**2 + 0.4**2 * lift * variance)
        assert decision.arm == mine.argmax()
        assert (decision.effect, decision.mean) == (effect[decision.arm], means[decision.arm])


@pytest.mark.parametrize("bandit", OVER_CLASSES, ids=str)
def test_a_newcomer_is_tried_and_dropped_once_it_is_known_to_be_no_better(bandit):
    """One standard deviation would not do: 0.10 + 0.04 against 0.16 + 0.016."""
    bandit, x = replace(bandit, item_bonus=1.0), np.zeros((21, 3))  # no feature says anything
    effect = np.array([*np.full(20, 0.16), 0.10])
    for own, is_tried in ((0.0016, True), (0.0012, True), (0.0006, False), (0.00027, False)):
        effects = ArmEffects(effect, np.array([*np.full(20, 0.00027), own]), noise=0.1)
        assert (bandit.choose(bandit.start(), x, np.random.default_rng(0), effects).arm == 20) == is_tried


def test_the_mean_is_that_of_the_users_expected_weights():
    point, people = after_some_rewards(OVER_CLASSES[0]), after_some_rewards(OVER_CLASSES[2])
    wanted = OVER_CLASSES[0].weights(point) @ BETA
    found = OVER_CLASSES[0].choose(point, CONTEXT, np.random.default_rng(0), EFFECTS)
    np.testing.assert_allclose(found.means, CONTEXT @ wanted)
    wanted = OVER_CLASSES[2].weights(people) @ OVER_CLASSES[2].means(people)
    found = OVER_CLASSES[2].choose(people, CONTEXT, np.random.default_rng(0), EFFECTS)
    np.testing.assert_allclose(found.means, CONTEXT @ wanted)


@pytest.mark.parametrize("bandit", ALL, ids=str)
def test_a_reward_teaches_what_it_has_beyond_the_effect(bandit):
    state = after_some_rewards(bandit)
    with_effects = bandit.choose(state, CONTEXT, np.random.default_rng(0), EFFECTS)
    plain = bandit.choose(state, CONTEXT[[with_effects.arm]], np.random.default_rng(0))
    np.testing.assert_allclose(
        bandit.update(state, with_effects, 0.9), bandit.update(state, plain, 0.9 - with_effects.effect)
    )


@pytest.mark.parametrize("bandit", ALL, ids=str)
def test_without_effects_and_variance_all_numbers_stay(bandit):
    state = after_some_rewards(bandit)
    plain = bandit.choose(state, CONTEXT, np.random.default_rng(0))
    same = bandit.choose(state, CONTEXT, np.random.default_rng(0), NONE)
    assert plain.arm == same.arm
    np.testing.assert_array_equal(plain.distribution, same.distribution)
    np.testing.assert_array_equal(bandit.update(state, plain, 0.3), bandit.update(state, same, 0.3))


@pytest.mark.parametrize("models", [POINT, PEOPLE], ids=["point", "personal"])
def test_propensities_are_exact_and_a_uniform_draw_keeps_the_effect_of_its_arm(models):
    bandit = LearnedClasses(models, uniform=0.3, item_bonus=1.0)
    rng, n, seen = np.random.default_rng(0), 4000, np.zeros(6)
    for _ in range(n):
        decision = bandit.choose(bandit.start(), CONTEXT, rng, EFFECTS)
        seen[decision.arm] += 1
        assert decision.effect == EFFECTS.effect[decision.arm]
        assert decision.mean == decision.means[decision.arm]
    p = decision.distribution
    assert p.sum() == pytest.approx(1)
    assert (np.abs(seen / n - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()


def test_an_arm_nobody_has_seen_is_tried_first_and_no_more_once_it_is_known():
    bandit = PosteriorMean(POINT, item_bonus=1.0)
    alike = np.tile([0.3, 0.3, 0.3], (2, 1))
    unseen, known = ArmEffects(np.zeros(2), np.array([0.001, 0.04])), ArmEffects(np.zeros(2), np.array([0.04, 0.001]))
    assert bandit.choose(bandit.start(), alike, np.random.default_rng(0), unseen).arm == 1
    assert bandit.choose(bandit.start(), alike, np.random.default_rng(0), known).arm == 0
    plain = PosteriorMean(POINT).choose(bandit.start(), alike, np.random.default_rng(0), unseen)
    np.testing.assert_allclose(plain.distribution, 0.5)  # item_bonus is 0 unless it is set
