"""Item effects follow from counts and sums of residuals; a decision adds them to the scores of its arms."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError, ModelError
from lcb.models.item_effects import ArmEffects, ItemEffects, add_residuals

SOME = {"prior_mean": 0.1, "prior_variance": 0.04, "noise": 0.16}


def test_an_effect_is_the_posterior_mean_and_variance_of_its_rewards():
    residuals = np.random.default_rng(0).normal(0.4, 0.4, 7)
    precision = 1 / 0.04 + 7 / 0.16
    effects = ItemEffects.from_residuals(["a"], [7], [residuals.sum()], **SOME)
    assert effects.variance[0] == pytest.approx(1 / precision)
    assert effects.effect[0] == pytest.approx((0.1 / 0.04 + residuals.sum() / 0.16) / precision)
    printed = 0.1 + (residuals - 0.1).sum() / (7 + 0.16 / 0.04)
    assert effects.effect[0] == pytest.approx(printed)


def test_rewards_in_two_parts_and_in_any_order_give_the_same_effect():
    first, second = np.array([0.3, 0.9]), np.array([-0.2, 0.5, 0.4])
    whole = add_residuals(0.1, 0.04, 5.0, float(first.sum() + second.sum()), 0.16)
    for early, late in ((first, second), (second, first)):
        begun = add_residuals(0.1, 0.04, float(len(early)), float(early.sum()), 0.16)
        assert add_residuals(*begun, float(len(late)), float(late.sum()), 0.16) == pytest.approx(whole)


def test_an_item_nobody_has_seen_has_the_prior_and_without_variance_no_effect_moves():
    effects = ItemEffects.from_residuals(["a", "b"], [3, 9], [2.0, 4.0], **SOME)
    assert effects.get("new") == (0.1, 0.04)
    assert effects.find(["b", "new", "a"]).tolist() == [1, -1, 0]
    still = ItemEffects.from_residuals(["a"], [50], [99.0], prior_mean=0.2, prior_variance=0.0, noise=0.16)
    assert still.get("a") == (0.2, 0.0)
    assert effects.of([]).effect.shape == (0,)


def test_an_effect_that_may_be_unlike_the_others_has_the_posterior_of_the_mixed_prior():
    """By numbers: the prior times the likelihood of the rewards, summed over a grid of effects."""
    effects = ItemEffects.from_residuals(
        ["a", "b"], [40, 60], [4.0, 7.0], prior_mean=0.1, prior_variance=0.001, noise=0.2
    )
    open_ones = effects.allow_unlike(0.2)
    grid = 0.1 + np.linspace(-3.0, 3.0, 60_001)
    narrow, wide = (np.exp(-((grid - 0.1) ** 2) / 2 / v) / np.sqrt(v) for v in (0.001, 0.05))
    for count, total in ((0, 0.0), (5, 2.0), (30, 3.3), (30, 13.0)):
        weight = (0.9 * narrow + 0.1 * wide) * np.exp((total * grid - count * grid**2 / 2) / 0.2)
        mean = weight @ grid / weight.sum()
        assert open_ones.get("new", count, total) == pytest.approx((mean, weight @ (grid - mean) ** 2 / weight.sum()))
    again = ItemEffects.from_residuals(["new"], [30], [13.0], prior_mean=0.1, prior_variance=0.001, noise=0.2)
    assert again.allow_unlike(0.2).get("new") == pytest.approx(open_ones.get("new", 30, 13.0))
    assert effects.get("new", 30, 13.0) == add_residuals(0.1, 0.001, 30, 13.0, 0.2)  # as in models saved before
    assert open_ones.get("a", 3, 1.0) == add_residuals(*open_ones.get("a"), 3, 1.0, 0.2)
    assert effects.allow_unlike(0.1) is effects  # items differ already


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unlike": 1.0, "unlike_variance": 0.1, "prior_variance": 0.1}, "chance below 1"),
        ({"unlike": 0.1, "unlike_variance": 0.1}, "above 0"),
        ({"ids": ("a", "a")}, "unique"),
        ({"effect": [0.1, np.nan]}, "finite"),
        ({"variance": [0.1, -1.0]}, "at least 0"),
        ({"count": [1.0]}, "shape"),
        ({"noise": 0.0}, "noise above 0"),
        ({"prior_variance": -0.1}, "variance of at least 0"),
    ],
)
def test_effects_that_make_no_sense_are_refused(change, words):
    good = {"ids": ("a", "b"), "effect": [0.0, 0.1], "variance": [0.1, 0.1], "count": [1.0, 2.0]}
    with pytest.raises(ModelError, match=words):
        ItemEffects(**{**good, **change})


def test_a_million_effects_take_less_than_100_megabytes_without_their_ids():
    n = 1_000_000
    ids = tuple(map(str, range(n)))
    effects = ItemEffects.from_residuals(ids, np.ones(n), np.ones(n), **SOME)
    assert effects.effect.nbytes + effects.variance.nbytes + effects.count.nbytes <= 24_000_000


def test_the_weight_of_the_bonus_must_be_a_number():
    from lcb.bandits.over_classes.posterior_mean import PosteriorMean
    from lcb.models import LatentModels

    models = LatentModels([1.0], [[0.5]], [0.1])
    for wrong in (-1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="item_bonus"):
            PosteriorMean(models, item_bonus=wrong)
        with pytest.raises(InputError, match="item_horizon"):
            PosteriorMean(models, item_horizon=wrong)


def test_clicks_have_no_item_effects():
    from lcb.models import LatentModels

    effects = ItemEffects.from_residuals(["a"], [1], [1.0], **SOME)
    with pytest.raises(ModelError, match="Gaussian"):
        LatentModels([1.0], [[0.5]], [0.1], likelihood="bernoulli", levels=(0.0, 1.0), item_effects=effects)


def test_the_effects_of_arms_are_in_the_order_of_the_arms():
    effects = ItemEffects.from_residuals(["a", "b"], [3, 9], [2.0, 4.0], **SOME)
    assert isinstance(effects.of(["b"]), ArmEffects)
    np.testing.assert_array_equal(effects.of(["b", "a"]).effect, effects.effect[::-1])
    np.testing.assert_array_equal(effects.of(["b", "a"]).variance, effects.variance[::-1])
