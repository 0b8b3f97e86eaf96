"""Serving held-out users, compiled, against the bandits by verbs."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.decision import Decision
from lcb.evaluate.choice._serving_numba import _hash
from lcb.evaluate.choice.candidates import build_bandit
from lcb.evaluate.choice.serving import can_serve, serve
from lcb.event_log import EventLog
from lcb.models import LatentModels

ARMS = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.2], [0.5, 0.5, 0.0], [0.1, 0.0, 1.0]])
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


def serve_by_verbs(models, bonus, labels, n_steps, seed):
    bandit, rates = build_bandit(models, bonus), []
    high, low = labels.clicked.toarray(), labels.passed.toarray()
    for u in range(len(high)):
        left_high, left, taken = high[u].copy(), high[u] + low[u], np.zeros(len(ARMS), int)
        state, rewards = bandit.start(), []
        for _ in range(min(n_steps, int(left.sum()) // 2)):
            scores = np.where(left > 0, bandit.scores(state, labels.arms), -np.inf)
            arm = int(scores.argmax())
            is_high = _hash(seed, u, arm, taken[arm]) * left[arm] < left_high[arm]
            left_high[arm] -= is_high
            left[arm] -= 1
            taken[arm] += 1
            rewards.append((labels.low, labels.high)[int(is_high)])
            state = bandit.update(state, Decision(arm, 1.0, labels.arms[arm]), rewards[-1])
        rates.append(np.mean(rewards))
    return rates


@pytest.mark.parametrize("bonus", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_server_makes_the_choices_of_the_bandits(kind, bonus):
    rng = np.random.default_rng(3)
    clicked, passed = rng.integers(0, 5, (30, 4)), rng.integers(1, 5, (30, 4))
    labels = EventLog.from_counts(ARMS, clicked, passed).clicks
    found = serve(KINDS[kind], bonus, labels, 8, seed=11)
    np.testing.assert_allclose(found, serve_by_verbs(KINDS[kind], bonus, labels, 8, 11), atol=1e-12)


def test_labels_are_drawn_without_replacement():
    labels = EventLog.from_counts(np.eye(1), [[3]], [[3]]).clicks
    models = LatentModels([1.0], [[0.5]], [0.1])
    drawn = [3 * serve(models, 0.0, labels, 20, seed)[0] for seed in range(2000)]  # half of six labels
    assert set(np.round(drawn).astype(int)) == {0, 1, 2, 3}
    share = np.mean(np.isclose(drawn, 3))  # 3 of 3 high: 1 in 20
    assert abs(share - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / 2000)


def test_numbers_many_arms_and_single_labels_cannot_be_served():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(30), 10)
    assert can_serve(EventLog.from_rows(user, np.eye(3)[rng.integers(0, 3, 300)], rng.integers(0, 2, 300)))
    assert not can_serve(EventLog.from_rows(user, np.eye(3)[rng.integers(0, 3, 300)], rng.random(300)))
    assert not can_serve(EventLog.from_rows(user, rng.random((300, 3)), rng.integers(0, 2, 300)))
    assert not can_serve(EventLog.from_rows(np.arange(300), np.eye(3)[rng.integers(0, 3, 300)], user % 2))
