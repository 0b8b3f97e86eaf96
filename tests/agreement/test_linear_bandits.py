"""LinUCB and LinTS beside two other libraries, on the same stream of arms and rewards.

coba      one weight vector for all arms, arms' features per decision, as ours; ridge 1; LinTS's v is scale^2
MABWiser  one weight vector per arm.  A single arm that is shown every arm's features is our LinUCB.  Its LinTS draws
          anew for every row, so there ours takes its form: each arm's features in a block of their own.  One model per
          arm, each with a seed: the arms of one model copy one generator, draw the same noise, and the first wins.
"""

from __future__ import annotations

import numpy as np
import pytest
from coba.learners import LinTSLearner, LinUCBLearner

from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB

N_STEPS, N_ARMS, D = 300, 20, 10


def stream(n_steps=N_STEPS, n_arms=N_ARMS, d=D, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n_steps, n_arms, d))
    return contexts, contexts @ rng.standard_normal(d) + 0.3 * rng.standard_normal((n_steps, n_arms)), rng


def actions(context):
    """Arms as coba takes them."""
    return [tuple(x) for x in context.tolist()]


def one_arm(policy, d, seed=1, **settings):
    """MABWiser with a single arm; a first row of zeros makes it invert its matrix, also where the ridge is not 1."""
    from mabwiser.mab import MAB, LearningPolicy  # brings scikit-learn and pandas, which only this process needs

    model = MAB([0], getattr(LearningPolicy, policy)(**settings), seed=seed)
    model.fit(decisions=[0], rewards=[0.0], contexts=np.zeros((1, d)))
    return model


def ridge_of(model):
    return model._imp.arm_to_model[0]


def near(frequency, p, n):  # 4.5 sd: one false alarm in 150,000 per arm; .002 for the points standing for a Gaussian
    return (np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / n) + 0.002).all()


def test_linucb_plays_as_coba_does_and_knows_the_same():
    bandit, learner = LinUCB(D, width=0.5), LinUCBLearner(alpha=0.5, features=["a"])
    contexts, rewards, rng = stream()
    state = bandit.start()
    for context, reward in zip(contexts, rewards, strict=True):
        decision, offered = bandit.choose(state, context, rng), actions(context)
        played, probability = learner.predict(None, offered)
        assert offered.index(played) == decision.arm
        assert probability == decision.propensity == 1
        learner.learn(None, played, reward[decision.arm], probability)
        state = bandit.update(state, decision, reward[decision.arm])
        np.testing.assert_allclose(bandit.theta(state), learner._theta, atol=1e-8)
        np.testing.assert_allclose(bandit.inverse(state), learner._A_inv, atol=1e-8)


@pytest.mark.parametrize(("width", "ridge"), [(0.5, 1.0), (1.3, 2.5)])
def test_linucb_scores_arms_as_mabwiser_does(width, ridge):
    bandit = LinUCB(D, width, ridge)
    model = one_arm("LinUCB", D, alpha=width, l2_lambda=ridge)
    contexts, rewards, rng = stream(seed=1)
    state = bandit.start()
    for context, reward in zip(contexts, rewards, strict=True):
        scores = np.array([row[0] for row in model.predict_expectations(context)])
        spread = np.einsum("ki,ij,kj->k", context, bandit.inverse(state), context)
        np.testing.assert_allclose(context @ bandit.theta(state) + width * np.sqrt(spread), scores, atol=1e-8)
        decision = bandit.choose(state, context, rng)
        assert decision.arm == scores.argmax()
        model.partial_fit([0], [reward[decision.arm]], context[decision.arm][None])
        state = bandit.update(state, decision, reward[decision.arm])
    np.testing.assert_allclose(bandit.theta(state), ridge_of(model).beta, atol=1e-8)
    np.testing.assert_allclose(bandit.inverse(state), ridge_of(model).A_inv, atol=1e-8)


def test_lints_has_coba_s_posterior_and_plays_its_arms_as_often():
    d, n_arms, n = 5, 8, 2000
    bandit, learner = LinTS(d, scale=0.6, n_points=8192), LinTSLearner(v=0.6**2, features=["a"])
    contexts, rewards, rng = stream(60, n_arms, d, seed=2)
    state = bandit.start()
    for t, (context, reward) in enumerate(zip(contexts, rewards, strict=True)):
        decision, offered = bandit.choose(state, context, rng), actions(context)
        if t in (0, 10):
            played = [offered.index(learner.predict(None, offered)[0]) for _ in range(n)]
            assert near(np.bincount(played, minlength=n_arms) / n, decision.distribution, n)
        learner.learn(None, offered[decision.arm], reward[decision.arm], decision.propensity)
        state = bandit.update(state, decision, reward[decision.arm])
        np.testing.assert_allclose(bandit.theta(state), learner._mu_hat, atol=1e-8)
        np.testing.assert_allclose(bandit.covariance(state), learner._v * learner._B_inv, atol=1e-8)


@pytest.mark.parametrize(("scale", "ridge"), [(0.5, 1.0), (0.8, 2.5)])
def test_lints_has_mabwiser_s_posterior_and_plays_its_arms_as_often(scale, ridge):
    """Three arms with two weights each: in ours six features, of which an arm has two and zeros."""
    n_arms, own, n = 3, 2, 20_000
    bandit = LinTS(n_arms * own, scale, ridge, n_points=8192)
    models = [one_arm("LinTS", own, seed=arm, alpha=scale, l2_lambda=ridge) for arm in range(n_arms)]
    rng, state = np.random.default_rng(3), bandit.start()
    beta = rng.standard_normal((n_arms, own))
    for t in range(60):
        x = rng.uniform(-1, 1, own)
        decision = bandit.choose(state, np.kron(np.eye(n_arms), x), rng)
        if t in (0, 5, 30):
            drawn = [[row[0] for row in model.predict_expectations(np.tile(x, (n, 1)))] for model in models]
            frequency = np.bincount(np.argmax(drawn, axis=0), minlength=n_arms) / n
            assert near(frequency, decision.distribution, n)
        reward = beta[decision.arm] @ x + 0.3 * rng.standard_normal()
        models[decision.arm].partial_fit([0], [reward], x[None])
        state = bandit.update(state, decision, reward)
        theta, covariance = bandit.theta(state), bandit.covariance(state)
        for arm in range(n_arms):
            block = slice(arm * own, (arm + 1) * own)
            np.testing.assert_allclose(theta[block], ridge_of(models[arm]).beta, atol=1e-8)
            np.testing.assert_allclose(covariance[block, block], scale**2 * ridge_of(models[arm]).A_inv, atol=1e-8)
