"""The queue method against a world whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.uniform import Uniform
from lcb.errors import InputError
from lcb.evaluate.offline.labels import read_labels
from lcb.evaluate.offline.queue import evaluate_queue
from lcb.models import LatentModels
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from support.logs import make_log

N_STEPS, X = 6, np.eye(3)
LIKES = np.array([[0.8, 0.2, 0.4], [0.1, 0.6, 0.4]])  # of two kinds of users
MODELS = LatentModels(pi=[0.5, 0.5], beta=LIKES, sigma2=[0.2, 0.2])


def logged(n_users, rng, values=None):
    """What a system wrote that knew its users: mostly what they like, at least N_STEPS of everything."""
    kind = rng.integers(0, 2, n_users)
    shown = np.array([[20, 6, 8], [6, 15, 8]])[kind]
    user = np.repeat(np.arange(n_users), shown.sum(axis=1))
    item = np.concatenate([np.repeat(np.arange(3), n) for n in shown])
    reward = (rng.random(len(user)) < LIKES[kind[user], item]).astype(float)
    if values is not None:
        reward = np.where(reward > 0, values(rng, len(user)), 0.0)
    return kind, make_log(user, item, [[0], [1], [2]], 3, reward=reward)


def live(recommender, kind, rng):
    """The same recommender in the world itself."""
    rewards = np.empty((len(kind), N_STEPS))
    for u, k in enumerate(kind):
        for t in range(N_STEPS):
            decision = recommender.choose(u, X, rng)
            rewards[u, t] = rng.random() < LIKES[k, decision.arm]
            recommender.update(u, decision, rewards[u, t])
    return rewards


RECOMMENDERS = {
    "individual": lambda: Individual(LinUCB(3)),
    "population": lambda: Pooled(LinUCB(3, width=0.3)),
    "random": lambda: Pooled(Uniform()),
    "latent": lambda: Latent(
        3,
        lambda m: GeneralizedThompson(m, uniform=0.1),
        rng=np.random.default_rng(0),
        models=MODELS,
        retrain_every=None,
    ),
}


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_the_estimate_is_unbiased_for_learning_recommenders(name):  # 4.5 sd: one false alarm in 150,000
    """Ten users at a time, whom a recommender meets one after another and learns from."""
    rng, n_groups = np.random.default_rng(1), 400
    _, log = logged(10 * n_groups, rng)
    labels, estimate, truth = read_labels(log, "labels"), [], []
    for g in range(n_groups):
        users = np.arange(10 * g, 10 * g + 10)
        rewards = evaluate_queue(RECOMMENDERS[name](), labels, users, X, N_STEPS, seed=3, rng=rng).rewards
        estimate.append(rewards.mean(axis=0))
        truth.append(live(RECOMMENDERS[name](), rng.integers(0, 2, 10), rng).mean(axis=0))
    difference = np.subtract(estimate, truth)  # (groups, steps): every step by itself
    error = difference.std(axis=0, ddof=1) / np.sqrt(n_groups)
    assert (np.abs(difference.mean(axis=0)) < 4.5 * error).all()


def test_the_naive_estimate_is_biased():
    """Of the policy "always arm 0": the log shows it mostly to those who like it."""
    rng, n = np.random.default_rng(1), 4000
    _, log = logged(n, rng)
    truth = LIKES[:, 0].mean()
    naive = log.reward[log.item == 0]
    assert abs(naive.mean() - truth) > 20 * naive.std() / np.sqrt(len(naive))

    class Always:
        def choose(self, user, context, rng):
            return Uniform().choose(np.empty(0), context[:1], rng)

        def update(self, user, decision, reward):
            pass

    labels = read_labels(log, "labels")
    queue = evaluate_queue(Always(), labels, np.arange(n), X, N_STEPS, seed=0, rng=rng).rewards
    assert abs(queue.mean() - truth) < 4.5 * queue.mean(axis=1).std() / np.sqrt(n)


def test_every_label_is_used_once_and_all_algorithms_meet_the_same_queues():
    log = make_log([0] * 6, [0, 0, 0, 1, 1, 2], [[0], [1], [2]], 3, reward=[0, 1, 0, 1, 1, 0])
    labels = read_labels(log, "labels")
    seen = []

    class Spy:
        def __init__(self, order):
            self.order = order

        def choose(self, user, context, rng):
            wanted = next(arm for arm in self.order if (context == X[arm]).all(axis=1).any())
            place = int(np.flatnonzero((context == X[wanted]).all(axis=1))[0])
            decision = Uniform().choose(np.empty(0), context[place : place + 1], rng)
            return type(decision)(place, 1.0, context[place])

        def update(self, user, decision, reward):
            seen.append((int(decision.x.argmax()), reward))

    for order in ([0, 1, 2], [2, 1, 0]):
        found = evaluate_queue(Spy(order), labels, np.array([0]), X, 7, seed=5, rng=np.random.default_rng(0))
        rewards, n_full = found.rewards, labels.count[0, order[0]]
        np.testing.assert_array_equal(found.is_short[0], np.arange(7) >= n_full)  # the first arm is taken first
        assert np.isnan(rewards[0, 6])
        assert np.nansum(rewards) == 3
    first, second = seen[:6], seen[6:]
    assert sorted(first) == sorted([(0, 0), (0, 1), (0, 0), (1, 1), (1, 1), (2, 0)])
    for arm in range(3):
        assert [r for a, r in first if a == arm] == [r for a, r in second if a == arm]


def test_a_user_may_end_at_an_empty_queue_instead():
    log = make_log([0] * 5, [0, 1, 1, 1, 1], [[0], [1]], 2, reward=[1, 0, 1, 0, 1])
    labels = read_labels(log, "labels")

    class First:
        def choose(self, user, context, rng):
            assert len(context) == 2
            return type(Uniform().choose(np.empty(0), context, rng))(0, 1.0, context[0])

        def update(self, user, decision, reward):
            assert reward == 1

    rewards = evaluate_queue(
        First(), labels, np.array([0]), np.eye(2), 4, seed=0, rng=np.random.default_rng(0), when_empty="end"
    ).rewards
    np.testing.assert_array_equal(rewards, [[1, np.nan, np.nan, np.nan]])
    with pytest.raises(InputError, match="when_empty='never'"):
        evaluate_queue(
            First(), labels, np.array([0]), np.eye(2), 4, seed=0, rng=np.random.default_rng(0), when_empty="never"
        )


def test_rewards_of_many_values_come_from_the_queues_too():
    rng, n = np.random.default_rng(1), 300
    _, log = logged(n, rng, values=lambda rng, size: rng.uniform(1, 3, size))
    labels = read_labels(log, "labels")
    estimate = evaluate_queue(Individual(LinUCB(3)), labels, np.arange(n), X, N_STEPS, seed=0, rng=rng).rewards
    assert set(estimate.ravel()) <= set(log.reward.astype(float))
