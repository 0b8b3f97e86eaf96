from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import largest_error, rows_of, stats_of
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.worlds.paper import equal_classes, paper_classes
from lcb.learners.em import gaussian as em
from lcb.learners.shared.users import find_users
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.runtime import parallel
from lcb.stats import UserStats

THREE = equal_classes(np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, -0.7, 0.6]]), noise=0.3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), variance=st.sampled_from(["class", "shared"]))
def test_log_posterior_never_falls(seed, variance):  # 8 classes for 3 true ones: some empty out
    stats, _ = stats_of(THREE, 60, 5, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trace = em.fit(stats, 8, rng=np.random.default_rng(seed), variance=variance, max_steps=60).trace
    assert len(trace) > 1
    assert np.all(np.diff(trace) >= -1e-8 * np.abs(trace[:-1]))


def naive_step(rows, labels_of_rows, n_users, models, prior):
    """One EM step written from the formulas, row by row."""
    x, reward = rows
    n, d = models.beta.shape
    log_resp = np.tile(np.log(models.pi), (n_users, 1))
    for row, r, u in zip(x, reward, labels_of_rows, strict=True):
        for h in range(n):
            miss = r - models.beta[h] @ row
            log_resp[u, h] += -0.5 * np.log(2 * np.pi * models.sigma2[h]) - miss**2 / (2 * models.sigma2[h])
    resp = np.exp(log_resp - log_resp.max(axis=1, keepdims=True))
    resp /= resp.sum(axis=1, keepdims=True)
    mean, precision = prior.arrays(d)
    beta, sigma2 = np.empty((n, d)), np.empty(n)
    for h in range(n):
        w = resp[labels_of_rows, h]
        beta[h] = np.linalg.solve(precision + (x * w[:, None]).T @ x, precision @ mean + x.T @ (w * reward))
        square = w @ (reward - x @ beta[h]) ** 2 + (beta[h] - mean) @ precision @ (beta[h] - mean)
        sigma2[h] = (square + 2 * prior.rate) / (w.sum() + d + 2 * prior.shape + 2)
    pi = (resp.sum(axis=0) + prior.concentration / n) / (n_users + prior.concentration)
    return pi, beta, sigma2


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_step_is_the_published_one(dtype):
    user, x, reward, _ = rows_of(THREE, 40, 6, seed=3)
    stats = UserStats.from_rows(user, x, reward, dtype=dtype)
    start = LatentModels(pi=[0.2, 0.5, 0.3], beta=THREE.beta + 0.3, sigma2=[0.2, 0.3, 0.4])
    prior = Prior(mean=0.1, precision=0.7, shape=2.0, rate=0.3, concentration=1.7)
    with parallel.threads(1) as map_spans:
        found, _ = em.step(find_users(stats, map_spans), start, prior, False)
    tolerance = 1e-10 if dtype == np.float64 else 2e-4
    expected = naive_step((x, reward), user, 40, start, prior)
    for got, wanted in zip((found.pi, found.beta, found.sigma2), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_classes_are_recovered(seed):
    stats, label = stats_of(paper_classes(), 1000, 20, seed)
    found = em.fit(stats, 5, rng=np.random.default_rng(seed))
    assert found.converged
    assert largest_error(found.models.beta, paper_classes().beta) < 0.03
    np.testing.assert_allclose(found.models.sigma2, 0.01, rtol=0.1)
    own = found.models.posterior(stats).argmax(axis=1)
    together = [(own[label == h] == np.bincount(own[label == h]).argmax()).mean() for h in range(5)]
    assert min(together) > 0.99


def test_one_class_is_ridge_regression():
    user, x, reward, _ = rows_of(THREE, 30, 4, seed=1)
    found = em.fit(UserStats.from_rows(user, x, reward), 1, rng=np.random.default_rng(0), prior=Prior(precision=2.0))
    np.testing.assert_allclose(found.models.beta[0], np.linalg.solve(x.T @ x + 2 * np.eye(3), x.T @ reward), atol=1e-10)


def test_a_shared_variance_is_one_number():
    stats, _ = stats_of(THREE, 200, 10, seed=0)
    sigma2 = em.fit(stats, 3, rng=np.random.default_rng(0), variance="shared").models.sigma2
    assert np.ptp(sigma2) == 0
    np.testing.assert_allclose(sigma2, 0.09, rtol=0.1)


def test_threads_change_nothing():
    stats, _ = stats_of(THREE, 40, 5, seed=0)
    many = UserStats(np.tile(stats.packed, 1000), 3)  # 40,000 users: three spans
    fits = [
        em.fit(many, 3, rng=np.random.default_rng(0), n_threads=n, max_steps=30, tol=1e-3).models for n in (1, 2, 3)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.beta, fits[0].beta)
        np.testing.assert_array_equal(other.pi, fits[0].pi)


def test_float32_finds_the_same_classes():
    stats, _ = stats_of(paper_classes(), 500, 20, seed=0)
    found = em.fit(stats.astype(np.float32), 5, rng=np.random.default_rng(0))
    assert largest_error(found.models.beta, paper_classes().beta) < 0.05


def test_the_order_of_users_rows_and_features_does_not_move_the_optimum():
    user, x, reward, _ = rows_of(THREE, 200, 10, seed=0)
    rng = np.random.default_rng(1)
    rows, features = rng.permutation(len(user)), rng.permutation(3)
    fits = [
        em.fit(UserStats.from_rows(*data), 3, rng=np.random.default_rng(0), tol=1e-10)
        for data in ((user, x, reward), (user[rows], x[rows][:, features], reward[rows]))
    ]
    assert fits[0].trace[-1] == pytest.approx(fits[1].trace[-1], abs=1e-4)
    assert largest_error(fits[0].models.beta[:, features], fits[1].models.beta) < 1e-4


def test_the_scale_of_rewards_and_features_scales_the_answer():
    user, x, reward, _ = rows_of(THREE, 200, 10, seed=0)
    plain = em.fit(UserStats.from_rows(user, x, reward), 3, rng=np.random.default_rng(0)).models
    for reward_unit, x_unit in ((1e6, 1.0), (1e-6, 1.0), (1.0, 1e6), (1.0, 1e-6)):
        found = em.fit(
            UserStats.from_rows(user, x * x_unit, reward * reward_unit), 3, rng=np.random.default_rng(0)
        ).models
        assert largest_error(found.beta * x_unit / reward_unit, plain.beta) < 1e-3


def test_a_start_joins_the_starts_and_is_kept_when_best():
    stats, _ = stats_of(paper_classes(), 1000, 20, seed=0)
    found = em.fit(stats, 5, rng=np.random.default_rng(0), start=paper_classes(), n_starts=1)
    assert largest_error(found.models.beta, paper_classes().beta) < 0.03


def hard_data(kind):
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(30), 4), rng.standard_normal((120, 3))
    reward = x @ [0.5, 0.1, -0.2] + 0.1 * rng.standard_normal(120)
    if kind == "constant feature":
        x[:, 1] = 1.0
    if kind == "zero feature":
        x[:, 1] = 0.0
    if kind == "collinear features":
        x[:, 2] = 2 * x[:, 1]
    if kind == "one reward each":
        user = np.arange(120)
    if kind == "equal rewards":
        reward[:] = 0.5
    if kind == "zero rewards":
        reward[:] = 0.0
    if kind == "duplicated users":
        x, reward = np.tile(x[:4], (30, 1)), np.tile(reward[:4], 30)
    return UserStats.from_rows(user, x, reward)


@pytest.mark.parametrize("variance", ["class", "shared"])
@pytest.mark.parametrize(
    "kind",
    ["constant feature", "zero feature", "collinear features", "one reward each", "equal rewards", "zero rewards",
     "duplicated users"],
)  # fmt: skip
def test_hard_data_gives_finite_models(kind, variance):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = em.fit(hard_data(kind), 4, rng=np.random.default_rng(0), variance=variance)
    assert np.isfinite(found.trace).all()
    assert np.isfinite(found.models.beta).all()
    assert (found.models.sigma2 > 0).all()


def test_stopping_early_is_said():
    stats, _ = stats_of(THREE, 100, 5, seed=0)
    with pytest.warns(ConvergenceWarning, match="EM stopped at 2 steps, last gain"):
        found = em.fit(stats, 3, rng=np.random.default_rng(0), max_steps=2)
    assert not found.converged
    assert found.n_steps == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_classes": 9}, "n_classes=9, but only 4 users to learn from"),
        ({"n_classes": 0}, "at least 1"),
        ({"variance": "none"}, "variance='none'"),
        ({"n_starts": 0}, "n_starts=0"),
        ({"tol": 0.0}, "tol=0"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    stats, _ = stats_of(THREE, 4, 5, seed=0)
    with pytest.raises(InputError, match=message):
        em.fit(stats, **{"n_classes": 2, "rng": np.random.default_rng(0), **setting})


@pytest.mark.parametrize(("n_classes", "noise"), [(10, 0.3), (20, 0.2), (30, 0.2)])
@pytest.mark.parametrize("seed", range(3))
def test_many_classes_are_found_as_well_as_from_the_truth(n_classes, noise, seed):
    beta = np.random.default_rng(seed + 100).standard_normal((n_classes, 8))
    true = equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True), noise)
    stats, _ = stats_of(true, 1500, 20, seed)
    found = em.fit(stats, n_classes, rng=np.random.default_rng(seed))
    from_truth = em.fit(stats, n_classes, rng=np.random.default_rng(seed), start=true, n_starts=1)
    assert found.trace[-1] > from_truth.trace[-1] - 1


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_rewards_far_from_zero_are_learned_all_the_same(offset):
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(200), 20), np.column_stack([rng.standard_normal((4000, 2)), np.ones(4000)])
    slopes = np.array([[0.7, 0.0], [0.0, 0.7]])[user % 2]
    reward = offset + np.einsum("nd,nd->n", x[:, :2], slopes) + 0.1 * rng.standard_normal(4000)
    found = em.fit(UserStats.from_rows(user, x, reward), 2, rng=rng).models
    np.testing.assert_allclose(found.sigma2, 0.01, rtol=0.15)
    np.testing.assert_allclose(sorted(found.pi), [0.5, 0.5], atol=0.02)


def try_starts(values, n_starts, later=None, max_steps=500):
    """Try starts that reach these values in 20 steps, and `later` after more; return the chosen one and all climbs."""
    climbs = []

    def climb(name, *, max_steps):
        climbs.append((name, max_steps))
        value = values[name] if max_steps == 20 else (later or values)[name]
        return name, [value] * max_steps

    chosen, trace = em._try_starts(iter(range(len(values))), n_starts, max_steps, 0.1, climb, lambda *_: None)
    return chosen, len(trace), climbs


def test_no_more_starts_are_tried_once_three_agree_on_the_best():
    assert try_starts([5.0, 9.0, 9.05, 5.0, 5.05, 9.02, 0.0], 16) == (2, 20, [(i, 20) for i in range(6)])


def test_where_starts_do_not_agree_the_best_four_climb_longer():
    values = [float(i) for i in range(16)]
    chosen, n_steps, climbs = try_starts(values, 16, later=[0.0] * 12 + [1.0, 99.0, 2.0, 3.0])
    assert (chosen, n_steps) == (13, 120)
    assert climbs == [(i, 20) for i in range(16)] + [(i, 100) for i in (15, 14, 13, 12)]
    assert try_starts(values, 16, max_steps=20)[:2] == (15, 20)  # no step is left to climb longer


def test_four_starts_are_all_tried_and_the_best_is_taken():
    assert try_starts([9.0, 9.0, 9.0, 9.5], 4) == (3, 20, [(i, 20) for i in range(4)])
