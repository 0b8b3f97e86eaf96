from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.bandit import serve, serve_step_by_step
from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.bandits.linear.linucb import LinUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.stats import UserStats


def rows(rng, n, d):
    return rng.standard_normal((n, d)), rng.standard_normal(n)


def after(bandit, xs, rewards):
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    return state


def published(xs, rewards, subspace, ridge, coarse_ridge, width, context):
    """Algorithm 1, line by line, with the rows seen as columns of X; the scores of the arms, and w."""
    d, k = subspace.shape
    x_t, y_t = xs.T, rewards
    x_coarse = subspace.T @ x_t
    m_coarse = coarse_ridge * np.eye(k) + x_coarse @ x_coarse.T
    w_coarse = np.linalg.inv(m_coarse) @ x_coarse @ y_t
    m = ridge * np.eye(d) + x_t @ x_t.T
    w = np.linalg.inv(m) @ (x_t @ y_t + ridge * subspace @ w_coarse)
    scores = []
    for x in context:
        seen = subspace.T @ np.linalg.inv(m) @ x
        fine = width * np.sqrt(x @ np.linalg.inv(m) @ x)
        coarse = width * ridge * np.sqrt(seen @ np.linalg.inv(m_coarse) @ seen)
        scores.append(w @ x + fine + coarse)
    return np.array(scores), w, w_coarse


@pytest.mark.parametrize("n", [0, 1, 30])
def test_it_is_the_published_algorithm(n):
    rng = np.random.default_rng(n)
    subspace = rng.standard_normal((5, 2))
    bandit = CoarseFineUCB(subspace, width=0.8, ridge=1.7, coarse_ridge=0.6)
    xs, rewards = rows(rng, n, 5)
    state = after(bandit, xs, rewards)
    for context in rng.standard_normal((50, 6, 5)):
        scores, w, w_coarse = published(xs, rewards, subspace, 1.7, 0.6, 0.8, context)
        decision = bandit.choose(state, context, rng)
        assert decision.arm == scores.argmax()
        assert decision.propensity == 1
    np.testing.assert_allclose(bandit.theta(state), w, atol=1e-10)
    np.testing.assert_allclose(bandit.coarse(state), w_coarse, atol=1e-10)


def test_the_error_of_the_estimate_is_what_the_two_bonuses_bound():
    """Without noise and inside the subspace, w - w* = ridge M^-1 U (w~ - w~*), and w~ - w~* = -coarse_ridge M~^-1 w~*.

    So |x . (w - w*)| is at most sqrt(coarse_ridge) |w~*| times the coarse root: the second bonus.
    """
    rng = np.random.default_rng(1)
    subspace, coarse = rng.standard_normal((6, 2)), np.array([0.7, -0.4])
    bandit = CoarseFineUCB(subspace, ridge=2.0, coarse_ridge=0.5)
    xs = rng.standard_normal((9, 6))
    state = after(bandit, xs, xs @ subspace @ coarse)
    error = bandit.theta(state) - subspace @ coarse
    m = 2.0 * np.eye(6) + xs.T @ xs
    m_coarse = 0.5 * np.eye(2) + subspace.T @ xs.T @ xs @ subspace
    np.testing.assert_allclose(
        error, -2.0 * 0.5 * np.linalg.inv(m) @ subspace @ np.linalg.inv(m_coarse) @ coarse, atol=1e-12
    )
    for x in rng.standard_normal((200, 6)):
        seen = subspace.T @ np.linalg.inv(m) @ x
        root = 2.0 * np.sqrt(seen @ np.linalg.inv(m_coarse) @ seen)
        assert abs(x @ error) <= np.sqrt(0.5) * np.linalg.norm(coarse) * root + 1e-12


def test_an_empty_subspace_makes_it_linucb():
    rng = np.random.default_rng(2)
    bandit, linucb = CoarseFineUCB(np.zeros((4, 2)), width=0.5, ridge=1.3), LinUCB(4, width=0.5, ridge=1.3)
    xs, rewards = rows(rng, 20, 4)
    state, other = after(bandit, xs, rewards), after(linucb, xs, rewards)
    np.testing.assert_allclose(bandit.theta(state), linucb.theta(other), atol=1e-12)
    for context in rng.standard_normal((100, 5, 4)):
        assert bandit.choose(state, context, rng).arm == linucb.choose(other, context, rng).arm


def test_the_whole_space_with_no_room_beside_it_makes_it_linucb():
    rng = np.random.default_rng(3)
    bandit = CoarseFineUCB(np.eye(4), width=0.5, ridge=1e9, coarse_ridge=1.3)
    linucb = LinUCB(4, width=0.5, ridge=1.3)
    xs, rewards = rows(rng, 20, 4)
    state, other = after(bandit, xs, rewards), after(linucb, xs, rewards)
    np.testing.assert_allclose(bandit.theta(state), linucb.theta(other), atol=1e-6)
    for context in rng.standard_normal((100, 5, 4)):
        assert bandit.choose(state, context, rng).arm == linucb.choose(other, context, rng).arm


def test_which_basis_spans_the_subspace_does_not_matter():
    rng = np.random.default_rng(4)
    subspace = np.linalg.qr(rng.standard_normal((5, 3)))[0]
    turned = subspace @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    xs, rewards = rows(rng, 10, 5)
    one, other = CoarseFineUCB(subspace), CoarseFineUCB(turned)
    np.testing.assert_allclose(one.theta(after(one, xs, rewards)), other.theta(after(other, xs, rewards)), atol=1e-12)
    for context in rng.standard_normal((100, 5, 5)):
        arms = {b.choose(after(b, xs, rewards), context, rng).arm for b in (one, other)}
        assert len(arms) == 1


def test_training_on_a_log_equals_its_rewards_one_by_one():
    rng = np.random.default_rng(5)
    bandit, (xs, rewards) = CoarseFineUCB(rng.standard_normal((4, 2)), ridge=0.5), rows(rng, 60, 4)
    stats = UserStats.from_rows(rng.integers(5, size=60), xs, rewards)
    np.testing.assert_allclose(bandit.train(stats), after(bandit, xs, rewards), atol=1e-12)


def test_compiled_and_step_by_step_agree_over_a_long_run():
    rng = np.random.default_rng(6)
    bandit = CoarseFineUCB(rng.standard_normal((10, 4)), width=0.3, ridge=2.0, coarse_ridge=0.4)
    context = rng.uniform(-1, 1, (2, 300, 20, 10))
    rewards = context @ np.linspace(0, 1, 10) + 0.1 * rng.standard_normal((2, 300, 20))
    states = np.tile(bandit.start(), (2, 1))
    fast_states, fast = serve(bandit, states, context, rewards, np.random.default_rng(8))
    slow_states, slow = serve_step_by_step(bandit, states, context, rewards, np.random.default_rng(8))
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(fast_states, slow_states, atol=1e-9)


@pytest.mark.parametrize("size", [1e8, 1e20, 1e100])
def test_features_beside_which_the_ridge_is_lost_do_not_stop_later_decisions(size):
    bandit, rng = CoarseFineUCB(np.eye(3)), np.random.default_rng(0)
    state = bandit.update(bandit.start(), Decision(0, 1.0, np.full(3, size)), 1.0)
    for _ in range(20):
        decision = bandit.choose(state, rng.uniform(-1, 1, (5, 3)), rng)
        assert 0 < decision.propensity <= 1
        state = bandit.update(state, decision, 1.0)


def test_features_that_cancel_in_the_subspace_do_not_stop_later_decisions():
    rng = np.random.default_rng(1)
    for _ in range(200):
        subspace, x = rng.standard_normal((3, 2)), rng.standard_normal(3)
        x -= subspace @ np.linalg.lstsq(subspace, x)[0]  # what is left of the coarse sum is rounding
        bandit = CoarseFineUCB(subspace)
        state = bandit.update(bandit.start(), Decision(0, 1.0, 1e9 * x), 1.0)
        assert bandit.choose(state, rng.uniform(-1, 1, (5, 3)), rng).propensity > 0


def test_a_simulation_with_features_beside_which_the_ridge_is_lost_is_refused():
    bandit, x = CoarseFineUCB(np.eye(2)), np.full((1, 2), 1e20)
    state = bandit.update(bandit.start(), Decision(0, 1.0, x[0]), 1.0)
    with pytest.raises(InputError, match="so large that adding the ridge changes nothing"):
        serve(bandit, state[None], x[None, None], np.ones((1, 1, 1)), np.random.default_rng(0))


@pytest.mark.parametrize(
    "setting",
    [
        {"subspace": np.eye(2)[0]}, {"subspace": np.ones((2, 3))}, {"subspace": np.ones((2, 0))},
        {"subspace": np.full((2, 1), np.nan)}, {"width": -1.0}, {"ridge": 0.0}, {"coarse_ridge": np.inf},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        CoarseFineUCB(**{"subspace": np.eye(2), **setting})
