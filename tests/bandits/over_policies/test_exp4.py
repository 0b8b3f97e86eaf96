from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.bandits.bandit import choose_uniformly
from lcb.bandits.over_policies.exp4 import EXP4
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import ClassPolicies, Greedy, Softmax
from support.tiny_problems import (
    CONSTANT,
    CONTEXT,
    MIXED,
    Fixed,
    expected_step,
    play_random_rewards,
    regret_at,
    steepest_slope,
)

MODELS = LatentModels(pi=[0.2, 0.3, 0.5], beta=[[0.9, 0.1], [0.1, 0.8], [-0.6, 0.5]], sigma2=[0.1, 0.1, 0.1])


def published(gamma, advice, arms, rewards):
    """Figure "Algorithm Exp4" of Auer et al. 2002, line by line, weights multiplied: p (T, K)."""
    n_steps, n_experts, n_arms = advice.shape
    w = [1.0] * n_experts
    probabilities = []
    for t in range(n_steps):
        total = sum(w)
        p = [
            (1 - gamma) * sum(w[i] * advice[t, i, j] / total for i in range(n_experts)) + gamma / n_arms
            for j in range(n_arms)
        ]
        estimate = [rewards[t] / p[j] if j == arms[t] else 0.0 for j in range(n_arms)]
        for i in range(n_experts):
            y = sum(advice[t, i, j] * estimate[j] for j in range(n_arms))
            w[i] *= math.exp(gamma * y / n_arms)
        probabilities.append(p)
    return np.array(probabilities)


@pytest.mark.parametrize("gamma", [None, 0.3])
@pytest.mark.parametrize("policy", [Greedy(), Softmax(0.3)], ids=["greedy", "softmax"])
def test_every_distribution_is_that_of_the_published_algorithm(gamma, policy, rng):
    n_steps, policies = 150, ClassPolicies(MODELS, policy)
    bandit = EXP4(policies, (-2.0, 6.0), horizon=n_steps, gamma=gamma)
    contexts, rewards, decisions = play_random_rewards(bandit, n_steps, rng)
    advice = np.array([policies(context) for context in contexts])
    by_theory = math.sqrt(4 * math.log(3) / ((math.e - 1) * n_steps))
    p = published(gamma or by_theory, advice, [d.arm for d in decisions], (rewards + 2) / 8)
    np.testing.assert_allclose([d.distribution for d in decisions], p, atol=1e-12, rtol=0)
    assert np.ptp(p, axis=0).min() > 0.1  # something happened


@pytest.mark.parametrize("at_random", [False, True])
def test_the_estimates_are_unbiased(at_random):
    bandit = EXP4(MIXED, (-1.0, 3.0), gamma=0.5)
    state = np.array([7.0, math.log(3) * 4 / 0.5, 0.0])  # weights 3/4 and 1/4
    np.testing.assert_allclose(bandit.weights(state, 4), [0.75, 0.25])
    rewards = np.array([-0.5, 2.0, 0.7, 1.3])
    step = expected_step(bandit, state, rewards, at_random=at_random)
    np.testing.assert_allclose(step, [0, *MIXED(CONTEXT) @ ((rewards + 1) / 4)], atol=1e-12)


def test_an_unknown_horizon_is_doubled_without_a_restart(rng):
    bandit, state = EXP4(MIXED), EXP4(MIXED).start()
    for t in range(70):
        decision = bandit.choose(state, CONTEXT, rng)
        doubled = next(2**i for i in range(10) if 2**i >= t + 1)
        known = EXP4(MIXED, horizon=doubled).choose(state, CONTEXT, rng)
        np.testing.assert_array_equal(decision.distribution, known.distribution)
        state = bandit.update(bandit.count_decision(state, decision), decision, float(rng.random()))
    assert state[0] == 70


def test_regret_grows_slower_than_time():  # by theory as its root; 0.1 % false alarms if the slope were 0.8
    times = (128, 512, 2048)
    regrets = [[regret_at(EXP4(CONSTANT, horizon=n), (n,), seed)[0] for n in times] for seed in range(12)]
    assert steepest_slope(times, regrets) < 0.8


def test_regret_grows_slower_than_time_when_nobody_knows_the_time():
    times = (128, 512, 2048)
    assert steepest_slope(times, [regret_at(EXP4(CONSTANT), times, seed) for seed in range(12)]) < 0.8


def test_a_rate_of_its_own_moves_the_weights_alone(rng):
    bandit = EXP4(MIXED, gamma=0.4, eta=0.5)
    p = bandit.choose(np.array([9.0, math.log(9) / 0.5, 0.0]), CONTEXT, rng).distribution  # weights 0.9 and 0.1
    np.testing.assert_allclose(p, 0.6 * (np.array([0.9, 0.1]) @ MIXED(CONTEXT)) + 0.1)


def test_it_says_how_much_is_chance():
    policies = Fixed(tuple((1.0, *[0.0] * 19) for _ in range(5)))
    assert EXP4(policies, horizon=20).note(20) == (
        "at K 20, N 5, T 20 the theory's gamma makes 97% of the decisions uniform"
    )
    assert EXP4(policies, horizon=18).note(20) == (
        "at K 20, N 5, T 18 the theory's gamma makes this the uniform policy; it needs T above 19"
    )
    assert EXP4(policies).note(20) == "at K 20, N 5 the theory's gamma makes the first 16 decisions uniform"
    assert EXP4(policies, horizon=1000).note(20) is None
    assert EXP4(policies, horizon=20, gamma=0.1).note(20) is None
    assert EXP4(policies, gamma=1.0).note(20) == "gamma=1 makes this the uniform policy"


def test_with_too_few_decisions_to_come_it_is_the_uniform_policy(rng):
    bandit, state = EXP4(MIXED, horizon=1), EXP4(MIXED).start()
    for _ in range(5):
        decision = bandit.choose(state, CONTEXT, rng)
        np.testing.assert_array_equal(decision.distribution, np.full(4, 0.25))
        state = bandit.update(bandit.count_decision(state, decision), decision, 1.0)


def test_one_policy_is_followed(rng):
    bandit = EXP4(Fixed(((0.0, 1.0, 0.0, 0.0),)), horizon=10)
    decision = bandit.choose(bandit.start(), CONTEXT, rng)
    np.testing.assert_array_equal(decision.distribution, [0, 1, 0, 0])
    np.testing.assert_array_equal(bandit.update(bandit.start(), decision, 0.5), [0, 0.5])
    assert bandit.note(4) is None
    assert EXP4(Fixed(((1.0,),))).note(1) is None


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 0.0},
        {"gamma": 1.1},
        {"gamma": math.nan},
        {"eta": 0.0},
        {"eta": math.inf},
        {"horizon": 0},
        {"reward_range": (1.0, 1.0)},
        {"reward_range": (0.0, math.inf)},
        {"policies": Fixed(())},
    ],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting)).replace("policies", "n_policies=0")):
        EXP4(**{"policies": MIXED, **setting})


def test_a_reward_outside_the_declared_range_is_refused(rng):
    bandit = EXP4(MIXED, (-1.0, 1.0))
    decision = bandit.choose(bandit.start(), CONTEXT, rng)
    with pytest.raises(InputError, match=r"reward 7 is outside the declared range \[-1, 1\] that EXP4 needs; declare"):
        bandit.update(bandit.start(), decision, 7.0)


def test_a_context_without_arms_is_refused(rng):
    with pytest.raises(InputError, match="no arms"):
        EXP4(MIXED).choose(EXP4(MIXED).start(), np.empty((0, 2)), rng)


def test_a_decision_without_advice_is_refused():
    bandit = EXP4(MIXED)
    with pytest.raises(InputError, match="no advice of 2 numbers, which the update of EXP4 needs"):
        bandit.update(bandit.start(), Decision(0, 1.0, CONTEXT[0]), 0.5)
    for others, context in ((CONSTANT, np.eye(3)), (Fixed(((1.0,),)), np.ones((1, 2)))):
        with pytest.raises(InputError, match="no advice of 2 numbers"):
            bandit.update(bandit.start(), choose_uniformly(EXP4(others), context, 0.5), 0.5)
