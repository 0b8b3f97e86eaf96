"""Two groups of visitors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from lcb.errors import InputError
from lcb.evaluate.two_groups import Group, compare_rates, welch_interval


def test_an_interval_worked_by_hand():
    # a: 1, 2, 3: mean 2, variance 1; b: 0, 4: mean 2, variance 8.  v = 1/3 and 4, so v_a + v_b = 13/3 and
    # df = (13/3)^2 / ((1/9)/2 + 16/1) = 18.778 / 16.056 = 1.1696.  With df = 1, t = tan(pi 0.475) = 12.706.
    mean, low, high = compare_rates(np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0]))
    assert mean == 0
    assert low == -high
    t = high / math.sqrt(13 / 3)
    assert 4.303 < t < 12.706  # between the tables' values at 2 and at 1
    equal = welch_interval(2, 1.0, 0.0, 2, 0.0, math.sqrt(2))  # v = 0 and 1, df = 1: the half is t of 1
    assert equal == pytest.approx((1, 1 - 12.7062, 1 + 12.7062), abs=1e-4)
    same = welch_interval(6, 0.5, 1.0, 6, 0.0, 1.0)  # equal groups: df = 10, t = 2.2281 (any table), v = 1/6 each
    assert same == pytest.approx((0.5, 0.5 - 2.2281 / math.sqrt(3), 0.5 + 2.2281 / math.sqrt(3)), abs=1e-4)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_interval_is_that_of_scipy(level):
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(0)
    a, b = rng.random(7), 3 * rng.random(40)
    theirs = ttest_ind(a, b, equal_var=False).confidence_interval(level)
    assert compare_rates(a, b, level) == pytest.approx((a.mean() - b.mean(), theirs.low, theirs.high), rel=1e-9)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(2000):
        _, low, high = compare_rates(rng.normal(0.3, 2, 4), rng.normal(0, 1, 9))
        held += low <= 0.3 <= high
    assert 0.93 < held / 2000 < 0.97  # 4.1 sd


@pytest.mark.parametrize(("n_a", "n_b"), [(0, 5), (1, 5), (5, 1), (0, 0)])
def test_too_few_visitors_have_no_interval(n_a, n_b):
    assert welch_interval(n_a, 0.5, 0.1, n_b, 0.4, 0.1) is None
    assert compare_rates(np.ones(n_a), np.zeros(n_b)) is None
    assert Group.of_sums(n_a, 1.0 * n_a, 1.0 * n_a).difference_to(Group.of_sums(n_b, 0.0, 0.0)) is None


def test_nobody_has_no_mean_and_one_visitor_no_deviation():
    assert Group.of_rates(np.array([])) == Group.of_sums(0, 0.0, 0.0) == Group(0, None, None)
    assert Group.of_rates(np.array([0.5])) == Group.of_sums(1, 0.5, 0.25) == Group(1, 0.5, None)


def test_groups_without_deviation_differ_for_sure():
    assert welch_interval(3, 0.75, 0.0, 2, 0.25, 0.0) == (0.5, 0.5, 0.5)


def test_tiny_deviations_keep_their_degrees_of_freedom():
    _, low, high = welch_interval(6, 0.0, 1e-120, 6, 0.0, 1e-120)
    assert (high - low) / 1e-120 == pytest.approx(2 * 2.2281 / math.sqrt(3), abs=1e-3)


@given(lists(floats(0, 1), min_size=2, max_size=30))
def test_sums_tell_the_same_as_the_rates(rates):
    counted = Group.of_sums(len(rates), sum(rates), sum(rate * rate for rate in rates))
    known = Group.of_rates(np.array(rates))
    assert counted.mean == pytest.approx(known.mean)
    assert counted.deviation == pytest.approx(known.deviation, abs=1e-6)


def test_a_level_is_a_share():
    with pytest.raises(InputError, match="level=95"):
        welch_interval(5, 0.5, 0.1, 5, 0.4, 0.1, level=95)
