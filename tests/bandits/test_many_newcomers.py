"""Many newcomers at once take a set share of the offers; one is found as quickly as if there were no limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.models.item_effects import ArmEffects, add_residuals

MEAN, SPREAD, NOISE, N_KNOWN = 0.3, 0.08, 0.2, 20
LIKES = np.array([[0.06, -0.06], [-0.06, 0.06]])  # of two kinds of readers for two categories
POINT = LatentModels([0.5, 0.5], LIKES, np.full(2, NOISE))
PEOPLE = LatentModels(
    [0.5, 0.5], LIKES, np.full(2, NOISE), covariance=np.tile(1e-4 * np.eye(2), (2, 1, 1)), personal=True
)
SHARE = 0.2


@dataclass
class Readers:
    """What readers saw, one item each."""

    reward: Any  # (n,) expected
    item: Any  # (n,)

    def worst(self, n: int = 500) -> float:
        """The lowest mean reward of `n` readers one after another."""
        total = np.r_[0.0, self.reward.cumsum()]
        return float(((total[n:] - total[:-n]) / n).min())


def serve(seed: int, appeals: list[float], n_readers: int, models: LatentModels = POINT, **settings: float) -> Readers:
    """Serve readers from known items and newcomers of these appeals, which are learned from clicks."""
    rng = np.random.default_rng(seed)
    truth = np.r_[rng.normal(MEAN, SPREAD, N_KNOWN), appeals]
    x = np.eye(2)[np.arange(len(truth)) % 2]
    effect, variance = np.full(len(truth), MEAN), np.full(len(truth), SPREAD**2)
    told = 300 * (truth[:N_KNOWN] + rng.normal(0, np.sqrt(NOISE / 300), N_KNOWN))
    effect[:N_KNOWN], variance[:N_KNOWN] = add_residuals(MEAN, SPREAD**2, np.full(N_KNOWN, 300.0), told, NOISE)
    bandit = LearnedClasses(models, item_bonus=1.0, **settings)
    seen = Readers(np.empty(n_readers), np.empty(n_readers, int))
    for i in range(n_readers):
        one = bandit.choose(bandit.start(), x, rng, ArmEffects(effect, variance, NOISE))
        rate = float(np.clip(truth[one.arm] + LIKES[i % 2] @ one.x, 0, 1))
        residual = float(rng.random() < rate) - one.mean
        effect[one.arm], variance[one.arm] = add_residuals(effect[one.arm], variance[one.arm], 1, residual, NOISE)
        seen.reward[i], seen.item[i] = rate, one.arm
    return seen


@pytest.mark.parametrize("models", [POINT, PEOPLE], ids=["point", "personal"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_readers_keep_most_of_their_reward_when_200_dull_items_come(seed: int, models: LatentModels) -> None:
    before = serve(seed, [], 1000, models).reward.mean()
    limited = serve(seed, [0.15] * 200, 5000, models, item_share=SHARE)
    assert limited.worst() > (1 - SHARE - 0.05) * before
    assert (limited.item >= N_KNOWN).mean() <= SHARE + 0.03
    assert len(np.unique(limited.item)) > 150  # the newcomers are looked at
    if models is POINT:
        assert serve(seed, [0.15] * 200, 1000).worst() < 0.6 * before  # without a limit


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_good_newcomer_among_200_dull_ones_is_found(seed: int) -> None:
    seen = serve(seed, [0.15] * 100 + [0.7] + [0.15] * 99, 10_000, item_share=SHARE)
    assert (seen.item[-1000:] == N_KNOWN + 100).mean() > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_one_good_newcomer_is_offered_as_without_a_limit(seed: int) -> None:
    limited, free = (serve(seed, [0.7], 400, item_share=share) for share in (SHARE, 1.0))
    np.testing.assert_array_equal(limited.item, free.item)
    assert (limited.item == N_KNOWN).sum() > 350


class OneNumber:
    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


N_NEW = 30
EFFECTS = ArmEffects(np.r_[0.5, 0.49, np.full(N_NEW, 0.3)], np.r_[0.0, 0.0, np.full(N_NEW, 0.04)], 0.2)
ARMS = np.full((2 + N_NEW, 2), 0.1)


def choose(number: float, n_arms: int, share: float = SHARE, models: LatentModels = POINT, **settings: float) -> Any:
    bandit = LearnedClasses(models, item_bonus=1.0, item_share=share, **settings)
    own = EFFECTS.take(np.arange(n_arms))
    return bandit.choose(bandit.start(), ARMS[:n_arms], OneNumber(number), own)  # type: ignore[arg-type]


@pytest.mark.parametrize("bonus", [0.0, 0.5])
@pytest.mark.parametrize("models", [POINT, PEOPLE], ids=["point", "personal"])
@pytest.mark.parametrize(("n_new", "share"), [(1, 1.0), (3, 1.0), (4, 0.75), (6, 0.5), (12, 0.25), (30, 0.2)])
def test_newcomers_share_what_their_number_leaves_them(
    n_new: int, share: float, models: LatentModels, bonus: float
) -> None:
    wanted = np.r_[1 - share, 0.0, np.full(n_new, share / n_new)]
    for uniform in (0.0, share / 2, share * (1 - 1e-9), min(share, 1 - 1e-9), 1 - 2.0**-53):
        one = choose(uniform, 2 + n_new, models=models, bonus=bonus)
        np.testing.assert_allclose(one.distribution, wanted, atol=1e-12)
        assert one.propensity == one.distribution[one.arm]
        assert (one.arm >= 2) == (uniform < share)
        assert (one.effect, one.mean) == (EFFECTS.effect[one.arm], one.means[one.arm])
        np.testing.assert_array_equal(one.x, ARMS[one.arm])


def test_an_item_counts_until_it_is_known_not_until_its_first_reward() -> None:
    tried = add_residuals(EFFECTS.effect, EFFECTS.variance, np.r_[0.0, 0.0, np.ones(N_NEW)], np.zeros(32), 0.2)
    bandit = LearnedClasses(POINT, item_bonus=1.0, item_share=SHARE)
    one = bandit.choose(bandit.start(), ARMS, np.random.default_rng(0), ArmEffects(*tried, 0.2))
    assert one.distribution is not None
    assert one.distribution[2:].sum() == pytest.approx(SHARE)


def test_an_item_counts_less_the_more_is_known_of_it() -> None:
    variance = np.r_[0.02, np.full(8, 0.04)]  # 8 (1 - 0.02 / 0.04) = 4
    effects = ArmEffects(np.r_[0.31, np.full(8, 0.3)], variance, 0.2)
    bandit = LearnedClasses(POINT, item_bonus=1.0, item_share=SHARE)
    one = bandit.choose(bandit.start(), ARMS[:9], np.random.default_rng(0), effects)
    np.testing.assert_allclose(one.distribution, np.r_[0.25, np.full(8, 0.75 / 8)])


def test_draws_have_the_probabilities_that_they_say() -> None:
    rng, n = np.random.default_rng(3), 4000
    arms = [choose(number, 32, uniform=0.1).arm for number in rng.random(n)]
    p = choose(0.5, 32, uniform=0.1).distribution
    assert p.sum() == pytest.approx(1)
    assert p[2:].sum() == pytest.approx(0.9 * SHARE + 0.1 * 30 / 32)
    seen = np.bincount(arms, minlength=32) / n
    assert (np.abs(seen - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()


def test_many_users_at_once_get_the_bits_that_each_gets_alone() -> None:
    rng = np.random.default_rng(4)
    for bandit in (
        LearnedClasses(POINT, item_bonus=1.0, item_share=SHARE, uniform=0.1),
        PosteriorMean(POINT, bonus=0.3, item_bonus=1.0, item_share=SHARE),
        PosteriorMean(POINT, item_bonus=1.0, item_share=SHARE),
    ):
        numbers, x = rng.random(40), rng.normal(0.1, 0.1, ARMS.shape)
        states = np.array([bandit.start()] * 40)
        many = bandit.choose_many(states, x, numbers, EFFECTS)
        for i, number in enumerate(numbers.tolist()):
            one = bandit.choose(states[i], x, OneNumber(number), EFFECTS)  # type: ignore[arg-type]
            assert one.arm == many.arms[i]
            np.testing.assert_array_equal(one.distribution, many.distributions[i])


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between_0_and_1(share: float) -> None:
    with pytest.raises(InputError, match="item_share"):
        PosteriorMean(POINT, item_share=share)


def test_the_library_has_no_limit_unless_it_is_set() -> None:
    bandit = LearnedClasses(POINT, item_bonus=1.0)
    assert bandit.item_share == 1.0
    one = bandit.choose(bandit.start(), ARMS, np.random.default_rng(0), EFFECTS)
    np.testing.assert_allclose(one.distribution, np.r_[0.0, 0.0, np.full(N_NEW, 1 / N_NEW)])
