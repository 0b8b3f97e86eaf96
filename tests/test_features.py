from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.features import fit_features

NAMES = [f"c{i}" for i in range(6)]


def some_vectors(n=400, seed=0):
    rng = np.random.default_rng(seed)
    v = np.zeros((n, 6))
    for row in v:
        row[rng.choice(6, size=rng.integers(1, 4), replace=False, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])] = 1
    return v


def test_pca_is_that_of_a_singular_value_decomposition():
    v = some_vectors()
    x = fit_features("pca:3", NAMES, v)(v)
    centred = v - v.mean(axis=0)
    _, _, rows = np.linalg.svd(centred, full_matrices=False)
    theirs = centred @ rows[:3].T
    for ours, other in zip(x.T, theirs.T, strict=True):
        assert abs(np.corrcoef(ours, other)[0, 1]) == pytest.approx(1, abs=1e-9)


def test_weights_say_how_often_a_vector_was_met():
    v, times = some_vectors(30), np.arange(30) % 4
    weighted = fit_features("pca:2+1", NAMES, v, times).arms
    repeated = fit_features("pca:2+1", NAMES, np.repeat(v, times, axis=0)).arms
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)


@pytest.mark.parametrize("spec", ["one-hot", "one-hot+1", "pca:1", "pca:4", "pca:6+1"])
def test_the_categories_fill_the_unit_ball(spec):
    features = fit_features(spec, NAMES, some_vectors())
    assert np.linalg.norm(features.arms, axis=1).max() == pytest.approx(1)
    assert features.arms.shape == (6, features.n_features)
    assert len(features.names) == features.n_features


def test_all_directions_and_a_constant_can_say_what_one_hot_can():
    x = fit_features("pca:6+1", NAMES, some_vectors()).arms
    assert np.linalg.matrix_rank(x) == 6


def test_features_do_not_depend_on_who_comes_later():
    v = some_vectors()
    np.testing.assert_array_equal(
        fit_features("pca:3", NAMES, v)(some_vectors(seed=1)), fit_features("pca:3", NAMES, v)(some_vectors(seed=1))
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pca", "give one-hot or pca:K"),
        ("pca:0", "pca:1 to pca:6"),
        ("pca:7", "6 categories have pca:1 to pca:6"),
        ("one-hot+2", "give one-hot or pca:K"),
        ("", "give one-hot or pca:K"),
    ],
)
def test_a_specification_that_means_nothing_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        fit_features(spec, NAMES, some_vectors())


def test_main_directions_of_nothing_are_refused():
    with pytest.raises(InputError, match="at least 2"):
        fit_features("pca:2", NAMES, some_vectors(1))


def test_vectors_over_other_categories_are_refused():
    with pytest.raises(InputError, match="over 5 categories, the map was fitted on 6"):
        fit_features("one-hot", NAMES, some_vectors())(np.eye(5))
