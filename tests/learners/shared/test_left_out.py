"""The error of rewards predicted from the others, against posteriors computed one by one."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.event_log import EventLog
from lcb.learners.shared import left_out
from lcb.learners.shared.left_out import score_left_out
from lcb.models import LatentModels
from lcb.stats import UserStats

BETA = np.array([[0.9, 0.2, 0.4], [0.1, 0.7, 0.4]])


def predict_one_by_one(models, user, x, reward):
    errors = [[] for _ in range(user.max() + 1)]
    for i in range(len(user)):
        others = (user == user[i]) & (np.arange(len(user)) != i)
        weight = np.log(models.pi) + sum(models.log_density(x[j], reward[j]) for j in np.flatnonzero(others))
        weight = np.exp(weight - weight.max())
        errors[user[i]].append((reward[i] - weight @ (models.beta @ x[i]) / weight.sum()) ** 2)
    return [-np.mean(own) for own in errors]


@pytest.mark.parametrize("kind", ["numbers", "clicks"])
def test_every_reward_is_predicted_from_the_others_alone(kind, rng, monkeypatch):
    monkeypatch.setattr(left_out, "_BLOCK", 7)
    user, arm = rng.permutation(np.repeat(np.arange(5), [1, 3, 9, 20, 7])), rng.integers(3, size=40)
    x, mean = np.eye(3)[arm], BETA[user % 2, arm]
    reward = mean + rng.standard_normal(40) if kind == "numbers" else (rng.random(40) < mean).astype(float)
    of_clicks = {"likelihood": "bernoulli", "levels": (0.0, 1.0)} if kind == "clicks" else {}
    models = LatentModels([0.3, 0.7], BETA, [0.25, 1.0], **of_clicks)
    log = EventLog.from_rows(user, x, reward)
    own = np.array([log.stats.users[i] for i in range(5)])
    np.testing.assert_allclose(
        score_left_out(models, log), np.array(predict_one_by_one(models, user, x, reward))[own], rtol=1e-9
    )


def test_statistics_have_no_rewards_to_leave_out():
    stats = UserStats.from_rows([0, 0, 1], np.eye(3), [0.1, 0.2, 0.3])
    assert score_left_out(LatentModels([0.3, 0.7], BETA, [0.25, 1.0]), EventLog(stats)) is None
