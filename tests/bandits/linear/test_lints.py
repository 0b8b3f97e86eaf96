from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from lcb.bandits.bandit import serve, serve_step_by_step
from lcb.bandits.linear.lints import LinTS, _points
from lcb.bandits.linear.linucb import LinUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.stats import UserStats


def unit_arms(rng, shape):
    x = rng.uniform(-1, 1, shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def rows(rng, n, d):
    xs = unit_arms(rng, (n, d))
    return xs, xs @ np.linspace(0, 1, d) + 0.1 * rng.standard_normal(n)


def train(bandit, xs, rewards):
    state = bandit.start()
    for x, reward in zip(xs, rewards, strict=True):
        state = bandit.update(state, Decision(0, 1.0, x), reward)
    return state


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def gaussian_shares(mean, covariance, context, n_draws, rng):
    """How often each arm is best when theta is drawn from the Gaussian itself."""
    thetas = rng.multivariate_normal(mean, covariance, n_draws, method="cholesky")
    return np.bincount((thetas @ context.T).argmax(axis=1), minlength=len(context)) / n_draws


def test_mean_and_covariance_are_those_of_the_published_algorithm():
    rng, bandit = np.random.default_rng(0), LinTS(3, scale=0.8, ridge=2.5)
    xs, rewards = rows(rng, 40, 3)
    b_matrix, f = 2.5 * np.eye(3), np.zeros(3)  # Algorithm 1: B = B + b b', f = f + b r, mu = B^-1 f
    for x, reward in zip(xs, rewards, strict=True):
        b_matrix, f = b_matrix + np.outer(x, x), f + x * reward
    state = train(bandit, xs, rewards)
    np.testing.assert_allclose(bandit.theta(state), np.linalg.inv(b_matrix) @ f, atol=1e-12)
    np.testing.assert_allclose(bandit.covariance(state), 0.8**2 * np.linalg.inv(b_matrix), atol=1e-12)


@pytest.mark.parametrize(("d", "n_points"), [(1, 64), (3, 64), (16, 64), (10, 512), (128, 512), (256, 1024)])
def test_the_points_have_mean_0_and_covariance_1(d, n_points):
    z, ones = _points(d, n_points)[:-1], _points(d, n_points)[-1]
    np.testing.assert_allclose(z.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(z @ z.T / n_points, np.eye(d), atol=1e-9)
    np.testing.assert_array_equal(ones, 1)


def test_points_of_one_feature_are_evenly_spaced_quantiles():
    quantiles = ndtri((np.arange(64) + 0.5) / 64)
    np.testing.assert_allclose(np.sort(_points(1, 64)[0]), quantiles / quantiles.std(), atol=1e-12)


@pytest.mark.parametrize("n_rewards", [0, 30])
def test_an_arm_s_probability_is_the_share_of_points_under_which_it_is_best(n_rewards):
    """Point by point: theta_i = theta + scale L z_i with L L' = A^-1, and the arms by their dot products."""
    rng, bandit = np.random.default_rng(1), LinTS(4, scale=0.3, ridge=1.5, n_points=128)
    state, context = train(bandit, *rows(rng, n_rewards, 4)), rng.standard_normal((7, 4))
    matrix = state.reshape(4, 5)
    upper = np.linalg.inv(np.linalg.cholesky(matrix[:, :4])).T  # C'^-1 with C C' = A
    wins = np.zeros(7)
    for z in _points(4, 128)[:-1].T:
        theta = np.linalg.inv(matrix[:, :4]) @ matrix[:, 4] + 0.3 * upper @ z
        wins[np.argmax([theta @ x for x in context])] += 1
    decision = bandit.choose(state, context, rng)
    np.testing.assert_array_equal(decision.distribution, wins / 128)
    assert decision.propensity == wins[decision.arm] / 128


def test_the_points_together_have_the_posterior_mean_and_covariance():
    rng, bandit = np.random.default_rng(2), LinTS(5, scale=0.7, ridge=0.4)
    state = train(bandit, *rows(rng, 25, 5))
    thetas = bandit._shape(state) @ _points(5, 512)
    np.testing.assert_allclose(thetas.mean(axis=1), bandit.theta(state), atol=1e-12)
    np.testing.assert_allclose(np.cov(thetas, bias=True), bandit.covariance(state), atol=1e-12)


def test_one_uniform_number_chooses_the_point():
    """The k-th of 64 equal parts of [0, 1) plays what the k-th point plays."""
    rng, bandit = np.random.default_rng(3), LinTS(3, scale=0.5, n_points=64)
    state, context = train(bandit, *rows(rng, 5, 3)), unit_arms(rng, (6, 3))
    best = (context @ bandit._shape(state) @ _points(3, 64)).argmax(axis=0)

    class Fixed:
        def __init__(self, value):
            self.value = value

        def random(self):
            return self.value

    for k in range(64):
        assert bandit.choose(state, context, Fixed((k + 0.3) / 64)).arm == best[k]


@pytest.mark.parametrize(("n_rewards", "largest"), [(0, 0.06), (20, 0.04), (200, 0.01)])
def test_arms_are_played_nearly_as_often_as_under_a_gaussian(n_rewards, largest):
    """20 arms, 10 features; 100,000 draws of the Gaussian are themselves within 0.006 of it."""
    rng, bandit, distances = np.random.default_rng(0), LinTS(10, scale=0.25), []
    for _ in range(8):
        state = train(bandit, *rows(rng, n_rewards, 10))
        context = unit_arms(rng, (20, 10))
        exact = gaussian_shares(bandit.theta(state), bandit.covariance(state), context, 100_000, rng)
        distances.append(total_variation(bandit.choose(state, context, rng).distribution, exact))
    assert np.mean(distances) < largest


def test_more_points_come_closer_to_the_gaussian():
    """Of two arms, the first is best with probability Phi(difference of means / its deviation)."""
    errors = {}
    for n_points in (64, 512, 4096):
        rng, bandit = np.random.default_rng(4), LinTS(6, scale=0.5, n_points=n_points)
        found = []
        for _ in range(50):
            state, context = train(bandit, *rows(rng, 10, 6)), unit_arms(rng, (2, 6))
            gap = context[0] - context[1]
            exact = ndtr(gap @ bandit.theta(state) / np.sqrt(gap @ bandit.covariance(state) @ gap))
            found.append(abs(bandit.choose(state, context, rng).distribution[0] - exact))
        errors[n_points] = np.mean(found)
    assert errors[64] < 0.04
    assert errors[512] < 0.01
    assert errors[4096] < 0.003


def test_an_arm_less_probable_than_a_point_is_never_played():
    """theta is 1 with a deviation of .3 / sqrt(2): it is negative with probability 1e-6, and 512 points miss that."""
    bandit, context = LinTS(1, scale=0.3), np.array([[1.0], [-1.0]])
    state = bandit.update(bandit.start(), Decision(0, 1.0, context[0]), 2.0)
    np.testing.assert_array_equal(bandit.choose(state, context, np.random.default_rng(0)).distribution, [1, 0])


def test_equal_arms_share_whatever_their_place_in_the_matrix_product():
    """BLAS rounds rows differently by their place: copies of an arm of 17 features were told apart."""
    rng, bandit = np.random.default_rng(0), LinTS(17)
    for _ in range(20):
        state, context = train(bandit, *rows(rng, 5, 17)), unit_arms(rng, (5, 17))
        p = bandit.choose(state, np.tile(context, (3, 1)), rng).distribution
        np.testing.assert_allclose(p, np.tile(p[:5], 3), atol=1e-12)


@pytest.mark.parametrize("play", [serve, serve_step_by_step])
def test_equal_arms_are_drawn_alike(play):  # 4.5 sd: one false alarm in 150,000 per arm
    rng, bandit, n = np.random.default_rng(0), LinTS(3, scale=0.5), 6000
    context = np.tile(unit_arms(rng, (2, 3)), (2, 1))
    states, contexts = np.tile(bandit.start(), (n, 1)), np.broadcast_to(context, (n, 1, 4, 3)).copy()
    p = bandit.choose(bandit.start(), context, rng).distribution
    _, arms = play(bandit, states, contexts, np.zeros((n, 1, 4)), rng)
    frequency = np.bincount(arms[:, 0], minlength=4) / n
    assert (np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / n)).all()
    np.testing.assert_allclose(p[:2], p[2:], atol=1e-12)


def test_without_scale_it_is_linucb_without_width():
    rng, bandit, greedy = np.random.default_rng(5), LinTS(3, scale=0.0), LinUCB(3, width=0.0)
    xs, rewards = rows(rng, 20, 3)
    state, other = train(bandit, xs, rewards), train(greedy, xs, rewards)
    for context in unit_arms(rng, (30, 5, 3)):
        decision = bandit.choose(state, context, rng)
        assert decision.arm == greedy.choose(other, context, rng).arm
        assert decision.propensity == 1
    nothing_known = bandit.choose(bandit.start(), unit_arms(rng, (4, 3)), rng)
    np.testing.assert_allclose(nothing_known.distribution, 0.25)


def test_training_on_a_log_equals_its_rewards_one_by_one():
    rng, bandit = np.random.default_rng(6), LinTS(4, ridge=0.5)
    xs, rewards = rows(rng, 60, 4)
    stats = UserStats.from_rows(rng.integers(5, size=60), xs, rewards)
    np.testing.assert_allclose(bandit.train(stats), train(bandit, xs, rewards), atol=1e-12)


def similar_arms(rng, shape):
    """Arms that differ by a thousandth: A's condition number passes 10^5."""
    x = np.ones(shape) + 1e-3 * rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("arms", [unit_arms, similar_arms])
def test_a_million_updates_stay_at_the_direct_solution(arms):
    rng, bandit, n = np.random.default_rng(0), LinTS(5), 10_000
    beta = np.array([0.5, -0.2, 0.1, 0.7, 0.0])
    state, gram, moment = bandit.start()[None], np.eye(5, dtype=np.longdouble), np.zeros(5, np.longdouble)
    for _ in range(100):
        context = arms(rng, (1, n, 3, 5))
        rewards = context @ beta + 0.1 * rng.standard_normal((1, n, 3))
        state, chosen = serve(bandit, state, context, rewards, rng)
        x = np.take_along_axis(context[0], chosen[0][:, None, None], axis=1)[:, 0].astype(np.longdouble)
        gram += x.T @ x
        moment += x.T @ np.take_along_axis(rewards[0], chosen[0][:, None], axis=1)[:, 0]
    gram, moment = gram.astype(float), moment.astype(float)
    np.testing.assert_allclose(bandit.theta(state[0]), np.linalg.solve(gram, moment), atol=1e-9)
    probes = arms(rng, (200, 5))
    spread = np.einsum("ki,ij,kj->k", probes, bandit.covariance(state[0]), probes)
    np.testing.assert_allclose(
        spread, 0.1**2 * np.einsum("ki,ki->k", probes, np.linalg.solve(gram, probes.T).T), rtol=1e-8
    )


def test_compiled_and_step_by_step_agree_over_a_long_run():
    rng, bandit = np.random.default_rng(7), LinTS(10, scale=0.25)
    context = unit_arms(rng, (2, 400, 20, 10))
    rewards = context @ np.linspace(0, 1, 10) + 0.1 * rng.standard_normal((2, 400, 20))
    states = np.tile(bandit.start(), (2, 1))
    fast_states, fast = serve(bandit, states, context, rewards, np.random.default_rng(8))
    slow_states, slow = serve_step_by_step(bandit, states, context, rewards, np.random.default_rng(8))
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(fast_states, slow_states, atol=1e-9)


@pytest.mark.parametrize("size", [1e8, 1e20, 1e100])
def test_features_beside_which_the_ridge_is_lost_do_not_stop_later_decisions(size):
    bandit, rng = LinTS(3), np.random.default_rng(0)
    state = bandit.update(bandit.start(), Decision(0, 1.0, np.full(3, size)), 1.0)
    for _ in range(20):
        decision = bandit.choose(state, unit_arms(rng, (5, 3)), rng)
        assert 0 < decision.propensity <= 1
        state = bandit.update(state, decision, 1.0)


def test_a_simulation_with_features_beside_which_the_ridge_is_lost_is_refused():
    bandit, x = LinTS(2), np.full((1, 2), 1e20)
    state = bandit.update(bandit.start(), Decision(0, 1.0, x[0]), 1.0)
    with pytest.raises(InputError, match="so large that adding the ridge changes nothing"):
        serve(bandit, state[None], x[None, None], np.ones((1, 1, 1)), np.random.default_rng(0))


@pytest.mark.parametrize(
    "setting",
    [
        {"n_features": 0}, {"scale": -1.0}, {"scale": np.inf}, {"ridge": 0.0}, {"ridge": np.nan},
        {"n_points": 32}, {"n_points": 100}, {"n_points": 128, "n_features": 33},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        LinTS(**{"n_features": 2, **setting})
