from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.bandits.bandit import choose_uniformly
from lcb.bandits.over_policies.exp3 import EXP3
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
    Says,
    expected_step,
    play_random_rewards,
    regret_at,
    steepest_slope,
)

MODELS = LatentModels(pi=[0.2, 0.3, 0.5], beta=[[0.9, 0.1], [0.1, 0.8], [-0.6, 0.5]], sigma2=[0.1, 0.1, 0.1])


def published(gamma, drawn, rewards, n_policies):
    """Figure "Algorithm Exp3" of Auer et al. 2002, its arms the policies, line by line: q (T, N)."""
    w = [1.0] * n_policies
    probabilities = []
    for h, reward in zip(drawn, rewards, strict=True):
        q = [(1 - gamma) * w[i] / sum(w) + gamma / n_policies for i in range(n_policies)]
        w[h] *= math.exp(gamma * (reward / q[h]) / n_policies)
        probabilities.append(q)
    return np.array(probabilities)


@pytest.mark.parametrize("gamma", [None, 0.3])
@pytest.mark.parametrize("policy", [Greedy(), Softmax(0.3)], ids=["greedy", "softmax"])
def test_every_distribution_is_that_of_the_published_algorithm(gamma, policy, rng):
    n_steps, policies = 150, ClassPolicies(MODELS, policy)
    bandit = EXP3(policies, (-2.0, 6.0), horizon=n_steps, gamma=gamma)
    contexts, rewards, decisions = play_random_rewards(bandit, n_steps, rng)
    drawn = [int(np.flatnonzero(d.advice)[0]) for d in decisions]
    by_theory = math.sqrt(3 * math.log(3) / ((math.e - 1) * n_steps))
    q = published(gamma or by_theory, drawn, (rewards + 2) / 8, 3)
    p = [own @ policies(context) for own, context in zip(q, contexts, strict=True)]
    np.testing.assert_allclose([d.distribution for d in decisions], p, atol=1e-12, rtol=0)
    np.testing.assert_allclose([d.advice.max() for d in decisions], 1 / q[np.arange(n_steps), drawn])
    assert np.ptp(q, axis=0).min() > 0.1  # something happened


def test_policy_and_arm_are_drawn_together():
    """Of 64 numbers, as many take policy h and arm a as q_h xi_h(a) says."""
    bandit, state = EXP3(MIXED, gamma=0.5), np.array([7.0, math.log(3) * 2 / 0.5, 0.0])  # q = 5/8 and 3/8
    times = np.zeros((2, 4))
    for i in range(64):
        decision = bandit.choose(state, CONTEXT, Says((i + 0.5) / 64))
        times[np.argmax(decision.advice), decision.arm] += 1
    np.testing.assert_array_equal(times, 64 * np.array([[5 / 8], [3 / 8]]) * MIXED(CONTEXT))


@pytest.mark.parametrize("at_random", [False, True])
def test_the_estimates_are_unbiased(at_random):
    bandit = EXP3(MIXED, (-1.0, 3.0), gamma=0.5)
    state = np.array([7.0, math.log(3) * 2 / 0.5, 0.0])  # weights 3/4 and 1/4
    np.testing.assert_allclose(bandit.weights(state), [0.75, 0.25])
    rewards = np.array([-0.5, 2.0, 0.7, 1.3])
    step = expected_step(bandit, state, rewards, at_random=at_random)
    np.testing.assert_allclose(step, [0, *MIXED(CONTEXT) @ ((rewards + 1) / 4)], atol=1e-12)


def test_an_unknown_horizon_is_doubled_without_a_restart(rng):
    bandit, state = EXP3(MIXED), EXP3(MIXED).start()
    for t in range(70):
        decision = bandit.choose(state, CONTEXT, rng)
        doubled = next(2**i for i in range(10) if 2**i >= t + 1)
        known = EXP3(MIXED, horizon=doubled).choose(state, CONTEXT, rng)
        np.testing.assert_array_equal(decision.distribution, known.distribution)
        state = bandit.update(bandit.count_decision(state, decision), decision, float(rng.random()))
    assert state[0] == 70


def test_regret_grows_slower_than_time():  # by theory as its root; 0.1 % false alarms if the slope were 0.8
    times = (128, 512, 2048)
    regrets = [[regret_at(EXP3(CONSTANT, horizon=n), (n,), seed)[0] for n in times] for seed in range(12)]
    assert steepest_slope(times, regrets) < 0.8


def test_regret_grows_slower_than_time_when_nobody_knows_the_time():
    times = (128, 512, 2048)
    assert steepest_slope(times, [regret_at(EXP3(CONSTANT), times, seed) for seed in range(12)]) < 0.8


def test_a_rate_of_its_own_moves_the_weights_alone(rng):
    bandit = EXP3(MIXED, gamma=0.4, eta=0.5)
    p = bandit.choose(np.array([9.0, math.log(9) / 0.5, 0.0]), CONTEXT, rng).distribution  # weights 0.9 and 0.1
    np.testing.assert_allclose(p, (0.6 * np.array([0.9, 0.1]) + 0.2) @ MIXED(CONTEXT))


def test_it_says_how_much_is_chance():
    thirty, five = (Fixed(tuple((1.0,) for _ in range(n))) for n in (30, 5))
    assert EXP3(thirty, horizon=20).note(20) == (
        "at N 30, T 20 the theory's gamma makes this draw every policy with the same probability, "
        "whatever the rewards; it needs T above 59"
    )
    assert EXP3(thirty, horizon=100).note(20) == (
        "at N 30, T 100 the theory's gamma makes 77% of the decisions draw any policy with the same probability"
    )
    assert EXP3(thirty).note(20) == (
        "at N 30 the theory's gamma makes the first 32 decisions draw any policy with the same probability"
    )
    assert EXP3(five, horizon=20).note(20) is None
    assert EXP3(thirty, horizon=20, gamma=0.1).note(20) is None
    assert (
        EXP3(thirty, gamma=1.0).note(20)
        == "gamma=1 makes this draw every policy with the same probability, whatever the rewards"
    )


def test_with_too_few_decisions_to_come_every_policy_is_drawn_alike(rng):
    bandit, state = EXP3(CONSTANT, horizon=1), EXP3(CONSTANT).start()
    for _ in range(5):
        decision = bandit.choose(state, np.eye(3), rng)
        np.testing.assert_allclose(decision.distribution, np.full(3, 1 / 3))
        state = bandit.update(bandit.count_decision(state, decision), decision, 1.0)


def test_one_policy_is_followed(rng):
    bandit = EXP3(Fixed(((0.0, 1.0, 0.0, 0.0),)), horizon=10)
    decision = bandit.choose(bandit.start(), CONTEXT, rng)
    np.testing.assert_array_equal(decision.distribution, [0, 1, 0, 0])
    np.testing.assert_array_equal(bandit.update(bandit.start(), decision, 0.5), [0, 0.5])
    assert bandit.note(4) is None
    assert EXP3(Fixed(((1.0,),))).note(1) is None


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
        EXP3(**{"policies": MIXED, **setting})


def test_a_reward_outside_the_declared_range_is_refused(rng):
    bandit = EXP3(MIXED, (-1.0, 1.0))
    decision = bandit.choose(bandit.start(), CONTEXT, rng)
    with pytest.raises(InputError, match=r"reward 7 is outside the declared range \[-1, 1\] that EXP3 needs; declare"):
        bandit.update(bandit.start(), decision, 7.0)


def test_a_context_without_arms_is_refused(rng):
    with pytest.raises(InputError, match="no arms"):
        EXP3(MIXED).choose(EXP3(MIXED).start(), np.empty((0, 2)), rng)


def test_a_decision_without_advice_is_refused():
    bandit = EXP3(MIXED)
    with pytest.raises(InputError, match="no advice of 2 numbers, which the update of EXP3 needs"):
        bandit.update(bandit.start(), Decision(0, 1.0, CONTEXT[0]), 0.5)
    for others, context in ((CONSTANT, np.eye(3)), (Fixed(((1.0,),)), np.ones((1, 2)))):
        with pytest.raises(InputError, match="no advice of 2 numbers"):
            bandit.update(bandit.start(), choose_uniformly(EXP3(others), context, 0.5), 0.5)


def test_over_policies_with_an_arm_each_it_is_exp4(rng):
    three, four, context = EXP3(CONSTANT, horizon=90), EXP4(CONSTANT, horizon=90), np.eye(3)
    state = three.start()
    for _ in range(90):
        number = rng.random()
        decision, other = (bandit.choose(state, context, Says(number)) for bandit in (three, four))
        assert decision.arm == other.arm
        np.testing.assert_allclose(decision.distribution, other.distribution, atol=1e-12)
        np.testing.assert_allclose(decision.advice, other.advice, rtol=1e-12)
        state = three.update(three.count_decision(state, decision), decision, float(rng.random()))
