from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes
from lcb.recommenders.cofine import CofineUCB, fit_profiles, learn_subspace
from lcb.recommenders.individual import Individual
from lcb.recommenders.recommender import serve_step_by_step
from lcb.stats import UserStats


def some_users(n_users=12, n_steps=6, n_arms=5, d=4, seed=0):
    """Arms of different lengths: on unit arms a first choice is a tie that rounding decides."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (n_users, n_steps, n_arms, d)), rng.random((n_users, n_steps, n_arms))


def past(n_users=30, n_rows=8, d=4, seed=3):
    rng = np.random.default_rng(seed)
    names = np.repeat(np.arange(n_users), n_rows)
    return UserStats.from_rows(names, rng.uniform(-0.5, 0.5, (len(names), d)), rng.random(len(names)))


def ridge_weights(xs, rewards, ridge):
    return np.linalg.inv(ridge * np.eye(xs.shape[1]) + xs.T @ xs) @ xs.T @ rewards


def published_subspace(w, k):
    """LearnU, W (d, users): U_0 the first k left singular vectors, Omega = k sqrt(W_0 W_0') / trace, U_0 Omega^1/2."""
    u_0 = np.linalg.svd(w)[0][:, :k]
    values, vectors = np.linalg.eigh(u_0.T @ w @ w.T @ u_0)
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    omega = k * root / np.trace(root)
    values, vectors = np.linalg.eigh(omega)
    return u_0 @ vectors @ np.diag(np.sqrt(values)) @ vectors.T


def naive(contexts, rewards, k, width, ridge, coarse_ridge, n_warmup, every):
    """The whole of it from lists of rows: the first users by a LinUCB each, then LearnU and Algorithm 1."""
    d, arms, seen, subspace = contexts.shape[3], [], [], None
    for u in range(len(contexts)):
        if u >= n_warmup and (u - n_warmup) % every == 0:
            weights = np.array([ridge_weights(np.array(x), np.array(r), 1.0) for x, r in seen]).T
            subspace = published_subspace(weights, k)
        xs, rs = [], []
        for t in range(contexts.shape[1]):
            x_t, y_t = np.array(xs).reshape(-1, d).T, np.array(rs)
            m = (1.0 if subspace is None else ridge) * np.eye(d) + x_t @ x_t.T
            if subspace is None:
                target, coarse_gram = x_t @ y_t, None
            else:
                coarse_gram = coarse_ridge * np.eye(k) + subspace.T @ x_t @ x_t.T @ subspace
                target = x_t @ y_t + ridge * subspace @ np.linalg.inv(coarse_gram) @ subspace.T @ x_t @ y_t
            scores = []
            for x in contexts[u, t]:
                bonus = np.sqrt(x @ np.linalg.inv(m) @ x)
                if subspace is not None:
                    through = subspace.T @ np.linalg.inv(m) @ x
                    bonus += ridge * np.sqrt(through @ np.linalg.inv(coarse_gram) @ through)
                scores.append(x @ np.linalg.inv(m) @ target + (0.4 if subspace is None else width) * bonus)
            arm = int(np.argmax(scores))
            xs.append(contexts[u, t, arm])
            rs.append(rewards[u, t, arm])
            arms.append(arm)
        seen.append((xs, rs))
    return np.array(arms).reshape(contexts.shape[:2])


def test_it_is_the_published_algorithm_from_the_first_user_on():
    contexts, rewards = some_users(n_users=15)
    recommender = CofineUCB(
        4, 2, width=0.3, ridge=1.6, coarse_ridge=0.7, n_warmup_users=5, retrain_every=4,
        warmup="individual", warmup_bandit=LinUCB(4, width=0.4),
    )  # fmt: skip
    arms = recommender.serve(range(15), contexts, rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(arms, naive(contexts, rewards, 2, 0.3, 1.6, 0.7, 5, 4))
    assert len(recommender.subspaces) == 3


def test_the_subspace_is_that_of_the_publication():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((20, 5)) * [3, 2, 1, 0.5, 0.1]
    for k in (1, 3, 5):
        ours, published = learn_subspace(weights, k), published_subspace(weights.T, k)
        np.testing.assert_allclose(ours @ ours.T, published @ published.T, atol=1e-10)
        assert np.trace(ours @ ours.T) == pytest.approx(k)


def test_no_other_shape_of_the_same_trace_makes_past_users_coordinates_smaller():
    rng = np.random.default_rng(1)
    weights, k = rng.standard_normal((30, 4)) * [3, 2, 1, 0.5], 3
    directions = np.linalg.svd(weights.T)[0][:, :k]

    def size(omega):
        inside = directions.T @ weights.T
        return np.trace(inside.T @ np.linalg.inv(omega) @ inside)

    ours = learn_subspace(weights, k)
    smallest = size(directions.T @ ours @ ours.T @ directions)
    for _ in range(300):
        root = rng.standard_normal((k, k))
        omega = root @ root.T
        assert size(k * omega / np.trace(omega)) >= smallest - 1e-9


def test_users_who_all_want_nothing_give_a_subspace_of_unit_directions():
    subspace = learn_subspace(np.zeros((7, 4)), 2)
    np.testing.assert_allclose(subspace.T @ subspace, np.eye(2), atol=1e-12)


def test_fewer_past_users_than_dimensions_give_a_smaller_subspace():
    assert learn_subspace(np.array([[1.0, 2.0, 3.0]]), 2).shape == (3, 1)


def test_profiles_are_each_user_s_own_ridge_regression():
    rng = np.random.default_rng(2)
    names, xs, rewards = np.repeat([0, 1, 2], [5, 1, 9]), rng.standard_normal((15, 3)), rng.standard_normal(15)
    found = fit_profiles(UserStats.from_rows(names, xs, rewards), 0.7)
    for u in range(3):
        np.testing.assert_allclose(found[u], ridge_weights(xs[names == u], rewards[names == u], 0.7), atol=1e-10)


def test_a_history_takes_the_place_of_the_first_users():
    contexts, rewards = some_users()
    recommender = CofineUCB(4, 2, history=past(), retrain_every=None)
    expected = learn_subspace(fit_profiles(past(), 1.0), 2)
    np.testing.assert_array_equal(recommender.subspaces[0], expected)
    recommender.serve(range(12), contexts, rewards, np.random.default_rng(0))
    assert len(recommender.subspaces) == 1
    assert all(recommender.version_of(u) == 0 for u in range(12))


def test_users_of_the_history_and_new_users_of_the_same_name_are_two():
    contexts, rewards = some_users()
    subspaces = []
    for names in (range(12), [f"new {u}" for u in range(12)]):
        recommender = CofineUCB(4, 2, history=past(), retrain_every=5)
        recommender.serve(names, contexts, rewards, np.random.default_rng(0))
        subspaces.append(recommender.subspaces[-1])
        assert len(recommender.subspaces) == 3
    np.testing.assert_array_equal(*subspaces)


def test_a_user_keeps_the_subspace_first_met():
    contexts, rewards = some_users()
    recommender, rng = CofineUCB(4, 2, n_warmup_users=4, retrain_every=4), np.random.default_rng(0)
    serve_step_by_step(recommender, range(12), contexts, rewards, rng)
    assert [recommender.version_of(u) for u in range(12)] == [None] * 4 + [0] * 4 + [1] * 4
    assert recommender.state_of(0) is None
    before = recommender.state_of(5).copy()
    own = CoarseFineUCB(recommender.subspaces[0])
    for context in some_users(n_users=40, seed=8)[0][:, 0]:
        assert recommender.choose(5, context, rng).arm == own.choose(before, context, rng).arm
    decision = recommender.choose(5, contexts[5, 0], rng)
    recommender.update(5, decision, 1.0)
    assert recommender.version_of(5) == 0
    assert not np.array_equal(recommender.state_of(5), before)
    other = recommender.state_of(6).copy()
    recommender.update(0, recommender.choose(0, contexts[0, 0], rng), 1.0)
    np.testing.assert_array_equal(recommender.state_of(6), other)


def test_the_first_users_go_on_until_enough_have_given_a_reward():
    contexts, rewards = some_users()
    recommender, rng = CofineUCB(4, 2, n_warmup_users=3), np.random.default_rng(0)
    decisions = [recommender.choose(u, contexts[u, 0], rng) for u in range(6)]
    assert recommender.version_of(5) is None
    for u in range(3):
        recommender.update(u, decisions[u], rewards[u, 0, decisions[u].arm])
    recommender.start("next")
    assert recommender.version_of("next") == 0


def test_in_a_world_of_few_directions_it_loses_less_than_linucb_alone():
    """Weights of 8 features that lie in a plane: about half the regret of one LinUCB each (1.9 to 4.2 here)."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 8))
    world = SimulatedWorld(equal_classes(plane / np.linalg.norm(plane, axis=1, keepdims=True)), n_arms=10)
    users = world.draw(200, 15, rng)
    alone = Individual(LinUCB(8, width=0.25)).serve(range(200), users.contexts, users.rewards, rng)
    cofine = CofineUCB(8, 2, n_warmup_users=40).serve(range(200), users.contexts, users.rewards, rng)
    assert users.regret(cofine)[40:].mean() < 0.6 * users.regret(alone)[40:].mean()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"n_coarse": 0}, "n_coarse=0"),
        ({"n_coarse": 5}, "n_coarse=5"),
        ({"profile_ridge": 0.0}, "profile_ridge=0"),
        ({"n_warmup_users": 0}, "n_warmup_users=0"),
        ({"warmup": "none"}, "warmup='none'"),
        ({"retrain_every": 0}, "retrain_every=0"),
        ({"history": past(d=3)}, "history has 3 features"),
    ],
)
def test_settings_out_of_range_are_refused(setting, words):
    with pytest.raises(InputError, match=words):
        CofineUCB(**{"n_features": 4, "n_coarse": 2, **setting})


@pytest.mark.parametrize("setting", [{"width": -1.0}, {"ridge": 0.0}, {"coarse_ridge": -2.0}])
def test_settings_of_its_bandit_are_refused_at_once(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        CofineUCB(4, 2, **setting)


def test_a_user_nobody_chose_for_is_refused():
    with pytest.raises(InputError, match="has not started"):
        CofineUCB(4, 2).version_of("ann")
