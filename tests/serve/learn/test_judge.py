"""New models are compared with the served ones on held-out users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conftest import rows_of
from lcb.evaluate.worlds.paper import paper_classes
from lcb.event_log import EventLog
from lcb.models import LatentModels
from lcb.serve.learn.judge import judge, paired_difference, with_likelihood_of


def log_of(models: LatentModels, n_users: int, seed: int = 0) -> EventLog:
    user, x, value, _ = rows_of(models, n_users, 10, seed)
    return EventLog.from_rows(user, x, value, features=models.features)


def test_models_that_score_worse_are_kept_aside_and_the_reason_has_the_numbers() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 40)
    wrong = replace(true, beta=-true.beta)
    better, reason, score, baseline = judge(wrong, true, 3, judges)
    n = judges.stats.count.sum()
    assert not better
    assert score == pytest.approx(wrong.user_scores(judges).sum() / n)
    assert baseline == pytest.approx(true.user_scores(judges).sum() / n)
    assert reason.startswith(
        f"kept aside: 40 held-out users score {score:.4f} per reward, under version 3 {baseline:.4f}"
    )
    assert f"worse by {baseline - score:.4f} ± " in reason


def test_models_that_score_better_or_the_same_are_served() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 40)
    wrong = replace(true, beta=-true.beta)
    assert judge(true, wrong, 1, judges)[0]
    assert judge(true, true, 1, judges)[0]


def test_the_first_version_is_served_and_so_is_one_that_nobody_can_judge() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 4)
    better, reason, score, baseline = judge(true, None, 0, judges)
    assert better
    assert score is not None
    assert baseline is None
    assert reason.startswith("the first version: 4 held-out users score")
    assert judge(true, None, 0, judges.take(np.zeros(4, bool)))[:2] == (
        True,
        "no users were held out to compare versions by",
    )


def test_a_noise_for_each_class_is_no_advantage_over_classes_of_people_who_differ() -> None:
    """The noise of clicks differs between classes, so that telling it describes them better; it chooses no better."""
    rng = np.random.default_rng(0)
    rate = np.array([0.5, 0.02])[np.arange(400) % 2]
    reward = (rng.random((400, 20)) < rate[:, None]).astype(float)
    log = EventLog.from_rows(np.repeat(np.arange(400), 20), np.ones((8000, 1)), reward.ravel())
    own_noise = LatentModels([0.5, 0.5], [[0.4], [0.1]], [0.25, 0.02])
    right = LatentModels([0.5, 0.5], [[0.5], [0.02]], [0.135] * 2, covariance=np.full((2, 1, 1), 1e-6), personal=True)
    assert own_noise.user_scores(log).sum() > right.user_scores(log).sum()
    assert judge(right, own_noise, 1, log)[0]
    assert not judge(own_noise, right, 1, log)[0]


def test_clicks_are_compared_with_clicks() -> None:
    """A Gaussian density of 0/1 rewards may be above 1; beside a probability it would win for nothing."""
    log = EventLog.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[1, 0, 1, 0])
    clicks = LatentModels([1.0], [[0.5]], [0.25], likelihood="bernoulli", levels=(0.0, 1.0))
    narrow = LatentModels([1.0], [[0.9]], [0.0001])
    assert judge(clicks, narrow, 1, log)[0]
    assert with_likelihood_of(clicks, narrow).user_scores(log) == pytest.approx([np.log(0.9) + np.log(0.1)] * 2)
    assert with_likelihood_of(narrow, clicks).levels is None


def test_the_error_of_a_difference_is_that_of_its_mean_where_all_users_gave_as_much() -> None:
    d = np.random.default_rng(0).normal(size=50)
    mean, error = paired_difference(d * 7, np.full(50, 7.0))
    assert mean == pytest.approx(d.mean())
    assert error == pytest.approx(d.std(ddof=1) / np.sqrt(50))


def test_the_error_of_a_difference_is_the_spread_over_samples_of_users() -> None:
    rng = np.random.default_rng(1)
    count = rng.integers(1, 30, 300).astype(float)
    d = 0.1 * count + rng.normal(size=300) * np.sqrt(count)
    draws = rng.integers(0, 300, (4000, 300))
    again = d[draws].sum(axis=1) / count[draws].sum(axis=1)
    assert paired_difference(d, count)[1] == pytest.approx(again.std(), rel=0.07)


def test_personal_models_are_judged_with_their_spread_unless_beside_clicks() -> None:
    points = paper_classes()
    people = replace(points, covariance=np.tile(0.1 * np.eye(10), (5, 1, 1)), personal=True)
    assert with_likelihood_of(points, people).personal
    clicks = replace(points, likelihood="bernoulli", levels=(0.0, 1.0))
    assert not with_likelihood_of(clicks, people).personal
