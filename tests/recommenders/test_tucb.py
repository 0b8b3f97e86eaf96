from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from conftest import largest_error
from lcb.bandits.fixed_arms.ucb1 import UCB1
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.models import LatentModels
from lcb.recommenders.individual import Individual
from lcb.recommenders.tucb import TUCB, _compute_moments, estimate

BETA = np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]])


def clicks(beta, pi=None):
    n = len(beta)
    pi = np.full(n, 1 / n) if pi is None else pi
    return LatentModels(pi, beta, np.full(n, 0.25), likelihood="bernoulli", levels=(0.0, 1.0))


def sets_of(means, n=3):
    """Counts and sums (users, 2, 3, K) of users whose every set has mean `means` (users, K)."""
    count = np.full((len(means), 3, means.shape[1]), float(n))
    return np.stack((count, n * np.repeat(means[:, None], 3, axis=1)), axis=1)


def test_without_noise_the_classes_are_recovered_exactly():
    rng = np.random.default_rng(0)
    beta = rng.random((4, 6))
    label = np.repeat(np.arange(4), [10, 20, 30, 40])
    pi, found = estimate(sets_of(beta[label]), 4, rng)
    assert largest_error(found, beta) < 1e-8
    np.testing.assert_allclose(np.sort(pi), [0.1, 0.2, 0.3, 0.4], atol=1e-8)


def test_many_noisy_users_give_the_classes_to_within_a_few_hundredths():
    rng = np.random.default_rng(1)
    beta = np.array([[0.9, 0.5, 0.1, 0.3], [0.1, 0.6, 0.8, 0.2], [0.3, 0.1, 0.2, 0.7]])
    label = rng.integers(3, size=4000)
    total = rng.binomial(5, beta[label][:, None].repeat(3, axis=1))
    _, found = estimate(np.stack((np.full(total.shape, 5.0), total), axis=1), 3, rng)
    assert largest_error(found, beta) < 0.06


def test_moments_are_averages_of_products_of_different_sets():
    rng = np.random.default_rng(2)
    count = rng.integers(0, 3, (30, 3, 4)).astype(float)  # some sets have no reward of some arm
    total = count * rng.random((30, 3, 4))
    second, third = _compute_moments(np.stack((count, total), axis=1))
    i, j, k = 1, 1, 3
    pairs, triples = [], []
    for u in range(30):
        for a, b in permutations(range(3), 2):
            if count[u, a, i] and count[u, b, k]:
                pairs.append(total[u, a, i] / count[u, a, i] * total[u, b, k] / count[u, b, k])
        for a, b, c in permutations(range(3)):
            if count[u, a, i] and count[u, b, j] and count[u, c, k]:
                means = [total[u, s, arm] / count[u, s, arm] for s, arm in ((a, i), (b, j), (c, k))]
                triples.append(np.prod(means))
    assert second[i, k] == pytest.approx(np.mean(pairs))
    assert third[i, j, k] == pytest.approx(np.mean(triples))


def test_moments_wait_until_every_pair_and_triple_of_arms_was_seen():
    sets = sets_of(np.ones((5, 3)))
    sets[:, :, :, 2] = 0
    assert _compute_moments(sets) is None
    assert estimate(sets, 1, np.random.default_rng(0)) is None


def test_moments_that_show_fewer_classes_than_asked_for_give_none():
    assert estimate(sets_of(np.tile([0.2, 0.8], (9, 1))), 2, np.random.default_rng(0)) is None
    assert estimate(sets_of(np.tile([0.2, 0.8], (9, 1))), 1, np.random.default_rng(0)) is not None


def played_by_the_book(users, n_classes, n_steps, margin, n_warmup, rng, choose_rng):
    """tUCB: umUCB for a user, then the classes from the three sets of all users so far; arms kept in plain lists."""
    n_users, k = len(users.label), users.means.shape[2]
    models = LatentModels(np.full(n_classes, 1 / n_classes), np.zeros((n_classes, k)), np.full(n_classes, 0.25))
    epsilon, log, played = np.inf, [], []
    for j in range(n_users):
        if j >= n_warmup:
            sets = np.zeros((j, 2, 3, k))
            for u, samples in enumerate(log):
                for a in range(k):
                    for i, reward in enumerate(samples[a]):
                        sets[u, 0, i % 3, a] += 1
                        sets[u, 1, i % 3, a] += reward
            pi, beta = estimate(sets, n_classes, rng)
            models = LatentModels(pi / pi.sum(), beta, np.full(n_classes, 0.25))
            epsilon = margin * np.sqrt(np.log(k * n_steps) / j)
        bandit = UMUCB(models, n_steps, epsilon, n_first=3)
        state, samples, arms = bandit.start(), [[] for _ in range(k)], []
        for t in range(n_steps):
            decision = bandit.choose(state, np.eye(k), choose_rng)
            reward = users.rewards[j, t, decision.arm]
            state = bandit.update(bandit.count_decision(state, decision), decision, reward)
            samples[decision.arm].append(reward)
            arms.append(decision.arm)
        log.append(samples)
        played.append(arms)
    return np.array(played)


def test_it_plays_the_published_algorithm():
    users = FixedArms(clicks(BETA)).draw(25, 30, np.random.default_rng(0))
    recommender = TUCB(3, 2, n_steps=30, rng=np.random.default_rng(1), margin=0.2, n_warmup_users=15)
    arms = recommender.serve(range(25), users.contexts, users.rewards, np.random.default_rng(2))
    book = played_by_the_book(users, 2, 30, 0.2, 15, np.random.default_rng(1), np.random.default_rng(2))
    np.testing.assert_array_equal(arms, book)
    assert len(recommender.versions) == 10


def test_regret_falls_far_below_ucb1_and_comes_near_to_known_models():
    """120 users of 300 steps; the intervals are 3 standard errors of the second half of the users."""
    world = FixedArms(clicks(BETA))
    users = world.draw(120, 300, np.random.default_rng(0))

    def later(recommender):
        arms = recommender.serve(range(120), users.contexts, users.rewards, np.random.default_rng(1))
        regret = users.regret(arms)[60:]
        return regret.mean(), 3 * regret.std() / np.sqrt(60)

    ucb, ucb_error = later(Individual(UCB1(3)))
    known, known_error = later(Individual(UMUCB(world.models, 300)))
    tucb, tucb_error = later(TUCB(3, 2, n_steps=300, rng=np.random.default_rng(2), n_warmup_users=20, retrain_every=5))
    assert tucb + tucb_error < 0.6 * (ucb - ucb_error)
    assert tucb - tucb_error < known + known_error + 3


def test_a_user_keeps_the_classes_first_met():
    users = FixedArms(clicks(BETA)).draw(12, 30, np.random.default_rng(0))
    recommender = TUCB(3, 2, n_steps=60, rng=np.random.default_rng(1), n_warmup_users=10)
    recommender.start("early")
    recommender.serve(range(12), users.contexts, users.rewards, np.random.default_rng(2))
    assert recommender.versions
    assert recommender._users["early"][0] == 0
    assert recommender._users[11][0] == len(recommender.versions)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_classes": 4}, "n_classes=4 for 3 arms"),
        ({"n_classes": 0}, "n_classes=0"),
        ({"noise": 0.0}, "noise=0.0"),
        ({"margin": -1.0}, "margin=-1.0"),
        ({"n_warmup_users": 0}, "n_warmup_users=0"),
        ({"retrain_every": 0}, "retrain_every=0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        TUCB(3, **{"n_classes": 2, "n_steps": 9, "rng": np.random.default_rng(0), **settings})


def test_a_decision_that_was_not_made_here_is_refused():
    recommender = TUCB(3, 2, n_steps=9, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="choose for them first"):
        recommender.update("nobody", Decision(0, 1.0, np.eye(3)[0]), 0.5)
    recommender.start("ann")
    with pytest.raises(InputError, match="not made by this recommender for user 'ann'"):
        recommender.update("ann", Decision(0, 1.0, np.eye(3)[0]), 0.5)
