"""Serving held-out users, compiled, against the bandits by verbs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lcb.decision import Decision
from lcb.evaluate.choice.candidates import Classes, build_bandit
from lcb.evaluate.choice.queues import Values, draw_queues
from lcb.evaluate.choice.serving import can_serve, serve, serve_held_out
from lcb.event_log import EventLog
from lcb.models import LatentModels
from lcb.progress import silent

ARMS = np.array([[1.0, 0.0, 0.3], [0.0, 1.2, 0.0], [0.5, 0.5, 0.0], [0.1, 0.0, 1.0]])  # one has one feature
BETA = np.array([[0.8, 0.2, 0.3], [0.1, 0.6, 0.5], [0.4, 0.4, 0.2]])
PI = [0.5, 0.3, 0.2]
SPREAD = np.tile(0.05 * np.eye(3) + 0.02, (3, 1, 1)) * np.array([1.0, 2.0, 0.5])[:, None, None]
KINDS = {
    "gaussian": LatentModels(PI, BETA, [0.2, 0.25, 0.15]),
    "bernoulli": LatentModels(PI, BETA, [0.2, 0.2, 0.2], likelihood="bernoulli", levels=(0.0, 1.0)),
    "personal": LatentModels(PI, BETA, [0.2] * 3, covariance=SPREAD, personal=True),
    "noise per arm": LatentModels(
        PI, BETA, [0.2] * 3, covariance=SPREAD, personal=True, arms=ARMS, arm_sigma2=[0.1, 0.2, 0.3, 0.15]
    ),
}


def serve_by_verbs(models, bonus, queues):
    bandit, rates = build_bandit(models, bonus), []
    for u, n_steps in enumerate(queues.steps):
        own = slice(queues.begin[u], queues.begin[u + 1])
        x, taken = queues.arms[queues.arm[own]], np.zeros(own.stop - own.start, int)
        state, rewards = bandit.start(), []
        for _ in range(n_steps):
            scores = np.where(taken < queues.size[own], bandit.scores(state, x), -np.inf)
            chosen = int(scores.argmax())
            rewards.append(queues.rewards[own][chosen, taken[chosen]])
            taken[chosen] += 1
            state = bandit.update(state, Decision(chosen, 1.0, x[chosen]), rewards[-1])
        rates.append(np.mean(rewards))
    return rates


@pytest.mark.parametrize("n_labels", [1, 6])  # too few to fill the queues, and enough
@pytest.mark.parametrize("bonus", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_server_makes_the_choices_of_the_bandits(kind, bonus, n_labels):
    rng = np.random.default_rng(3)
    count = rng.binomial(1, 0.3, (60, 4)) * n_labels
    count[:, 0] = 2
    clicked = rng.binomial(count, 0.4)
    queues = next(draw_queues(EventLog.from_counts(ARMS, clicked, count - clicked).clicks, 8, rng))
    assert queues.is_filled == (n_labels == 6)
    np.testing.assert_allclose(
        serve(KINDS[kind], bonus, queues), serve_by_verbs(KINDS[kind], bonus, queues), atol=1e-12
    )


@pytest.mark.parametrize("n_labels", [1, 6])
@pytest.mark.parametrize("kind", ["gaussian", "personal"])
def test_labels_of_any_value_are_served_as_by_the_bandits(kind, n_labels):
    rng = np.random.default_rng(3)
    count = rng.binomial(1, 0.3, (60, 4)) * n_labels
    count[:, 0] = 2
    user, arm = np.repeat(np.indices(count.shape).reshape(2, -1), count.ravel(), axis=1)
    values = Values(ARMS, user, arm, rng.integers(1, 6, len(user)).astype(float), 60)
    queues = next(draw_queues(values, 8, rng))
    assert queues.is_filled == (n_labels == 6)
    np.testing.assert_allclose(serve(KINDS[kind], 0.5, queues), serve_by_verbs(KINDS[kind], 0.5, queues), atol=1e-12)
    for p in range(len(queues.arm)):  # each label once, in any order
        owner = np.searchsorted(queues.begin, p, side="right") - 1
        own = values.reward[(user == owner) & (arm == queues.arm[p])]
        np.testing.assert_array_equal(np.sort(queues.rewards[p, : len(own)]), np.sort(own))


def test_drawn_values_have_the_mean_and_the_spread_of_the_labels_of_their_arm():
    rng = np.random.default_rng(6)
    mean = np.array([2.0, 3.0, 4.0])
    user, arm = np.repeat(np.arange(400), 9), np.tile(np.repeat(np.arange(3), 3), 400)
    reward = np.clip(np.round(mean[arm] + 0.8 * rng.normal(size=len(arm))), 1, 5)
    queues = next(draw_queues(Values(np.eye(3), user, arm, reward, 400), 12, rng))
    drawn = queues.rewards.reshape(400, 3, 12)[:, :, 3:]
    for a in range(3):
        labels = reward[arm == a]
        assert abs(drawn[:, a].mean() - labels.mean()) < 4.5 * labels.std() / np.sqrt(len(labels))
        assert 0.85 < drawn[:, a].std() / labels.std() < 1.15
    assert (drawn.min(), drawn.max()) >= (1, 1)
    assert drawn.max() <= 5


def test_queues_hold_each_label_once_and_then_draws_of_the_rate():
    rng = np.random.default_rng(4)
    count = np.tile([3, 0, 9], (400, 1))
    clicked = rng.binomial(count, [0.5, 0.5, 0.8])
    queues = next(draw_queues(EventLog.from_counts(np.eye(3), clicked, count - clicked).clicks, 12, rng))
    rewards = queues.rewards.reshape(400, 3, 12)
    assert queues.is_filled
    assert (queues.size == 12).all()
    assert (queues.steps == 12).all()
    for arm, n in ((0, 3), (2, 9)):
        np.testing.assert_array_equal(rewards[:, arm, :n].sum(axis=1), clicked[:, arm])
    drawn = rewards[:, 2, 9:].mean()
    assert abs(drawn - clicked[:, 2].mean() / 9) < 4.5 * np.sqrt(0.8 * 0.2 / 1200 + 0.8 * 0.2 / 3600)
    first = np.array([rewards[:, 0, j].mean() for j in range(3)])  # the order is random
    assert (abs(first - clicked[:, 0].mean() / 3) < 4.5 * np.sqrt(0.25 / 400)).all()


def test_queues_drawn_again_hold_the_same_labels_in_another_order_and_other_draws_of_the_same_rates():
    rng = np.random.default_rng(4)
    count = np.tile([6, 0, 3], (400, 1))
    clicked = rng.binomial(count, [0.5, 0.5, 0.8])
    log = EventLog.from_counts(np.eye(3), clicked, count - clicked)
    user, arm = np.repeat(np.indices(count.shape).reshape(2, -1), count.ravel(), axis=1)
    values = Values(np.eye(3), user, arm, rng.integers(1, 6, len(user)).astype(float), 400)
    for labels in (log.clicks, values):
        first, again = (one.rewards.reshape(400, 3, 12) for one in itertools.islice(draw_queues(labels, 12, rng), 2))
        np.testing.assert_array_equal(np.sort(first[:, 0, :6]), np.sort(again[:, 0, :6]))
        assert 0.1 < (first[:, 0, :6] != again[:, 0, :6]).mean() < 0.9
        assert (first[:, 2, 3:] != again[:, 2, 3:]).mean() > 0.1
        spread = first[:, 2, 3:].std() / np.sqrt(400)  # draws of one user share their rate
        assert abs(first[:, 2, 3:].mean() - again[:, 2, 3:].mean()) < 4.5 * np.sqrt(2) * spread


def test_candidates_that_one_order_does_not_tell_from_the_best_serve_more_orders():
    """Two candidates differ by less than the noise of one order of the labels."""
    rng = np.random.default_rng(8)
    rates = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])[rng.integers(0, 2, 200)]
    clicked = rng.binomial(6, rates)
    log = EventLog.from_counts(np.eye(3), clicked, 6 - clicked)
    tried, able = [Classes(False, 1), Classes(False, 2), Classes(True, 5)], np.ones(200, bool)
    found = serve_held_out(log, log.clicks, able, tried, (0.0, 0.5), 12, rng, silent)
    assert len(found.means) == 6
    assert {one.n_classes for one, _ in found.close} == {2, 5}  # one class is far behind
    for score in found.close.values():
        assert len(score) == 200
        np.testing.assert_allclose(72 * score, np.round(72 * score))  # clicks of 6 orders of 12 steps
        assert (np.round(12 * score, 9) % 1 > 0).any()
    assert found.means[max(found.close, key=lambda one: found.close[one].mean())] == max(found.means.values())


def test_with_less_than_a_label_per_arm_queues_stay_short_and_half_of_the_labels_are_served():
    rng = np.random.default_rng(5)
    count = np.array([1, 0, 1, 0, 0, 2, 0, 0])[rng.permuted(np.tile(np.arange(8), (50, 1)), axis=1)]
    clicked = rng.binomial(count, 0.5)
    queues = next(draw_queues(EventLog.from_counts(np.eye(8), clicked, count - clicked).clicks, 12, rng))
    assert not queues.is_filled
    assert (queues.steps == 2).all()
    np.testing.assert_array_equal(queues.size, count[count > 0])
    np.testing.assert_array_equal(queues.arm, np.nonzero(count)[1])


def test_features_that_differ_at_every_event_single_labels_and_statistics_cannot_be_served():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(30), 10)
    assert can_serve(EventLog.from_rows(user, np.eye(3)[rng.integers(0, 3, 300)], rng.integers(0, 2, 300)))
    numbers = EventLog.from_rows(user, np.eye(3)[rng.integers(0, 3, 300)], rng.random(300))
    assert can_serve(numbers)
    assert not can_serve(EventLog(numbers.stats))
    many, items = np.repeat(np.arange(100), 20), rng.normal(size=(400, 2))
    assert can_serve(EventLog.from_rows(many, items[rng.integers(0, 400, 2000)], rng.integers(0, 2, 2000)))
    assert not can_serve(EventLog.from_rows(user, rng.random((300, 3)), rng.integers(0, 2, 300)))
    assert not can_serve(EventLog.from_rows(np.arange(300), np.eye(3)[rng.integers(0, 3, 300)], user % 2))
