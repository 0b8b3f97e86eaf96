from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import ClassPolicies, EnumeratedPolicies, Greedy, Softmax


def contexts(n, n_arms, seed=0):
    return list(np.random.default_rng(seed).standard_normal((n, n_arms, 2)))


def test_class_policies_are_as_many_as_the_classes():
    models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    policies = ClassPolicies(models, Softmax(0.5))
    assert policies.n_policies == 2
    np.testing.assert_allclose(policies(np.eye(2)), np.array([[np.e**2, 1], [1, np.e**2]]) / (1 + np.e**2))


@pytest.mark.parametrize("row", [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [np.inf, -np.inf, 0.0]])
def test_a_score_that_is_nan_is_refused_beside_any_other_class(row):
    # the row of two tied arms has one best arm too many, that of NaN one too few
    with pytest.raises(InputError, match="NaN"):
        Greedy()(np.array([[0.5, np.nan, 0.25], row]))


def test_infinite_scores_have_a_best_arm():
    scores = np.array([[-np.inf, 2.0], [-np.inf, -np.inf], [1.0, np.inf]])
    np.testing.assert_array_equal(Greedy()(scores), [[0, 1], [0.5, 0.5], [0, 1]])


def test_the_enumerated_policies_are_all_maps_from_contexts_to_arms_each_once():
    listed = contexts(3, 2) + contexts(1, 4, seed=1)
    policies = EnumeratedPolicies(listed)
    assert policies.n_policies == 2**3 * 4
    advice = [policies(context) for context in listed]
    for table, context in zip(advice, listed, strict=True):
        assert table.shape == (32, len(context))
        np.testing.assert_array_equal(np.sort(table, axis=1)[:, -2:], [[0.0, 1.0]] * 32)
    maps = list(zip(*(table.argmax(axis=1) for table in advice), strict=True))
    assert sorted(maps) == sorted(itertools.product(range(2), range(2), range(2), range(4)))


def test_a_context_is_recognised_by_its_numbers():
    listed = [np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[0.0], [1.0], [2.0], [3.0]])]
    policies = EnumeratedPolicies(listed)
    np.testing.assert_array_equal(policies(np.array([[-0.0, 1.0], [2.0, 3.0]])), policies(listed[0]))
    np.testing.assert_array_equal(policies(np.array([[0, 1], [2, 3]])), policies(listed[0]))
    np.testing.assert_array_equal(policies(np.asfortranarray(listed[0])), policies(listed[0]))
    assert policies(listed[1]).shape == (8, 4)


@pytest.mark.parametrize("other", [np.full((2, 2), np.nan), np.ones((2, 2)), np.ones((3, 2)), np.empty((0, 2))])
def test_a_context_that_was_not_listed_is_refused(other):
    with pytest.raises(InputError, match=r"not one of the 2 that were listed .*; list every possible context"):
        EnumeratedPolicies(contexts(2, 2))(other)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([], "no contexts"),
        ([np.ones(3)], "context 0 must be a finite array"),
        ([np.ones((2, 2)), np.empty((0, 2))], "context 1 must be a finite array .* at least one arm"),
        ([np.array([[np.nan, 1.0]])], "context 0 must be a finite array"),
        ([np.zeros((2, 2)), -np.zeros((2, 2))], "more than once"),
        (contexts(13, 2), "13 contexts have 2^13 (8192) policies, but the limit is 4096"),
        (contexts(20, 20), "20 contexts have 20^20 (about 1e+26) policies"),
        (contexts(900, 20), "900 contexts have 20^900 (about 1e+1171) policies"),
    ],
)
def test_lists_that_cannot_be_enumerated_are_refused(listed, message):
    if "^" in message:
        message = re.escape(message)
    with pytest.raises(InputError, match=message):
        EnumeratedPolicies(listed)


def test_the_limit_itself_is_allowed():
    assert EnumeratedPolicies(contexts(12, 2)).n_policies == 4096
    assert EnumeratedPolicies(contexts(2, 3), limit=9).n_policies == 9
    with pytest.raises(InputError, match=re.escape("3^2 (9) policies, but the limit is 8")):
        EnumeratedPolicies(contexts(2, 3), limit=8)


def test_no_scores_are_no_policies():
    assert Greedy()(np.empty((0, 5))).shape == (0, 5)
