"""What every bandit must obey, tried at settings that are not the defaults too."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lcb.bandits.bandit import choose_uniformly, count_decision, serve, serve_step_by_step
from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.mmts import MMTS
from lcb.bandits.over_classes.mucb import MUCB
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4 import EXP4
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.bandits.registry import BANDITS as REGISTRY
from lcb.bandits.registry import build_bandit
from lcb.bandits.uniform import Uniform
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import ClassPolicies, Softmax

D = 4
MODELS = LatentModels(
    pi=[0.5, 0.2, 0.3],
    beta=[[0.9, 0.1, 0.0, 0.2], [0.1, 0.8, 0.1, 0.1], [0.2, 0.1, 0.1, 0.9]],
    sigma2=[0.04, 0.09, 0.01],
)
CLICKS = LatentModels(pi=MODELS.pi, beta=MODELS.beta, sigma2=MODELS.sigma2, likelihood="bernoulli", levels=(0.0, 1.0))
UNCERTAIN = MODELS.with_covariance(np.array([0.05, 0.1, 0.2])[:, None, None] * (np.eye(D) + 0.2))
PEOPLE = LatentModels(
    MODELS.pi, MODELS.beta, np.full(3, 0.04), covariance=UNCERTAIN.covariance, personal=True,
    arms=np.vstack([np.eye(D), np.full(D, 0.25)]), arm_sigma2=[0.01, 0.02, 0.05, 0.1, 0.2],
)  # fmt: skip


def from_registry(models, n_features, *, fixed_arms):
    """Every registered bandit with its own settings: one that is added is held to all this at once."""
    return {
        name: build_bandit(name, {}, models=models, n_features=n_features)
        for name, kind in REGISTRY.items()
        if kind.traits.fixed_arms is fixed_arms
    }


BANDITS = {
    **from_registry(UNCERTAIN, D, fixed_arms=False),
    # with other settings
    "thompson-clicks": GeneralizedThompson(CLICKS, eta=0.8, uniform=0.1),
    "thompson-gaussian-on-clicks": GeneralizedThompson(CLICKS, loss="gaussian"),
    "posterior-mean-clicks": PosteriorMean(CLICKS, uniform=0.1),
    "thompson-uniform": GeneralizedThompson(MODELS, eta=0.5, uniform=0.2),
    "thompson-square": GeneralizedThompson(MODELS, eta=3.0, loss="square"),
    "thompson-log": GeneralizedThompson(MODELS, eta=2.0, uniform=0.05, loss="log"),
    "thompson-softmax": GeneralizedThompson(MODELS, policy=Softmax(temperature=0.2)),
    "thompson-softmax-uniform": GeneralizedThompson(MODELS, uniform=0.3, policy=Softmax(temperature=0.1)),
    "posterior-mean-bonus": PosteriorMean(MODELS, bonus=0.5),
    "posterior-mean-bonus-clicks": PosteriorMean(CLICKS, uniform=0.2, bonus=1.5),
    "posterior-mean-uniform": PosteriorMean(MODELS, uniform=0.25),
    "linucb-ridge": LinUCB(D, width=1.5, ridge=7.0),
    "exp4p-p-min": EXP4P(
        ClassPolicies(MODELS, Softmax(0.2)), (-1.0, 2.0), horizon=500, p_min=0.03, delta=0.01, eta=0.4
    ),
    "exp4-gamma": EXP4(ClassPolicies(MODELS, Softmax(0.2)), (-1.0, 2.0), gamma=0.3, eta=0.4),
    "exp3-gamma": EXP3(ClassPolicies(MODELS, Softmax(0.2)), (-1.0, 2.0), gamma=0.3, eta=0.4),
    "epoch-greedy-c": EpochGreedy(ClassPolicies(MODELS), c=4.0, reward_range=(-0.5, 1.5)),
    "epoch-greedy-bound": EpochGreedy(ClassPolicies(MODELS, Softmax(0.1)), "bound", c=3.0),
    "iltcb-mu": ILTCB(ClassPolicies(MODELS), mu=0.01, n_kept=5, reward_range=(-1.0, 2.0)),
    "iltcb-epoch": ILTCB(ClassPolicies(MODELS), delta=0.5, mu=0.05, epoch=3, n_kept=40),
    "lints-points": LinTS(D, scale=1.5, ridge=7.0, n_points=64),
    "coarse-fine-ridge": CoarseFineUCB(MODELS.beta.T, width=1.5, ridge=0.7, coarse_ridge=7.0),
    "mucb-epsilon": MUCB(MODELS, n_steps=50, width=0.2, epsilon=0.05),
    "mucb-clicks": MUCB(CLICKS, n_steps=20, width=0.5),
    "personal-classes-mean": PersonalClasses(UNCERTAIN, bonus=0.0, uniform=0.2),
    "learned-classes": LearnedClasses(MODELS, bonus=0.7),
    "learned-classes-personal": LearnedClasses(PEOPLE, uniform=0.2),
    "personal-classes-noise": PersonalClasses(PEOPLE, bonus=1.0),
    "mmts-few-points": MMTS(UNCERTAIN, n_points=8),
}


@pytest.fixture(params=BANDITS, ids=list(BANDITS))
def bandit(request):
    return BANDITS[request.param]


def contexts(rng, n, n_arms=6):
    """Arms of different lengths: on unit arms LinUCB's first choice is a tie that rounding decides."""
    return rng.uniform(-0.5, 0.5, (n, n_arms, D))


def reward_of(decision, rng):
    return float(np.clip(MODELS.beta[1] @ decision.x + 0.1 * rng.standard_normal(), 0, 1))


def after_some_steps(bandit, rng, n=3):
    state = bandit.start()
    for context in contexts(rng, n):
        decision = bandit.choose(state, context, rng)
        state = bandit.update(count_decision(bandit, state, decision), decision, reward_of(decision, rng))
    return state


def test_propensity_is_in_the_distribution_which_sums_to_one(bandit, rng):
    state = after_some_steps(bandit, rng)
    for context in contexts(rng, 50):
        decision = bandit.choose(state, context, rng)
        assert decision.distribution.shape == (6,)
        assert abs(decision.distribution.sum() - 1) < 1e-12
        assert (decision.distribution >= 0).all()
        assert 0 < decision.propensity <= 1 + 1e-12
        assert decision.propensity == decision.distribution[decision.arm]
        np.testing.assert_array_equal(decision.x, context[decision.arm])


def test_propensity_is_the_frequency(bandit, rng):  # 4.5 sd: one false alarm in 150,000 per arm
    state, context, n = after_some_steps(bandit, rng, n=1), contexts(rng, 1)[0], 10_000
    p = bandit.choose(state, context, rng).distribution
    arms = [bandit.choose(state, context, rng).arm for _ in range(n)]
    frequency = np.bincount(arms, minlength=len(p)) / n
    assert (np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12).all()


def test_tied_arms_are_played_alike(bandit, rng):
    state, one = after_some_steps(bandit, rng, n=1), contexts(rng, 1)[0]
    context = one[[0, 1, 2, 0, 1, 2, 3, 0, 4, 5, 2]]
    p = bandit.choose(state, context, rng).distribution
    np.testing.assert_allclose(p[[0, 3, 7]], p[0], atol=1e-12)
    np.testing.assert_allclose(p[[1, 4]], p[1], atol=1e-12)
    np.testing.assert_allclose(p[[2, 5, 10]], p[2], atol=1e-12)


def test_renaming_arms_renames_the_distribution(bandit, rng):
    state, context = after_some_steps(bandit, rng), contexts(rng, 1)[0]
    order = rng.permutation(len(context))
    p = bandit.choose(state, context, np.random.default_rng(1)).distribution
    renamed = bandit.choose(state, context[order], np.random.default_rng(1)).distribution
    np.testing.assert_allclose(renamed, p[order], atol=1e-12)


def test_update_and_choose_leave_their_input_untouched(bandit, rng):
    state, context = after_some_steps(bandit, rng), contexts(rng, 1)[0]
    state_before, context_before = state.copy(), context.copy()
    decision = bandit.choose(state, context, rng)
    x_before, p_before = decision.x.copy(), decision.distribution.copy()
    bandit.update(count_decision(bandit, state, decision), decision, 0.7)
    bandit.update(state, decision, 0.7)
    np.testing.assert_array_equal(state, state_before)
    np.testing.assert_array_equal(context, context_before)
    np.testing.assert_array_equal(decision.x, x_before)
    np.testing.assert_array_equal(decision.distribution, p_before)


def test_rewards_in_any_order_give_the_same_state(bandit, rng):
    start, pairs = bandit.start(), []
    for i, context in enumerate(contexts(rng, 12)):
        if i % 3:
            decision = bandit.choose(start, context, rng)
        else:
            decision = choose_uniformly(bandit, context, rng.random())
        start = count_decision(bandit, start, decision)
        pairs.append((decision, float(rng.random())))
    states = []
    for order in (range(12), rng.permutation(12)):
        state = start
        for i in order:
            state = bandit.update(state, *pairs[i])
        states.append(state)
    np.testing.assert_allclose(states[0], states[1], atol=1e-9)


def test_a_decision_survives_a_database(bandit, rng):
    state = after_some_steps(bandit, rng)
    decision = bandit.choose(state, contexts(rng, 1)[0], rng)
    kept = json.loads(
        json.dumps(
            {
                "arm": decision.arm,
                "propensity": float(decision.propensity),
                "x": decision.x.tolist(),
                "advice": None if decision.advice is None else decision.advice.tolist(),
                "at_random": decision.at_random,
            }
        )
    )
    advice = None if kept["advice"] is None else np.array(kept["advice"])
    loaded = Decision(kept["arm"], kept["propensity"], np.array(kept["x"]), None, kept["at_random"], advice)
    for after in (bandit.update(state, loaded, 0.7), bandit.update(count_decision(bandit, state, loaded), loaded, 0.7)):
        assert after.shape == state.shape
    np.testing.assert_array_equal(
        bandit.update(count_decision(bandit, state, loaded), loaded, 0.7),
        bandit.update(count_decision(bandit, state, decision), decision, 0.7),
    )


def test_the_state_survives_a_database(bandit, rng):
    state = after_some_steps(bandit, rng)
    assert state.ndim == 1
    from_bytes = np.frombuffer(state.tobytes(), dtype=np.float64)
    from_json = np.array(json.loads(json.dumps(state.tolist())))
    for loaded in (from_bytes, from_json):
        decision, again = (
            bandit.choose(s, contexts(np.random.default_rng(5), 1)[0], np.random.default_rng(5))
            for s in (state, loaded)
        )
        assert decision.arm == again.arm
        np.testing.assert_array_equal(decision.distribution, again.distribution)


def test_one_arm_is_always_played(bandit, rng):
    decision = bandit.choose(bandit.start(), contexts(rng, 1, n_arms=1)[0], rng)
    assert decision.arm == 0
    assert decision.propensity == pytest.approx(1)


@pytest.mark.parametrize("name", BANDITS)
def test_a_context_may_be_lists(name):
    bandit, context = BANDITS[name], np.random.default_rng(1).random((5, D))
    decisions = [
        bandit.choose(bandit.start(), given, np.random.default_rng(2)) for given in (context, context.tolist())
    ]
    assert decisions[0].arm == decisions[1].arm
    states = [bandit.update(bandit.start(), decision, 0.5) for decision in decisions]
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize("n_uniform", [0, 2])
def test_serve_plays_as_the_three_verbs_do(bandit, n_uniform):
    rng = np.random.default_rng(7)
    x = contexts(rng, 8 * 9).reshape(8, 9, 6, D)
    rewards = rng.random((8, 9, 6))
    states = np.tile(bandit.start(), (8, 1))
    fast_states, fast = serve(bandit, states, x, rewards, np.random.default_rng(3), n_uniform)
    slow_states, slow = serve_step_by_step(bandit, states, x, rewards, np.random.default_rng(3), n_uniform)
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(fast_states, slow_states, atol=1e-10)
    np.testing.assert_array_equal(states, np.tile(bandit.start(), (8, 1)))


def test_many_rewards_leave_finite_numbers(bandit):
    """200,000 in compiled code, 20,000 in Python: the product of so many weights would overflow long before."""
    rng = np.random.default_rng(0)
    x = contexts(rng, 1000).reshape(1, 1000, 6, D)
    rewards = rng.random((1, 1000, 6))
    state = bandit.start()[None]
    if hasattr(bandit, "serve"):
        for _ in range(200):
            state, arms = serve(bandit, state, x, rewards, rng)
    else:  # a thousand decisions, twenty times over
        decisions = [bandit.choose(state[0], context, rng) for context in x[0]]
        pairs, after = [(d, rewards[0, t, d.arm]) for t, d in enumerate(decisions)], state[0]
        for decision, reward in pairs * 20:
            after = bandit.update(count_decision(bandit, after, decision), decision, reward)
        state, arms = serve(bandit, after[None], x, rewards, rng)
    assert np.isfinite(state).all()
    assert ((arms >= 0) & (arms < 6)).all()
    decision = bandit.choose(state[0], x[0, 0], rng)
    assert np.isfinite(decision.distribution).all()


LEARNING = [name for name in BANDITS if name != "uniform"]


@pytest.mark.parametrize("name", LEARNING)
def test_a_reward_that_is_no_number_is_refused(name, rng):
    bandit = BANDITS[name]
    decision = bandit.choose(bandit.start(), contexts(rng, 1)[0], rng)
    for reward in (float("nan"), float("inf"), 1e200):
        with pytest.raises(InputError, match="reward"):
            bandit.update(bandit.start(), decision, reward)


@pytest.mark.parametrize("name", LEARNING)
def test_a_context_that_is_no_numbers_is_refused(name, rng):
    bandit = BANDITS[name]
    context = contexts(rng, 1)[0]
    context[2, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        bandit.choose(bandit.start(), context, rng)


@pytest.mark.parametrize("shape", [(0, D), (3, D + 1), (3, D - 1), (D,)])
def test_a_context_without_arms_or_of_other_features_is_refused(bandit, shape, rng):
    if isinstance(bandit, Uniform) and shape[0]:
        assert bandit.choose(bandit.start(), np.ones(shape), rng).arm < shape[0]
        return
    with pytest.raises(InputError, match="arm"):
        bandit.choose(bandit.start(), np.ones(shape), rng)


def test_a_state_handed_out_is_ones_own(bandit, rng):
    before = bandit.start().copy()
    mine = bandit.start()
    mine += 1
    np.testing.assert_array_equal(bandit.start(), before)


@pytest.mark.parametrize("name", [name for name in LEARNING if hasattr(BANDITS[name], "serve")])
def test_many_users_with_a_number_that_is_none_are_refused(name, rng):
    bandit, x, rewards = BANDITS[name], contexts(rng, 4).reshape(2, 2, 6, D), rng.random((2, 2, 6))
    states = np.tile(bandit.start(), (2, 1))
    for spoilt_x, spoilt_rewards in ((np.nan, 0.5), (0.5, np.nan)):
        other_x, other_rewards = x.copy(), rewards.copy()
        other_x[1, 1, 2, 0], other_rewards[1, 1, 2] = spoilt_x, spoilt_rewards
        with pytest.raises(InputError):
            serve(bandit, states, other_x, other_rewards, rng)
