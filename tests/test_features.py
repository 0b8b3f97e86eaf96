from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import CategoryError, InputError
from lcb.features import FeatureMap, fit_features, fit_many

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
    theirs = (v / v.sum(axis=1, keepdims=True) - v.mean(axis=0)) @ rows[:3].T
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
        ("pca", "give one-hot, multi-hot, raw or pca:K"),
        ("pca:0", "pca:1 to pca:6"),
        ("pca:7", "6 categories have pca:1 to pca:6"),
        ("one-hot+2", "give one-hot, multi-hot, raw or pca:K"),
        ("", "give one-hot, multi-hot, raw or pca:K"),
    ],
)
def test_a_specification_that_means_nothing_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        fit_features(spec, NAMES, some_vectors())


def test_main_directions_of_nothing_are_refused():
    with pytest.raises(InputError, match="at least 2"):
        fit_features("pca:2", NAMES, some_vectors(1))


def test_vectors_over_other_categories_are_refused():
    with pytest.raises(InputError, match="over 5 categories, but the map was fitted on 6"):
        fit_features("one-hot", NAMES, some_vectors())(np.eye(5))


@pytest.mark.parametrize("spec", ["one-hot", "one-hot+1", "multi-hot", "multi-hot+1", "pca:3+1"])
def test_names_become_what_their_memberships_become(spec):
    features, names = fit_features(spec, NAMES, some_vectors()), ["c4", "c0", "c5"]
    np.testing.assert_array_equal(features.of_names(names), features([1, 0, 0, 0, 1, 1]))


def test_an_item_of_several_categories_is_their_mean_or_their_sum():
    member = some_vectors(20)
    for spec in ("one-hot", "one-hot+1", "pca:3"):
        features = fit_features(spec, NAMES, member)
        np.testing.assert_allclose(features(member), member @ features.arms / member.sum(axis=1, keepdims=True))
    summed = fit_features("multi-hot", NAMES, member)
    np.testing.assert_allclose(summed(member), member @ summed.arms)
    assert np.linalg.norm(summed(member), axis=1).max() == pytest.approx(1)


def test_the_convention_is_kept_with_the_map():
    for spec in ("one-hot", "multi-hot+1"):
        features = fit_features(spec, NAMES, some_vectors())
        again = FeatureMap.from_json(features.to_json())
        np.testing.assert_array_equal(again.of_names(["c1", "c2"]), features.of_names(["c1", "c2"]))


@pytest.mark.parametrize(
    "names, place, message",
    [
        (["c1", "c9"], 1, "unknown category 'c9'; the categories are c0, c1, c2, c3, c4, c5"),
        (["c1", "c2", "c1"], 2, "category 'c1' is named twice in c1, c2, c1; name it once"),
    ],
)
def test_unknown_and_duplicate_names_are_refused(names, place, message):
    with pytest.raises(CategoryError, match=f"^{message}$") as caught:
        fit_features("one-hot", NAMES, []).of_names(names)
    assert caught.value.place == place


def test_an_error_names_at_most_thirty_categories():
    with pytest.raises(CategoryError, match=r"n28, n29, \.\.\.$"):
        fit_features("one-hot", [f"n{i}" for i in range(31)], []).of_names(["x"])


def test_an_item_without_categories_is_refused():
    with pytest.raises(InputError, match="the item has no categories; give at least one"):
        fit_features("one-hot", NAMES, []).of_names([])


def test_maps_fitted_together_are_those_fitted_one_by_one():
    rng = np.random.default_rng(0)
    member = np.concatenate([some_vectors(), rng.normal(3.0, 1.0, (400, 9))], axis=1).astype(np.float32)
    inputs, times = [f"e{j}" for j in range(9)], rng.integers(0, 4, 400)
    specs, seen = ["one-hot", "pca:2+1", "pca:5", "raw+1"], []
    for fitted, x in fit_many(specs, NAMES, member, times, inputs):
        own = inputs if fitted.inputs else []
        used = member if fitted.inputs else member[:, :6]
        alone = fit_features(fitted.spec, NAMES, used, times, own)
        np.testing.assert_allclose(x, alone(used), atol=1e-9)
        np.testing.assert_allclose(x, fitted(used), atol=1e-9)
        seen.append(fitted.spec)
    assert sorted(seen) == sorted(specs)


def test_directions_of_single_precision_numbers_far_from_zero_are_those_of_a_singular_value_decomposition():
    rng = np.random.default_rng(1)
    vectors = (100 + rng.normal(size=(500, 3)) @ rng.normal(size=(3, 8)) + 0.01 * rng.normal(size=(500, 8))).astype(
        "f4"
    )
    fitted = fit_features("pca:3", [], vectors, None, [f"e{j}" for j in range(8)])
    exact = np.linalg.svd(vectors - vectors.mean(axis=0, dtype=np.float64), full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(np.sum(exact.T * fitted.directions, axis=0)), 1.0, atol=1e-6)
