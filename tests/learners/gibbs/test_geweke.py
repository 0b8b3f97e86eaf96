"""Geweke's joint-distribution test ("Getting it right", 2004) of both samplers, and of samplers broken on purpose.

Draw everything from the prior, independently; or draw rewards given classes and classes given rewards, in turn, the
latter by the sampler.  Both have the same distribution if and only if the sampler is right.  Ten means are compared,
at 4.5 standard errors: about one false alarm in 1,700 runs, and the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lcb.learners.gibbs import _blocked_step as _blocked
from lcb.learners.gibbs import _collapsed_step as _collapsed
from lcb.learners.gibbs import _gibbs_numba, _split_merge
from lcb.learners.gibbs._partition import Design, Partition
from lcb.models.prior import Prior
from support import sampling
from support.sampling import ALPHA, BOUND, PRIOR, X

N = 3_000


def successive(n_classes: int | None, shared: bool, moves: str, seed: int, n: int = N) -> np.ndarray:
    """Rewards given classes, classes given rewards, in turn."""
    rng = np.random.default_rng(seed)
    alpha, label, out = 1.0, np.zeros(len(X), np.intp), []
    sigma2 = 0.5 if shared else 0.0
    for _ in range(n):
        reward = sampling.draw_rewards(label, sigma2, rng)
        state = Partition(Design.make(sampling.stats_of(X, reward), PRIOR), label, n_classes, shared)
        state.concentration, state.sigma2 = alpha, sigma2
        state.refresh()
        if moves == "sweep":
            state.sweep(rng)
        if moves == "blocked":
            models, log_pi = _blocked.draw_models(state, rng)
            _blocked.assign(state, models, log_pi, sampling.one_by_one, rng)
        for _ in range(3):
            if moves == "split_merge":
                _split_merge.split_merge(state, rng, 2)
            if moves == "urn":
                _split_merge.urn_split_merge(state, rng)
        _collapsed.draw_concentration(state, ALPHA, rng)
        if shared:
            state.draw_sigma2(rng)
        state.rebuild()
        alpha, sigma2, label = state.concentration, state.sigma2, state.label.astype(np.intp)
        out.append(sampling.summary(label, alpha, reward))
    return np.array(out)


def distance(n_classes: int | None, shared: bool, moves: str = "sweep", n: int = N) -> float:
    independent = sampling.prior_draws(2 * N, n_classes, shared)
    return sampling.geweke_distance(independent, successive(n_classes, shared, moves, seed=0, n=n))


@pytest.mark.parametrize("moves", ["sweep", "split_merge", "urn"])
@pytest.mark.parametrize("n_classes,shared", [(None, False), (3, True)])
def test_collapsed_sampler_has_the_joint_distribution(n_classes: int | None, shared: bool, moves: str) -> None:
    assert distance(n_classes, shared, moves) < BOUND


def test_users_counted_once_too_often_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _gibbs_numba.sweep
    monkeypatch.setattr(_gibbs_numba, "sweep", lambda *a: right(*a[:9], a[9] + 1.0, *a[10:]))  # n_h + 1
    assert distance(None, False, n=N // 2) > BOUND


def test_a_new_class_without_alpha_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _gibbs_numba.sweep
    monkeypatch.setattr(_gibbs_numba, "sweep", lambda *a: right(*a[:10], 0.0, *a[11:]))
    assert distance(None, False, n=N // 2) > BOUND


def test_one_degree_of_freedom_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Design.hyper

    def wrong(self: Design, sigma2: float) -> Any:
        hyper = right(self, sigma2)
        hyper[1] += 0.5
        return hyper

    monkeypatch.setattr(Design, "hyper", wrong)
    assert distance(None, False, n=N // 2) > BOUND


def test_a_concentration_given_one_class_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _collapsed.escobar_west
    monkeypatch.setattr(_collapsed, "escobar_west", lambda alpha, k, *rest: right(alpha, k + 1, *rest))
    assert distance(None, False, n=N // 2) > BOUND


def test_a_split_that_forgets_its_proposal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _split_merge._try_split
    monkeypatch.setattr(
        _split_merge, "_try_split", lambda state, i, a, two, q, *rest: right(state, i, a, two, 0.0, *rest)
    )
    assert distance(None, False, "split_merge", n=N // 2) > BOUND


def test_a_split_that_forgets_the_choice_of_empty_class_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_split_merge, "_count_empty", lambda state: 1)
    assert distance(8, False, "urn", n=N // 2) > BOUND


def test_a_shared_variance_that_forgets_the_residual_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "unexplained", lambda self: 0.0)
    assert distance(None, True, n=N // 2) > BOUND


@pytest.mark.parametrize("shared", [False, True])
def test_blocked_sampler_has_the_joint_distribution(shared: bool) -> None:
    assert distance(3, shared, "blocked") < BOUND


def test_proportions_with_one_user_too_many_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _blocked.draw_log_pi
    monkeypatch.setattr(_blocked, "draw_log_pi", lambda weights, rng: right(weights + 1, rng))
    assert distance(3, False, "blocked", n=N // 2) > BOUND


def test_users_drawn_without_proportions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _blocked.draw_classes
    monkeypatch.setattr(_blocked, "draw_classes", lambda block, log_pi, *rest: right(block, 0 * log_pi, *rest))
    assert distance(3, False, "blocked", n=N // 2) > BOUND


def test_weights_drawn_too_wide_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Prior.draw_beta
    monkeypatch.setattr(Prior, "draw_beta", lambda self, classes, sigma2, rng: right(self, classes, 9 * sigma2, rng))
    assert distance(3, False, "blocked", n=N // 2) > BOUND


def test_a_log_alpha_without_its_jacobian_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _collapsed.slice_finite
    monkeypatch.setattr(_collapsed, "slice_finite", lambda *a: right(*a[:3], (a[3][0] - 1, a[3][1]), a[4]))
    assert distance(3, False, "blocked", n=N // 2) > BOUND
