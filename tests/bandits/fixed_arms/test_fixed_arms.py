"""Bandits over arms without features, each against its published pseudo-code kept in plain lists."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.bandits.fixed_arms._counts import find_items
from lcb.bandits.fixed_arms.multiple_k_ucb import MultipleKUCB
from lcb.bandits.fixed_arms.ucb1 import UCB1
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.errors import InputError
from lcb.models import LatentModels

BETA = np.array([[0.9, 0.5, 0.1], [0.1, 0.6, 0.8], [0.5, 0.7, 0.2]])
MODELS = LatentModels(pi=[0.2, 0.3, 0.5], beta=BETA, sigma2=[0.04, 0.09, 0.01])
N, K = BETA.shape


def rewards_of(truth, n, seed):
    return BETA[truth] + 0.2 * np.random.default_rng(seed).standard_normal((n, K))


def mean(values):
    return sum(values) / len(values)


def multiple_k_ucb(seen, width):
    """Algorithm 2 of Maillard & Mannor 2014: the arms it may play, and the admissible classes."""
    n, noise = sum(map(len, seen)), math.sqrt(max(MODELS.sigma2))
    admissible = []
    for c in range(N):
        inside = [True]
        for a in range(K):
            if seen[a]:
                size = width * noise * math.sqrt(2 * math.log(n**3) / len(seen[a]))
                inside.append(mean(seen[a]) - size <= BETA[c, a] <= mean(seen[a]) + size)
        if all(inside):
            admissible.append(c)
    if not admissible:
        fewest = min(map(len, seen))
        return [a for a in range(K) if len(seen[a]) == fewest], admissible
    best = max(admissible, key=lambda c: max(BETA[c]))
    return [int(BETA[best].argmax())], admissible


def umucb(seen, n_steps, epsilon, n_first, width, delta):
    """umUCB of Azar, Lazaric & Brunskill 2013."""
    if min(map(len, seen)) < n_first:
        fewest = min(map(len, seen))
        return [a for a in range(K) if len(seen[a]) == fewest], None
    size = [
        [
            width * math.sqrt(MODELS.sigma2[h]) * math.sqrt(2 * math.log(N * n_steps**2 / delta) / len(seen[a]))
            if seen[a]
            else math.inf
            for a in range(K)
        ]
        for h in range(N)
    ]
    allowed = [
        h
        for h in range(N)
        if all(not seen[a] or abs(BETA[h, a] - mean(seen[a])) <= size[h][a] + epsilon for a in range(K))
    ]
    if not allowed:
        index = [max(mean(seen[a]) + size[h][a] if seen[a] else math.inf for h in range(N)) for a in range(K)]
        return [a for a in range(K) if index[a] == max(index)], allowed
    bound = {
        (h, a): min(BETA[h, a] + epsilon, mean(seen[a]) + size[h][a] if seen[a] else math.inf)
        for h in allowed
        for a in range(K)
    }
    return [max(bound, key=bound.get)[1]], allowed


def follow(bandit, by_the_book, rewards, rng):
    """Play; at every step the arm is one that the book allows.  Returns the sets of classes that were possible."""
    state, seen, sets = bandit.start(), [[] for _ in range(K)], []
    for reward in rewards:
        arms, possible = by_the_book(seen)
        decision = bandit.choose(state, np.eye(K), rng)
        assert np.flatnonzero(decision.distribution).tolist() == arms
        if possible is not None:
            sets.append(tuple(possible))
            which = bandit.admissible(state) if isinstance(bandit, MultipleKUCB) else bandit.allowed(state)
            assert np.flatnonzero(which).tolist() == possible
        state = bandit.update(bandit.count_decision(state, decision), decision, reward[decision.arm])
        seen[decision.arm].append(reward[decision.arm])
    return sets


@pytest.mark.parametrize("truth", range(N))
@pytest.mark.parametrize("width", [1.0, 0.3])
def test_multiple_k_ucb_plays_the_published_algorithm(truth, width, rng):
    rewards = rewards_of(truth, 150, seed=truth)
    sets = follow(MultipleKUCB(MODELS, width), lambda seen: multiple_k_ucb(seen, width), rewards, rng)
    assert () in sets  # after the first reward, at the latest
    assert len(set(sets)) > 1


@pytest.mark.parametrize("truth", range(N))
@pytest.mark.parametrize(("epsilon", "n_first", "width"), [(0.0, 0, 1.0), (0.1, 3, 1.0), (0.0, 1, 0.2), (0.05, 0, 0.1)])
@pytest.mark.parametrize("delta", [None, 0.1])
def test_umucb_plays_the_published_algorithm(truth, epsilon, n_first, width, delta, rng):
    rewards = rewards_of(truth, 150, seed=truth)
    bandit = UMUCB(MODELS, 150, epsilon, n_first, width, delta)
    book_delta = 1 / 150 if delta is None else delta
    sets = follow(bandit, lambda seen: umucb(seen, 150, epsilon, n_first, width, book_delta), rewards, rng)
    assert min(map(len, sets)) < N  # some model is ruled out


def test_with_known_models_umucb_plays_the_best_arm_of_the_most_hopeful_model_allowed(rng):
    """Algorithm 1 (mUCB): theta_t = argmax over allowed models of their best mean, then that model's best arm."""
    rewards, bandit = rewards_of(2, 100, seed=4), UMUCB(MODELS, 100)
    state = bandit.start()
    for reward in rewards:
        allowed = np.flatnonzero(bandit.allowed(state))
        best = max(allowed, key=lambda h: BETA[h].max())
        decision = bandit.choose(state, np.eye(K), rng)
        assert decision.arm == BETA[best].argmax()
        state = bandit.update(bandit.count_decision(state, decision), decision, reward[decision.arm])


def test_with_an_infinite_epsilon_umucb_is_ucb(rng):
    bandit = UMUCB(MODELS, 100, epsilon=np.inf)
    state = np.array([3, 2, 5, 3, 2, 5, 1.5, 0.4, 3.0])
    size = 0.3 * np.sqrt(2 * np.log(3 * 100**2 * 100) / np.array([3, 2, 5]))
    assert bandit.choose(state, np.eye(K), rng).arm == np.argmax(np.array([0.5, 0.2, 0.6]) + size)


def test_ucb1_plays_the_published_rule(rng):
    rewards = rewards_of(1, 200, seed=9).clip(0, 1)
    bandit = UCB1(K)
    state, seen = bandit.start(), [[] for _ in range(K)]
    for t, reward in enumerate(rewards):
        decision = bandit.choose(state, np.eye(K), rng)
        if t >= K:
            index = [mean(own) + math.sqrt(2 * math.log(t) / len(own)) for own in seen]
            assert decision.arm == index.index(max(index))
        else:
            assert not seen[decision.arm]
        state = bandit.update(bandit.count_decision(state, decision), decision, reward[decision.arm])
        seen[decision.arm].append(reward[decision.arm])


@pytest.mark.parametrize("bandit", [UCB1(K), UMUCB(MODELS, 30, n_first=2)], ids=["ucb1", "umucb"])
def test_first_pulls_go_on_while_rewards_are_late(bandit, rng):
    state, arms = bandit.start(), []
    for _ in range(K):
        decision = bandit.choose(state, np.eye(K), rng)
        state = bandit.count_decision(state, decision)
        arms.append(decision.arm)
    assert sorted(arms) == list(range(K))


@pytest.mark.parametrize(
    "bandit", [UCB1(K), UMUCB(MODELS, 30), MultipleKUCB(MODELS)], ids=["ucb1", "umucb", "multiple-k-ucb"]
)
def test_only_arms_that_are_offered_are_played(bandit, rng):
    state = bandit.start()
    for _ in range(20):
        decision = bandit.choose(state, np.eye(K)[[2, 1]], rng)
        assert decision.x[0] == 0
        state = bandit.update(bandit.count_decision(state, decision), decision, 0.5)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (np.eye(4), "4 features, there are 3 arms"),
        (0.5 * np.eye(3), "not one-hot"),
        (np.ones((2, 3)), "not one-hot"),
        (np.array([[1.0, 0.0, 0.0], [0.0, np.nan, 0.0]]), "NaN"),
    ],
)
def test_contexts_with_features_are_refused(context, message):
    with pytest.raises(InputError, match=message):
        find_items(context, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UCB1(0), "n_arms=0"),
        (lambda: UCB1(2, width=-1), "width=-1"),
        (lambda: MultipleKUCB(MODELS, width=np.inf), "width=inf"),
        (lambda: UMUCB(MODELS, 0), "n_steps=0"),
        (lambda: UMUCB(MODELS, 5, n_first=-1), "n_first=-1"),
        (lambda: UMUCB(MODELS, 5, epsilon=-0.1), "epsilon=-0.1"),
        (lambda: UMUCB(MODELS, 5, width=np.nan), "width=nan"),
        (lambda: UMUCB(MODELS, 5, delta=1.0), "delta=1.0"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
