"""Geweke's joint-distribution test ("Getting it right", 2004) of both samplers, and of samplers broken on purpose.

Draw everything from the prior, independently; or draw rewards given classes and classes given rewards, in turn, the
latter by the sampler.  Both have the same distribution if and only if the sampler is right.  Ten means are compared,
at 4.5 standard errors: about one false alarm in 1,700 runs, and the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learners import sampling

from lcb.learners import _collapsed, _gibbs_numba, _split_merge
from lcb.learners._partition import Design, Partition
from learners.sampling import ALPHA, BOUND, PRIOR, X

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


def distance(n_classes: int | None, shared: bool, moves: str = "sweep", seed: int = 0) -> float:
    independent = sampling.prior_draws(4 * N, n_classes, shared)
    return sampling.geweke_distance(independent, successive(n_classes, shared, moves, seed))


@pytest.mark.parametrize("moves", ["sweep", "split_merge", "urn"])
@pytest.mark.parametrize("n_classes,shared", [(None, False), (None, True), (3, False)])
def test_collapsed_sampler_has_the_joint_distribution(n_classes: int | None, shared: bool, moves: str) -> None:
    assert distance(n_classes, shared, moves) < BOUND


def test_users_counted_once_too_often_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _gibbs_numba.sweep
    monkeypatch.setattr(_gibbs_numba, "sweep", lambda *a: right(*a[:9], a[9] + 1.0, *a[10:]))  # n_h + 1
    assert distance(None, False) > BOUND


def test_a_new_class_without_alpha_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _gibbs_numba.sweep
    monkeypatch.setattr(_gibbs_numba, "sweep", lambda *a: right(*a[:10], 0.0, *a[11:]))
    assert distance(None, False) > BOUND


def test_one_degree_of_freedom_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Design.hyper

    def wrong(self: Design, sigma2: float) -> Any:
        hyper = right(self, sigma2)
        hyper[1] += 0.5
        return hyper

    monkeypatch.setattr(Design, "hyper", wrong)
    assert distance(None, False) > BOUND


def test_a_concentration_given_one_class_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _collapsed.escobar_west
    monkeypatch.setattr(_collapsed, "escobar_west", lambda alpha, k, *rest: right(alpha, k + 1, *rest))
    assert distance(None, False) > BOUND


def test_a_split_that_forgets_its_proposal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _split_merge._try_split
    monkeypatch.setattr(
        _split_merge, "_try_split", lambda state, i, a, two, q, rng: right(state, i, a, two, 0.0, rng)
    )
    assert distance(None, False, "split_merge") > BOUND


def test_a_split_that_forgets_the_choice_of_empty_class_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_split_merge, "_n_empty", lambda state: 1)
    assert distance(8, False, "urn") > BOUND


def test_a_shared_variance_that_forgets_the_residual_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "unexplained", lambda self: 0.0)
    assert distance(None, True) > BOUND
