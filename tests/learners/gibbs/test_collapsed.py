"""Collapsed Gibbs: exact where partitions can be counted, calibrated, independent of threads, sound on odd data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

import lcb.learners
from lcb.errors import ConvergenceWarning, InputError, MissingExtra
from lcb.learners.gibbs import _collapsed_step as _collapsed
from lcb.learners.gibbs import _gibbs_numba, _split_merge, diagnostics
from lcb.learners.gibbs import collapsed as gibbs
from lcb.learners.gibbs._concentration import slice_finite
from lcb.learners.gibbs._partition import Design, Partition, log_partition
from lcb.models.prior import Prior
from lcb.stats import UserStats
from support import sampling
from support.sampling import BOUND, ODD, PRIOR, X, odd, planted, same_partition

SMALL = sampling.stats_of(X, sampling.draw_rewards(np.array([0, 0, 1, 1, 2]), 0.3, np.random.default_rng(5)))


def quiet_fit(stats: UserStats, n_classes: int | None = None, **kinds: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return gibbs.fit(stats, n_classes, **{"rng": np.random.default_rng(0), **kinds})


@pytest.mark.parametrize("moves", ["sweep", "split_merge", "urn"])
@pytest.mark.parametrize("n_classes,shared", [(None, False), (None, True), (3, False)])
def test_partitions_of_five_users_have_their_exact_probability(n_classes: int | None, shared: bool, moves: str) -> None:
    rng, alpha = np.random.default_rng(3), 1.7
    state = Partition(Design.make(SMALL, PRIOR), np.zeros(5, np.intp), n_classes, shared)
    state.concentration = alpha
    draws = []
    for _ in range(8_000):
        if moves == "sweep":
            state.sweep(rng)
        elif moves == "split_merge":
            _split_merge.split_merge(state, rng, 1)
        else:
            _split_merge.urn_split_merge(state, rng)
        if shared:
            state.draw_sigma2(rng)
        draws.append(sampling.canonical(state.label))
    exact = sampling.exact_posterior(SMALL, alpha, n_classes, shared)
    assert len(exact) == (41 if n_classes else 52)  # of 3 classes at most; Bell's number
    assert sampling.worst_against_exact(draws, exact) < BOUND


def test_evidence_of_the_kernel_is_that_of_the_prior() -> None:
    stats, label = planted(1)
    prior = Prior(mean=[0.1, -0.2, 0.3], precision=np.eye(3) + 0.3, shape=2.0, rate=0.7)
    state = Partition(Design.make(stats, prior), label, None, shared=False)
    classes = UserStats(np.stack([stats.packed[:, label == h].sum(axis=1) for h in range(3)], axis=1), 3)
    np.testing.assert_allclose(state.log_evidence[:3], prior.log_evidence(classes), rtol=1e-11)
    state = Partition(Design.make(stats, prior), label, None, shared=True)
    np.testing.assert_allclose(state.log_evidence[:3], prior.log_evidence(classes, state.sigma2), rtol=1e-11)


@pytest.mark.parametrize("d", [1, 8, 9, 25])
def test_evidence_of_the_kernel_is_that_of_the_prior_for_any_number_of_features(d: int) -> None:
    rng = np.random.default_rng(d)
    stats = sampling.stats_of(rng.normal(size=(30, 6, d)), rng.normal(size=(30, 6)))
    prior, label = Prior(mean=0.2, precision=0.5, shape=1.5, rate=0.4), np.arange(30) % 4
    state = Partition(Design.make(stats, prior), label, None, shared=False)
    classes = UserStats(np.stack([stats.packed[:, label == h].sum(axis=1) for h in range(4)], axis=1), d)
    np.testing.assert_allclose(state.log_evidence[:4], prior.log_evidence(classes), rtol=1e-10)


def test_evidence_is_the_density_of_a_multivariate_t() -> None:  # one reward, one feature: Student's t
    from scipy.stats import t

    prior = Prior(mean=0.4, precision=2.0, shape=1.5, rate=0.8)
    one = UserStats.from_rows(user=[0], x=[[1.3]], reward=[0.9])
    scale = np.sqrt(prior.rate / prior.shape * (1 + 1.3**2 / 2.0))
    assert prior.log_evidence(one)[0] == pytest.approx(t.logpdf(0.9, 2 * 1.5, loc=0.4 * 1.3, scale=scale), rel=1e-12)


@given(seed=integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_log_joint_does_not_depend_on_the_order_of_users_or_features(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, label = rng.normal(size=(12, 4, 3)), rng.integers(0, 4, 12)
    reward = rng.normal(size=(12, 4))
    users, features = rng.permutation(12), rng.permutation(3)
    prior = Prior(mean=[0.1, 0.2, 0.3], precision=[1.0, 2.0, 3.0])
    turned = Prior(mean=np.array([0.1, 0.2, 0.3])[features], precision=np.array([1.0, 2.0, 3.0])[features])
    here = Partition(Design.make(sampling.stats_of(x, reward), prior), label, None, False)
    there = sampling.stats_of(x[users][:, :, features], reward[users])
    moved = Partition(Design.make(there, turned), label[users], None, False)
    assert moved.log_joint() == pytest.approx(here.log_joint(), rel=1e-10)


@given(seed=integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_what_a_chain_keeps_of_its_classes_is_what_its_labels_say(seed: int) -> None:
    stats, _ = planted(seed % 1000, n_users=30, noise=1.0)
    rng = np.random.default_rng(seed)
    for n_classes in (None, 4):
        state = Partition(Design.make(stats, Prior.scaled(stats)), rng.integers(0, 4, 30), n_classes, seed % 2 == 0)
        _collapsed.step(state, (1.0, 1.0), 2, 2, rng)
        label, log_joint = state.label.copy(), state.log_joint()
        state.rebuild()
        assert same_partition(label, state.label)
        assert state.log_joint() == pytest.approx(log_joint, abs=1e-6)


def test_number_of_classes_is_calibrated() -> None:
    """Simulation-based: the rank of the true number among draws is uniform (chi2 on 5 bins, one alarm in 10,000)."""
    rng, ranks = np.random.default_rng(8), []
    for _ in range(400):
        alpha = rng.gamma(2.0) / 0.7
        label = sampling.draw_classes(alpha, None, rng)
        stats = sampling.stats_of(X, sampling.draw_rewards(label, 0.0, rng))
        state = Partition(Design.make(stats, PRIOR), np.zeros(len(X), np.intp), None, shared=False)
        draws = []
        for sweep in range(60):
            _collapsed.step(state, (2.0, 0.7), 0, 0, rng)
            if sweep >= 10 and sweep % 5 == 0:
                draws.append(len(state.occupied))
        jitter = rng.random(len(draws) + 1) - 0.5  # breaks ties at random
        ranks.append(np.sum(np.array(draws) + jitter[1:] < len(np.unique(label)) + jitter[0]))
    counts = np.histogram(np.array(ranks), bins=np.linspace(-0.5, 10.5, 12))[0]
    expected = 400 / 11
    assert np.square(counts - expected).sum() / expected < 37.0  # chi2 with 10 degrees: 1 - 6e-5


def test_alpha_given_few_classes_is_drawn_from_its_density() -> None:
    rng, sizes, alpha, draws = np.random.default_rng(4), np.array([7.0, 2.0, 1.0]), 1.0, []
    for _ in range(6_000):
        alpha = slice_finite(alpha, sizes, 4, (2.0, 1.0), rng)
        draws.append(alpha)
    grid = np.linspace(1e-3, 30, 30_000)
    log_p = np.log(grid) - grid + np.array([log_partition(sizes, a, 4) for a in grid])
    p = np.exp(log_p - log_p.max())
    mean = float((grid * p).sum() / p.sum())
    assert abs(np.mean(draws) - mean) < BOUND * sampling.standard_error(np.array(draws))


@pytest.mark.parametrize("start", ["split", "one"])
@pytest.mark.parametrize("variance", ["class", "shared"])
def test_planted_classes_are_found_from_every_start(start: str, variance: str) -> None:
    stats, label = planted(2)
    found = quiet_fit(stats, start=start, variance=variance, n_sweeps=80)
    assert found.models.n_classes == 3
    assert same_partition(found.label, label)
    assert max(found.n_classes_posterior, key=found.n_classes_posterior.get) == 3


def test_chains_may_start_differently() -> None:
    stats, label = planted(2)
    found = quiet_fit(stats, start=("split", "one"), n_sweeps=60)
    assert found.n_classes[0, 0] > 3 >= found.n_classes[1, 0]
    assert found.converged
    assert same_partition(found.label, label)


def test_a_given_number_of_classes_is_kept() -> None:
    stats, label = planted(2)
    found = lcb.learners.fit(stats, 5, rng=np.random.default_rng(0), learner="gibbs", n_sweeps=40, n_chains=1)
    assert found.models.n_classes == 5
    assert same_partition(found.label, label)
    assert found.models.provenance["learner"] == "gibbs"


def test_draws_are_the_same_whatever_the_number_of_threads() -> None:
    stats, _ = planted(3, noise=1.5)
    kinds = {"n_sweeps": 20, "n_chains": 3}
    one = quiet_fit(stats, n_threads=1, rng=np.random.default_rng(7), **kinds)
    many = quiet_fit(stats, n_threads=3, rng=np.random.default_rng(7), **kinds)
    for name in ("n_classes", "log_joint", "concentration", "label"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    np.testing.assert_array_equal(one.models.beta, many.models.beta)


def test_statistics_are_left_untouched() -> None:
    stats, _ = planted(3)
    before = stats.packed.copy()
    quiet_fit(stats, n_sweeps=10, n_chains=1)
    np.testing.assert_array_equal(stats.packed, before)


def test_more_classes_than_columns_are_made_room_for() -> None:
    stats, label = planted(4, n_users=90, n_classes=30, n_rows=80, noise=0.01)
    found = quiet_fit(stats, start="one", n_sweeps=60, n_chains=1)
    assert found.models.n_classes == 30
    assert same_partition(found.label, label)


def test_progress_says_that_it_compiles_and_counts_sweeps() -> None:
    said: list[tuple[str, int, int | None]] = []
    quiet_fit(planted(3)[0], n_sweeps=8, progress=lambda *what: said.append(what))
    assert said[0] == ("compiling", 0, None)
    assert said[-1] == ("Gibbs sweeps", 16, 16)


def test_watched_users_share_classes_as_often_as_they_are_alike() -> None:
    stats, label = planted(2)
    together = quiet_fit(stats, n_sweeps=60, watch=[0, 1, 2, 3, 4]).co_assignment()
    np.testing.assert_allclose(together, label[:5, None] == label[:5], atol=0.05)
    with pytest.raises(InputError, match="watch="):
        quiet_fit(stats, n_sweeps=8).co_assignment()


def test_diagnostics_are_those_of_arviz() -> None:
    stats, _ = planted(3, noise=3.0)
    found = quiet_fit(stats, n_sweeps=100, variance="shared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

        data = found.to_arviz()
        theirs, sizes = arviz.rhat(data), arviz.ess(data)
    for name in ("concentration", "log_joint", "sigma2"):
        assert found.rhat[name] == pytest.approx(float(theirs[name]), rel=1e-6)
        assert found.ess[name] == pytest.approx(float(sizes[name]), rel=0.02)


def test_without_arviz_the_line_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "arviz", None)
    found = quiet_fit(planted(2)[0], n_sweeps=8)
    with pytest.raises(MissingExtra, match=r"\[diagnostics\]"):
        found.to_arviz()


def test_chains_that_disagree_are_reported() -> None:
    assert diagnostics.rhat([[1.0] * 10, [2.0] * 10]) == np.inf
    assert diagnostics.rhat([[1.0] * 10, [1.0] * 10]) == 1.0
    stats, _ = planted(5, noise=3.0)
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        found = gibbs.fit(stats, rng=np.random.default_rng(1), n_sweeps=5, n_burn=0)
    assert not found.converged


@pytest.mark.parametrize("variance", ["class", "shared"])
@pytest.mark.parametrize("name", ODD)
def test_odd_data_gets_a_sound_answer(name: str, variance: str) -> None:
    stats = odd(name)
    for n_classes in (None, 2):
        found = quiet_fit(stats, n_classes, n_sweeps=20, variance=variance)
        for values in (found.models.beta, found.models.sigma2, found.log_joint, found.concentration):
            assert np.isfinite(values).all()
        assert found.label.shape == (stats.n_users,)
    if name == "duplicated users":
        assert len(np.unique(found.label)) == 1


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_rewards_and_features_change_nothing(scale: float) -> None:
    stats, label = planted(2)
    d = stats.n_features
    factor = np.concatenate([np.full(d * (d + 1) // 2, scale**2), np.full(d, 1.0), [scale**-2, 1.0]])
    turned = UserStats(stats.packed * factor[:, None], d)  # features times scale, rewards divided by it
    assert same_partition(quiet_fit(turned, n_sweeps=60).label, label)


@pytest.mark.parametrize(
    "kinds,said",
    [
        ({"n_classes": 0}, "n_classes=0"),
        ({"variance": "both"}, "variance='both'"),
        ({"concentration": -1.0}, "concentration=-1.0"),
        ({"concentration": (1.0, 0.0)}, "concentration"),
        ({"concentration": (1.0, 1.0, 1.0)}, "concentration"),
        ({"concentration": [1.0, 1.0]}, "concentration"),
        ({"n_sweeps": 5, "n_burn": 5}, "n_burn=5"),
        ({"n_chains": 0}, "n_chains=0"),
        ({"start": "middle"}, "start='middle'"),
        ({"start": [0, 1]}, "start has shape"),
        ({"start": np.arange(60), "n_classes": 3}, "start has 60 classes"),
        ({"watch": [60]}, "watch"),
    ],
)
def test_wrong_settings_are_refused(kinds: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        quiet_fit(planted(2)[0], **kinds)


def test_numbers_that_are_not_finite_are_refused() -> None:
    stats, _ = planted(2)
    packed = stats.packed.copy()
    packed[0, 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        quiet_fit(UserStats(packed, stats.n_features))


def test_rounding_cannot_make_a_pivot_negative() -> None:
    work, extra = np.array([[1.0], [1.0 + 1e-9], [1.0], [0.0], [0.0], [1.0], [1.0]]), np.empty((4, 1))
    _gibbs_numba.eliminate(work, extra, np.array([1.0, 1e-3]), 1)
    assert extra[_gibbs_numba.LOG_DET, 0] == pytest.approx(np.log(1e-3))
