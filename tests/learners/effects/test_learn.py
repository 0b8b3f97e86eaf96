"""Planted item effects are found, also where showing depends on the class, and their intervals cover the truth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lcb.learners import fit
from lcb.learners.effects.learn import (
    LEAST_EFFECT,
    explain,
    improve_effects,
    learn_with_effects,
    measure_effects,
    start_effects,
)
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import find_user_means

N_ITEMS, N_USERS, N_REWARDS, NOISE = 60, 800, 15, 0.4
WEIGHTS = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.3]])  # of two classes


def draw_world(seed, *, by_class=False, spread=0.3):
    """Users of two classes, items of one category each; `by_class`: each class is shown its half of the items more."""
    rng = np.random.default_rng(seed)
    category, appeal = rng.integers(0, 3, N_ITEMS), rng.normal(0.0, spread, N_ITEMS)
    label = np.repeat(rng.integers(0, 2, N_USERS), N_REWARDS)
    shown = np.ones((len(label), N_ITEMS))
    if by_class:
        shown[np.arange(N_ITEMS) % 2 == label[:, None]] = 5.0
    shown = np.cumsum(shown / shown.sum(axis=1, keepdims=True), axis=1)
    item = (shown < rng.random((len(label), 1))).sum(axis=1).clip(0, N_ITEMS - 1)
    mean = WEIGHTS[label, category[item]] + appeal[item]
    reward = mean + rng.normal(0.0, NOISE, len(label))
    user = np.repeat(np.arange(N_USERS), N_REWARDS)
    return ItemRows(tuple(map(str, range(N_ITEMS))), np.eye(3)[category], user, item, reward), category, appeal


def within_category(values, category):
    """What the data can tell: differences between items of one category, because a category has a weight too."""
    means = np.array([values[category == one].mean() for one in range(3)])
    return values - means[category]


def learn(kind, n_classes, log, last):
    return fit(log, n_classes, rng=0, learner=kind, likelihood="gaussian")


@pytest.mark.parametrize(("kind", "n_classes"), [("em", 2), ("personal", 1), ("personal", 2), ("mixture", None)])
def test_planted_effects_are_found_with_classes_of_every_kind(kind, n_classes):
    rows, category, appeal = draw_world(1)
    effects = learn_with_effects(rows, partial(learn, kind, n_classes)).models.item_effects
    error = within_category(effects.effect, category) - within_category(appeal, category)
    assert np.sqrt(np.mean(error**2)) < 0.05  # noise alone: 0.4 / sqrt(200) = 0.03
    assert np.sqrt(effects.prior_variance) == pytest.approx(0.3, abs=0.1)
    assert effects.noise == pytest.approx(NOISE**2, rel=0.1)


def test_an_item_shown_to_those_who_like_it_is_not_taken_for_a_good_one():
    rows, category, appeal = draw_world(2, by_class=True)
    effects = learn_with_effects(rows, partial(learn, "em", 2)).models.item_effects
    naive = rows.sum_by_item(rows.reward) / rows.count
    likes = (category == 0) & (np.arange(N_ITEMS) % 2 == 0)  # shown to the class that likes the category
    ours, theirs = (
        within_category(found, category) - within_category(appeal, category) for found in (effects.effect, naive)
    )
    assert theirs[likes].mean() > 0.15
    assert abs(ours[likes].mean()) < 0.04
    assert np.sqrt(np.mean(ours**2)) < 0.05 < 0.1 < np.sqrt(np.mean(theirs**2))


def covers(effects, category, appeal):
    """Whether the 95 % interval of each item, compared within its category, has its planted effect."""
    apart = within_category(effects.effect, category) - within_category(appeal, category)
    return np.abs(apart) <= 1.96 * np.sqrt(effects.variance)


def test_intervals_cover_the_planted_effects():
    inside = []
    for seed in range(3, 7):
        rows, category, appeal = draw_world(seed)
        inside.append(covers(start_effects(rows), category, appeal))
    assert 0.9 <= np.mean(inside) <= 0.99  # 240 intervals of 95 %


def test_intervals_are_wider_for_items_whose_rewards_have_more_noise():
    """As clicks on what is liked have: a rate of 0.3 has three times the noise of one of 0.07."""
    inside, noisy = [], np.arange(N_ITEMS) % 4 == 0
    for seed in range(3, 7):
        rows, category, appeal = draw_world(seed)
        more = np.random.default_rng(seed + 100).normal(0.0, 2 * NOISE, len(rows.reward)) * noisy[rows.item]
        effects = start_effects(replace(rows, reward=rows.reward + more))  # five times the variance
        inside.append(covers(effects, category, appeal))
    inside = np.array(inside)
    assert inside[:, noisy].mean() >= 0.9  # 60 intervals; 0.85 with the noise that all items have
    assert 0.9 <= inside[:, ~noisy].mean() <= 1.0


def test_intervals_cover_the_planted_effects_of_clicks_with_low_rates():
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        category, appeal = np.arange(60) % 3, rng.normal(0.0, 0.08, 60)
        taste = np.array([[0.3, 0.0, 0.0], [0.0, 0.3, 0.0]])
        user, item = np.repeat(np.arange(600), 20), rng.integers(0, 60, 12_000)
        rate = np.clip(0.15 + appeal[item] + taste[user % 2, category[item]], 0.01, 0.99)
        reward = (rng.random(12_000) < rate).astype(float)
        rows = ItemRows(tuple(map(str, range(60))), np.eye(3)[category], user, item, reward)
        inside.append(covers(start_effects(rows), category, appeal))
    assert 0.9 <= np.mean(inside) <= 0.99  # 360 intervals of 95 %


@pytest.mark.parametrize("each", [False, True])
def test_one_user_who_rewards_an_item_often_counts_for_it_as_one(monkeypatch, each):
    """If each reward counts, one of 801 users makes the worst item of a category a good one."""
    rows, category, appeal = draw_world(3)
    own = np.flatnonzero(category == category[np.argmin(within_category(appeal, category))])
    worst, best = own[np.argmin(appeal[own])], own[np.argmax(appeal[own])]
    more = (np.r_[rows.user, np.full(2000, N_USERS)], np.r_[rows.item, np.repeat([worst, best], 1000)])
    bent = ItemRows(rows.ids, rows.x, *more, np.r_[rows.reward, np.repeat([1.5, -1.0], 1000)])
    if each:
        monkeypatch.setattr(ItemRows, "share", property(lambda self: np.ones(len(self.item))))
    without, effects = (within_category(start_effects(one).effect, category) for one in (rows, bent))
    assert (effects[worst] - without[worst] > 0.5) == each
    assert (np.abs(effects - without).max() < 0.1) != each


def test_without_effects_the_spread_is_small_and_they_explain_nothing():
    rows, _, _ = draw_world(8, spread=0.0)
    found = learn_with_effects(rows, partial(learn, "em", 2))
    assert np.sqrt(found.models.item_effects.prior_variance) < 0.05
    assert explain(rows, found.models) < 0.01
    rows, _, _ = draw_world(8)
    assert explain(rows, learn_with_effects(rows, partial(learn, "em", 2)).models) > 0.1


def test_without_variance_effects_stay_and_classes_are_those_of_today():
    rows, _, _ = draw_world(9)
    still = replace(start_effects(rows, n_steps=1), effect=np.zeros(N_ITEMS), prior_mean=0.0, prior_variance=0.0)
    same = improve_effects(still, rows, learn("em", 2, rows.history(), None).models)
    np.testing.assert_array_equal(same.effect, 0.0)
    found, today = learn("em", 2, rows.history(still.effect), None), learn("em", 2, rows.history(), None)
    np.testing.assert_array_equal(found.models.beta, today.models.beta)


def test_rows_of_some_users_have_their_statistics():
    rows, _, _ = draw_world(10)
    effect = np.random.default_rng(0).normal(size=N_ITEMS)
    few = rows.take_users(np.array([5, 700, 3]))
    np.testing.assert_allclose(
        few.history(effect).stats.packed, rows.history(effect).stats.take(np.array([5, 700, 3])).packed
    )
    from lcb.stats import UserStats

    direct = UserStats.from_rows(rows.user, rows.x[rows.item], rows.reward - effect[rows.item])
    np.testing.assert_allclose(rows.history(effect).stats.packed, direct.packed)
    assert rows.items_repeat
    assert not ItemRows(("a", "b"), np.eye(2), [0, 1], [0, 1], [1.0, 0.0]).items_repeat


@pytest.mark.parametrize("kind", ["em", "personal"])
def test_what_is_expected_of_a_row_follows_from_its_users_weights(kind):
    rows, _, _ = draw_world(11)
    rows = replace(rows, x=rows.x @ np.random.default_rng(0).normal(size=(3, 3)))  # no feature is 0
    effects = start_effects(rows, n_steps=1)
    log = rows.history(effects.effect)
    models = learn(kind, 2, log, None).models
    fitted, spread = find_user_means(rows, models, effects.effect, with_spread=True)
    assert len(find_user_means(rows, models, effects.effect)[1]) == 0
    resp, cases = models.posterior(log), np.array([0, 77, 11_999])
    for row in cases:
        x, gram, moment = rows.x[rows.item[row]], log.stats.gram[rows.user[row]], log.stats.moment[rows.user[row]]
        mean, square = np.zeros(2), np.zeros(2)
        for h in range(2):
            own = np.zeros((3, 3)) if kind == "em" else np.linalg.inv(models.covariance[h])
            cov = np.zeros((3, 3)) if kind == "em" else np.linalg.inv(own + gram / models.sigma2[h])
            mean[h] = x @ (models.beta[h] + cov @ (moment - gram @ models.beta[h]) / models.sigma2[h])
            square[h] = x @ cov @ x + mean[h] ** 2
        assert fitted[row] == pytest.approx(resp[rows.user[row]] @ mean)
        assert spread[row] == pytest.approx(resp[rows.user[row]] @ square - fitted[row] ** 2, abs=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("by_taste", [False, True])
def test_effects_leave_to_the_features_what_features_explain(spread, by_taste):
    """Categories liked by all to a different degree, shown alike or by taste: the weights say so, not the effects."""
    rng = np.random.default_rng(1)
    liked, category = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), np.arange(60) % 6
    appeal = rng.normal(0.0, spread, 60)
    shown = np.exp(2.0 * liked[category]) if by_taste else np.ones(60)
    user, item = np.repeat(np.arange(1000), 30), rng.choice(60, 30_000, p=shown / shown.sum())
    reward = (rng.random(30_000) < np.clip(liked[category] + appeal, 0, 1)[item]).astype(float)
    rows = ItemRows(tuple(map(str, range(60))), np.eye(6)[category], user, item, reward)
    effects = start_effects(rows)
    models = fit(rows.history(effects.effect), 1, rng=rng).models
    by_category = [(appeal - effects.effect)[category == one].mean() + liked[one] for one in range(6)]
    np.testing.assert_allclose(models.beta[0], by_category, atol=0.03)
    assert abs(np.sqrt(effects.prior_variance) - spread) < 0.03
    assert (measure_effects(rows, effects) < LEAST_EFFECT) == (spread == 0.0)


def leave_what_disappoints(seed):
    """Users go on with a category while it pleases them; the rates are 0.4 for each user's own category, else 0.1."""
    rng = np.random.default_rng(seed)
    rates = np.where(np.arange(3) == rng.integers(0, 3, 150)[:, None], 0.4, 0.1)
    rows = []
    for user in range(150):
        mean, n = np.full(3, 0.3), np.full(3, 2.0)
        for _ in range(20):
            one = int(np.argmax(mean + 0.5 * rng.random(3) / np.sqrt(n)))
            reward = float(rng.random() < rates[user, one])
            mean[one], n[one] = (mean[one] * n[one] + reward) / (n[one] + 1), n[one] + 1
            rows.append((user, one + 3 * int(rng.integers(0, 4)), reward))
    user, item, reward = np.array(rows).T
    return ItemRows(tuple(map(str, range(12))), np.eye(3)[np.arange(12) % 3], user, item, reward)


def test_the_level_of_rewards_stays_with_the_classes_where_features_can_say_it():
    """A user's mean reward of an item is too low where users leave what disappoints them: the effects took all of it,
    a little more with every step."""
    rows = leave_what_disappoints(0)
    effects = start_effects(rows)
    models = learn("em", 3, rows.history(effects.effect), None).models
    for _ in range(3):
        effects = improve_effects(effects, rows, models)
        models = learn("em", 3, rows.history(effects.effect), None).models
    assert effects.prior_mean == 0.0
    assert effects.effect.mean() == pytest.approx(0.0, abs=1e-12)
    assert models.pi @ models.beta.max(axis=1) < 0.6  # the rate of what a class likes is 0.4
    shifted = replace(effects, effect=effects.effect - 0.4, prior_mean=-0.4)  # of a version that was learned before
    kept = improve_effects(shifted, rows, replace(models, beta=models.beta + 0.4))
    np.testing.assert_allclose(kept.effect, improve_effects(effects, rows, models).effect - 0.4, atol=1e-9)
    assert kept.prior_mean == -0.4


def test_the_level_of_rewards_moves_into_the_effects_where_features_cannot_say_it():
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(200), 10), rng.integers(0, 20, 2000)
    rows = ItemRows(tuple(map(str, range(20))), rng.normal(size=(20, 2)), user, item, rng.normal(5.0, 0.5, 2000))
    assert start_effects(rows).prior_mean > 0.3
