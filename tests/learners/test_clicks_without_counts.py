"""0/1 rewards given to the library: modelled as clicks like `lcb learn` does, or a warning says that they are not."""

from __future__ import annotations

import numpy as np
import pytest

import lcb
from lcb import event_log
from lcb.bandits import GeneralizedThompson
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.likelihood import choose_likelihood
from lcb.learners.registry import get_learner
from lcb.recommenders import FromRows, Latent
from lcb.stats import UserStats


def rows(seed=0):
    rng = np.random.default_rng(seed)
    user, arm = np.repeat(np.arange(200), 10), rng.integers(2, size=2000)
    reward = (rng.random(2000) < np.array([[0.9, 0.1], [0.1, 0.9]])[user % 2, arm]).astype(float)
    return user, np.eye(2)[arm], reward


def test_statistics_of_clicks_warn_where_they_are_learned_as_gaussian():
    user, x, reward = rows()
    stats = UserStats.from_rows(user, x, reward)
    for given in (stats, stats.take(np.arange(100)), stats + stats):
        with pytest.warns(lcb.LikelihoodWarning, match=r"give EventLog\.from_rows, as lcb learn does"):
            assert fit(given, 2, rng=np.random.default_rng(0)).models.likelihood == "gaussian"


def test_no_warning_where_gaussian_is_right_or_asked_for_or_clicks_are_counted():
    user, x, reward = rows()
    rng = np.random.default_rng(0)
    fit(UserStats.from_rows(user, x, reward), 2, rng=rng, likelihood="gaussian")
    fit(UserStats.from_rows(user, x, reward + 0.5), 2, rng=rng)
    fit(UserStats.from_rows(user, x, reward) + UserStats.from_rows(user, x, 2 * reward), 2, rng=rng)
    assert fit(EventLog.from_rows(user, x, reward), 2, rng=rng).models.likelihood == "bernoulli"


def serve_clicks(learn):
    rng = np.random.default_rng(1)
    recommender = Latent(2, GeneralizedThompson, learn, rng=rng, n_warmup_users=40, retrain_every=None)
    for user in range(41):
        for _ in range(5):
            decision = recommender.choose(user, np.eye(2), rng)
            recommender.update(user, decision, float(rng.random() < [[0.9, 0.1], [0.1, 0.9]][user % 2][decision.arm]))
    return recommender.versions[0]


def test_a_latent_recommender_keeps_counts_for_learners_of_rows_and_warns_others():
    counted = serve_clicks(FromRows(lambda log, rng, last: fit(log, 2, rng=rng).models))
    assert counted.likelihood == "bernoulli"
    with pytest.warns(lcb.LikelihoodWarning):
        serve_clicks(lambda stats, rng, last: fit(stats, 2, rng=rng).models)


def test_clicks_too_many_to_count_are_refused_unless_gaussian_is_asked_for(monkeypatch):
    monkeypatch.setattr(event_log, "_PENDING", 10)
    monkeypatch.setattr(event_log, "MOST_PAIRS", 50)
    user, x, reward = rows()
    log = EventLog.from_rows(user, x, reward)
    assert log.two_valued
    assert log.clicks is None
    with pytest.raises(lcb.InputError, match=r"pairs are more than .*, too many to count; learn from fewer users"):
        fit(log, 2, rng=0)
    with pytest.raises(lcb.InputError, match="too many to count"):
        lcb.learn(log, rng=0)
    assert fit(log, 2, rng=0, likelihood="gaussian").models.likelihood == "gaussian"
    assert choose_likelihood(log, "blocked", get_learner("blocked"), None, {})[0] == "gaussian"  # it has no other
