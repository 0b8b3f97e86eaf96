"""Replay and weighted estimates against a world whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.uniform import Uniform
from lcb.errors import InputError
from lcb.evaluate.offline.logged_events import LoggedEvents, read_events
from lcb.evaluate.offline.off_policy import weigh_events
from lcb.evaluate.offline.replay import evaluate_replay
from lcb.models import LatentModels
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from lcb.storage.logs.offers import Offers
from support.logs import make_log

X = np.eye(3)
LIKES = np.array([[0.8, 0.2, 0.4], [0.1, 0.6, 0.4]])  # of two kinds of users
SHOWN = np.array([[0.6, 0.1, 0.3], [0.1, 0.6, 0.3]])  # how often the log shows each kind each arm: mostly what it likes
MODELS = LatentModels(pi=[0.5, 0.5], beta=LIKES, sigma2=[0.2, 0.2])


def logged(n_users, n_events, rng):
    kind = rng.integers(0, 2, n_users)
    user = np.repeat(np.arange(n_users), n_events)
    arm = (rng.random((len(user), 1)) > SHOWN.cumsum(axis=1)[kind[user]]).sum(axis=1)
    reward = (rng.random(len(user)) < LIKES[kind[user], arm]).astype(float)
    return kind, LoggedEvents(("a", "b", "c"), X, user, arm, reward, SHOWN[kind[user], arm], n_users)


def latent(make_bandit):
    return Latent(3, make_bandit, rng=np.random.default_rng(0), models=MODELS, retrain_every=None)


RECOMMENDERS = {
    "individual": lambda: Individual(LinUCB(3)),
    "population": lambda: Pooled(LinUCB(3, width=0.3)),
    "random": lambda: Pooled(Uniform()),
    "thompson": lambda: latent(lambda models: GeneralizedThompson(models, uniform=0.2)),
    "mean": lambda: latent(PosteriorMean),
}


def live(recommender, kind, n_steps, rng):
    rewards = np.empty((len(kind), n_steps))
    for u, k in enumerate(kind):
        for t in range(n_steps):
            decision = recommender.choose(u, X, rng)
            rewards[u, t] = rng.random() < LIKES[k, decision.arm]
            recommender.update(u, decision, rewards[u, t])
    return rewards


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_replay_is_unbiased_for_recommenders_that_learn_from_their_own_choices(name):  # 4.5 sd
    rng, n_groups, n_steps = np.random.default_rng(1), 300, 4
    _, log = logged(10 * n_groups, 250, rng)  # so many events that nobody runs out
    estimate, truth = [], []
    for g in range(n_groups):
        users = np.arange(10 * g, 10 * g + 10)
        rewards = evaluate_replay(RECOMMENDERS[name](), log, users, X, n_steps, rng=rng).rewards
        assert np.isfinite(rewards).all()
        estimate.append(np.nanmean(rewards, axis=0))
        truth.append(live(RECOMMENDERS[name](), rng.integers(0, 2, 10), n_steps, rng).mean(axis=0))
    difference = np.subtract(estimate, truth)
    error = difference.std(axis=0, ddof=1) / np.sqrt(n_groups)
    assert (np.abs(difference.mean(axis=0)) < 4.5 * error).all()


def test_replay_takes_events_in_order_and_each_once():
    log = LoggedEvents(("a", "b"), np.eye(2), np.zeros(6, int), np.array([0, 1, 0, 1, 1, 0]), np.arange(6.0), None, 1)

    class Alternating:
        n = 0

        def choose(self, user, context, rng):
            decision = Uniform().choose(np.empty(0), context, rng)
            self.n += 1
            return type(decision)((self.n - 1) % 2, 0.5, context[(self.n - 1) % 2])

        def update(self, user, decision, reward):
            pass

    found = evaluate_replay(Alternating(), log, np.array([0]), np.eye(2), 6, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(found.rewards, [[0, 1, 2, 3, 5, np.nan]])


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_weighted_estimates_are_unbiased_and_say_how_sure_they_are(name):
    """The truth is what the recommender's own distribution would have given at every event."""
    runs = []
    for run in range(30):
        rng = np.random.default_rng((run, 5))
        kind, log = logged(60, 15, rng)
        truth, recommender = [], RECOMMENDERS[name]()
        plain = recommender.choose

        def choose(user, context, rng, plain=plain, truth=truth, kind=kind):
            decision = plain(user, context, rng)
            truth.append(decision.distribution @ LIKES[kind[user]])
            return decision

        recommender.choose = choose
        found = weigh_events(recommender, log, X, theta=np.array([0.5, 0.3, 0.4]), rng=rng)
        runs.append((found, np.mean(truth)))
    for estimator in ("ips", "snips", "dr"):
        values, claimed = np.transpose([found.estimate(estimator) for found, _ in runs])
        errors = values - [truth for _, truth in runs]
        z = errors.mean() / (errors.std(ddof=1) / np.sqrt(30))
        assert abs(z) < 4.5, estimator
        assert 0.6 < values.std(ddof=1) / claimed.mean() < 1.6, estimator  # users are draws too


def test_the_naive_estimate_is_biased_where_the_weighted_are_not():
    rng = np.random.default_rng(0)
    _, log = logged(3000, 10, rng)
    truth = LIKES.mean()  # of the policy that takes every arm alike
    naive = log.reward
    assert abs(naive.mean() - truth) > 10 * naive.std() / np.sqrt(len(naive))
    found = weigh_events(Pooled(Uniform()), log, X, theta=LIKES.mean(axis=0), rng=rng)
    for estimator in ("ips", "snips", "dr"):
        value, error = found.estimate(estimator)
        assert abs(value - truth) < 4.5 * error


def test_estimates_worked_by_hand():
    log = LoggedEvents(
        ("a", "b"), np.eye(2), np.array([0, 1]), np.array([0, 1]), np.array([1.0, 2.0]), np.array([0.5, 0.25]), 2
    )
    found = weigh_events(Pooled(Uniform()), log, np.eye(2), theta=np.array([1.0, 3.0]), rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.weight, [1, 2])
    assert found.estimate("ips")[0] == pytest.approx((1 * 1 + 2 * 2) / 2)
    assert found.estimate("snips")[0] == pytest.approx((1 * 1 + 2 * 2) / 3)
    assert found.estimate("dr")[0] == pytest.approx(2 + (1 * (1 - 1) + 2 * (2 - 3)) / 2)
    assert found.support.effective_size == pytest.approx(9 / 5)


def test_a_policy_is_asked_over_the_arms_on_offer_and_what_is_missing_is_exact():
    """Of three arms, the first event offers b and c, the second all; its log never shows c."""
    items, p = np.array([0, 1, 2, 2, 1], np.int32), np.array([0.5, 0.5, 0.75, 0.25, 0], np.float32)
    offers = Offers(items, p, np.array([3, 0]), np.array([0, 2]), np.array([2, 3]))
    arm, reward, propensity = np.array([1, 0]), np.array([1.0, 2.0]), np.array([0.5, 0.75])
    log = LoggedEvents(("a", "b", "c"), X, np.array([0, 1]), arm, reward, propensity, 2, offers)
    theta = np.array([1.0, 2.0, 4.0])
    found = weigh_events(Pooled(Uniform()), log, X, theta=theta, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.weight, [0.5 / 0.5, (1 / 3) / 0.75])
    np.testing.assert_allclose(found.direct, [3, 7 / 3])
    np.testing.assert_allclose(found.predicted, [2, 1])
    assert found.support.missing == pytest.approx((0 + 1 / 3) / 2)
    offers = Offers(items, p, offers.first, np.array([0, -1]), offers.size)
    found = weigh_events(Pooled(Uniform()), replace(log, offers=offers), X, theta=theta, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.weight, [1, (1 / 3) / 0.75])
    assert found.support.missing is None, "not every event has its distribution"


def test_logs_that_cannot_be_weighed_are_refused():
    _, log = logged(3, 2, np.random.default_rng(0))
    without = LoggedEvents(log.names, X, log.user, log.arm, log.reward, None, 3)
    with pytest.raises(InputError, match="no propensities"):
        weigh_events(Pooled(Uniform()), without, X, theta=np.zeros(3), rng=np.random.default_rng(0))
    found = weigh_events(Pooled(Uniform()), log, X, theta=np.zeros(3), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="estimator 'magic'"):
        found.estimate("magic")


def test_a_log_gives_its_events_and_first_steps():
    log = make_log([0, 1, 0, 0], [0, 1, 1, 0], [[0, 1], [1]], 2, reward=[1, 0, 0, 1], propensity=[0.5, 0.2, 0.5, 0.4])
    found = read_events(log)
    np.testing.assert_array_equal(found.vectors, [[1, 1], [0, 1]])
    np.testing.assert_array_equal(found.arm, [0, 1, 0, 1])
    first = found.of_users(np.array([0]), 2)
    np.testing.assert_array_equal(first.arm, [0, 1])
    np.testing.assert_allclose(first.propensity, [0.5, 0.5])
    assert found.history(np.eye(2), ("c0", "c1")).stats.n_events == 4
