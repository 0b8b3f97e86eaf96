"""Blocked Gibbs: exact where partitions can be counted, the same whatever the threads, sound on odd data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lcb.learners
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.gibbs import _blocked_step as _blocked
from lcb.learners.gibbs import blocked
from lcb.learners.gibbs._blocked_numba import draw_classes
from lcb.learners.gibbs._partition import Design, Partition
from lcb.stats import UserStats
from support import sampling
from support.sampling import BOUND, ODD, PRIOR, X, odd, planted, same_partition

SMALL = sampling.stats_of(X, sampling.draw_rewards(np.array([0, 0, 1, 1, 2]), 0.3, np.random.default_rng(5)))


def quiet_fit(stats: UserStats, n_classes: int | None = None, **kinds: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return blocked.fit(stats, n_classes, **{"rng": np.random.default_rng(0), **kinds})


@pytest.mark.parametrize("n_split_merge,shared", [(0, False), (1, False), (0, True)])
def test_partitions_of_five_users_have_their_exact_probability(n_split_merge: int, shared: bool) -> None:
    rng, alpha, draws = np.random.default_rng(3), 1.7, []
    state = Partition(Design.make(SMALL, PRIOR), np.zeros(5, np.intp), 3, shared)
    for _ in range(2_000 if n_split_merge else 5_000):
        state.concentration = alpha
        _blocked.step(state, alpha, n_split_merge, 1, sampling.one_by_one, rng)
        draws.append(sampling.canonical(state.label))
    assert sampling.worst_against_exact(draws, sampling.exact_posterior(SMALL, alpha, 3, shared)) < BOUND


def test_classes_are_drawn_with_their_probability() -> None:
    rng, n = np.random.default_rng(0), 200_000
    log_like, log_pi = np.array([0.3, -1.0, 2.0]), np.log([0.5, 0.3, 0.2])
    label = np.empty(n, np.int32)
    draw_classes(np.repeat(log_like[:, None], n, axis=1), log_pi, rng.random(n), label)
    p = np.exp(log_like + log_pi)
    p /= p.sum()
    assert np.all(np.abs(np.bincount(label) / n - p) < BOUND * np.sqrt(p * (1 - p) / n))


def test_log_proportions_are_those_of_a_dirichlet() -> None:
    rng, weights = np.random.default_rng(0), np.array([0.5, 3.0, 1.5])
    draws = np.exp([_blocked.draw_log_pi(weights, rng) for _ in range(20_000)])
    assert np.all(np.abs(draws.mean(axis=0) - weights / 5) < BOUND * draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.isfinite(_blocked.draw_log_pi(np.array([1e-8, 1e-8, 5.0]), rng)).all()


@pytest.mark.parametrize("start", ["split", "one"])
@pytest.mark.parametrize("variance", ["class", "shared"])
def test_planted_classes_are_found_from_every_start(start: str, variance: str) -> None:
    stats, label = planted(2)
    found = quiet_fit(stats, start=start, variance=variance, most=12, n_sweeps=100)
    assert found.models.n_classes == 3
    assert same_partition(found.label, label)


def test_draws_are_the_same_whatever_the_number_of_threads() -> None:
    stats, _ = planted(3, n_users=20_000, n_rows=4, noise=1.5)  # three spans
    kinds = {"n_sweeps": 6, "n_burn": 0, "n_chains": 1, "n_split_merge": 1}
    one = quiet_fit(stats, 4, n_threads=1, rng=np.random.default_rng(7), **kinds)
    many = quiet_fit(stats, 4, n_threads=3, rng=np.random.default_rng(7), **kinds)
    np.testing.assert_array_equal(one.log_joint, many.log_joint)
    np.testing.assert_array_equal(one.label, many.label)


def test_it_agrees_with_the_collapsed_sampler() -> None:
    stats, _ = planted(6, n_users=40, n_rows=4, noise=1.5)
    means = {}
    for learner in ("gibbs", "blocked"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found: Any = lcb.learners.fit(
                stats, 4, rng=np.random.default_rng(1), learner=learner, n_sweeps=300, n_split_merge=1
            )
        draws = found.draws["log_joint"]
        means[learner] = draws.mean(), draws.std() / np.sqrt(found.ess["log_joint"])
    (a, error_a), (b, error_b) = means.values()
    assert abs(a - b) < BOUND * np.hypot(error_a, error_b)


@pytest.mark.parametrize("variance", ["class", "shared"])
@pytest.mark.parametrize("name", ODD)
def test_odd_data_gets_a_sound_answer(name: str, variance: str) -> None:
    stats = odd(name)
    for n_classes in (None, 2):
        found = quiet_fit(stats, n_classes, n_sweeps=20, variance=variance)
        for values in (found.models.beta, found.models.sigma2, found.log_joint, found.concentration):
            assert np.isfinite(values).all()
        assert found.label.shape == (stats.n_users,)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="most=0"):
        quiet_fit(planted(2)[0], most=0)


@pytest.mark.parametrize("seed", range(3))
def test_features_that_depend_on_each_other_are_learned_from_single_precision(seed: int) -> None:
    rng, user = np.random.default_rng(seed), np.repeat(np.arange(60), 20)
    x = 1e-4 * rng.standard_normal((len(user), 10))
    x[:, 9] = x[:, :9].sum(axis=1)
    reward = 1e4 * x[:, 0] * (1 - 2 * (user % 2)) + 0.1 * rng.standard_normal(len(user))
    beta = quiet_fit(UserStats.from_rows(user, x, reward, dtype=np.float32), 2).models.beta
    np.testing.assert_allclose(np.sort(beta[:, 0] + beta[:, 9]), [-1e4, 1e4], rtol=0.1)
