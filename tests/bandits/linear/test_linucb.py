from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.bandit import serve
from lcb.bandits.linear.linucb import LinUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.stats import UserStats


def direct(xs, rewards, ridge):
    gram = ridge * np.eye(xs.shape[1]) + xs.T @ xs
    return np.linalg.inv(gram), np.linalg.solve(gram, xs.T @ rewards)


def test_theta_and_the_bonus_are_those_of_the_published_formula():
    rng, bandit = np.random.default_rng(0), LinUCB(3, width=0.8, ridge=2.5)
    xs, rewards, context = rng.standard_normal((40, 3)), rng.standard_normal(40), rng.standard_normal((7, 3))
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    inverse, theta = direct(xs, rewards, 2.5)
    np.testing.assert_allclose(bandit.inverse(state), inverse, atol=1e-12)
    np.testing.assert_allclose(bandit.theta(state), theta, atol=1e-12)
    scores = [theta @ x + 0.8 * np.sqrt(x @ inverse @ x) for x in context]
    assert bandit.choose(state, context, rng).arm == np.argmax(scores)


def test_an_untried_arm_gets_a_smaller_bonus_under_a_larger_ridge():
    context = np.array([[1.0]])
    for ridge in (1.0, 10.0):
        bandit = LinUCB(1, ridge=ridge)
        assert bandit.inverse(bandit.start())[0, 0] == pytest.approx(1 / ridge)
        assert bandit.choose(bandit.start(), context, np.random.default_rng(0)).arm == 0


def test_training_on_a_log_equals_its_rewards_one_by_one():
    rng, bandit = np.random.default_rng(1), LinUCB(4, ridge=0.5)
    xs, rewards = rng.standard_normal((60, 4)), rng.standard_normal(60)
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    stats = UserStats.from_rows(rng.integers(5, size=60), xs, rewards)
    np.testing.assert_allclose(bandit.train(stats), state, atol=1e-10)


def similar_arms(rng, shape):
    """Arms that differ by a thousandth: A has a condition number near 10^11 after a million updates."""
    x = np.ones((*shape, 5)) + 1e-3 * rng.standard_normal((*shape, 5))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def spread_arms(rng, shape):
    x = rng.uniform(-1, 1, (*shape, 5))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("arms", [spread_arms, similar_arms])
def test_a_million_rank_one_updates_stay_at_the_direct_solution(arms):
    rng, bandit, n = np.random.default_rng(0), LinUCB(5, width=0.25), 10_000
    beta = np.array([0.5, -0.2, 0.1, 0.7, 0.0])
    state, gram, moment = bandit.start()[None], np.eye(5), np.zeros(5)
    for _ in range(100):
        context = arms(rng, (1, n, 3))
        rewards = context @ beta + 0.1 * rng.standard_normal((1, n, 3))
        state, chosen = serve(bandit, state, context, rewards, rng)
        x = np.take_along_axis(context[0], chosen[0][:, None, None], axis=1)[:, 0]
        gram += x.T @ x
        moment += x.T @ np.take_along_axis(rewards[0], chosen[0][:, None], axis=1)[:, 0]
    np.testing.assert_allclose(bandit.theta(state[0]), np.linalg.solve(gram, moment), atol=1e-7)
    probes = arms(rng, (200,))
    bonus = np.sqrt(np.einsum("ki,ij,kj->k", probes, bandit.inverse(state[0]), probes))
    np.testing.assert_allclose(
        bonus, np.sqrt(np.einsum("ki,ki->k", probes, np.linalg.solve(gram, probes.T).T)), rtol=1e-5
    )


@pytest.mark.parametrize("setting", [{"n_features": 0}, {"width": -1.0}, {"ridge": 0.0}, {"ridge": np.nan}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        LinUCB(**{"n_features": 2, **setting})


@pytest.mark.parametrize("largest", [1e3, 1e9])
def test_features_of_very_different_sizes_leave_a_state_that_decides(largest):
    """By rounding A^-1 stops being positive definite there: a spread may come out below 0, or cancel with 1."""
    rng, bandit = np.random.default_rng(0), LinUCB(3, width=0.5)
    values = np.array([0.0, 1.0, -1.0, 1e-9, largest, -largest])
    for _ in range(300):
        state = bandit.start()
        for _ in range(30):
            context = rng.choice(values, (4, 3))
            state = bandit.update(state, bandit.choose(state, context, rng), rng.choice([-1.0, 0.0, 1.0]))
        assert np.isfinite(state).all()
        contexts, rewards = rng.choice(values, (1, 30, 4, 3)), rng.choice([-1.0, 0.0, 1.0], (1, 30, 4))
        assert np.isfinite(serve(bandit, bandit.start()[None], contexts, rewards, rng)[0]).all()
