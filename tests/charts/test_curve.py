"""Which curves can be drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.charts import Curve
from lcb.errors import InputError


def test_a_curve_of_unequal_lengths_or_without_some_standard_errors_is_refused():
    with pytest.raises(InputError, match="2 places, 1 means and 2 standard errors; give as many of each"):
        Curve("lcb", [1, 2], [1.0], [0.1, 0.1])
    with pytest.raises(InputError, match="single run give NaN as every standard error"):
        Curve("lcb", [1, 2], [1.0, 2.0], [0.1, float("nan")])


def test_a_single_run_may_have_no_standard_error_at_any_place():
    assert np.isnan(Curve("lcb", [1, 2], [1.0, 2.0], [math.nan] * 2).se).all()


@pytest.mark.parametrize(
    "at, mean, se",
    [
        ([1, math.nan], [1.0, 2.0], [0.1, 0.1]),
        ([1, 2], [1.0, math.nan], [math.nan, math.nan]),
        ([1, 2], [1.0, 2.0], [0.1, math.inf]),
        ([1, 2], [1.0, 2.0], [math.nan, math.inf]),
        ([1, 2], [1.0, 2.0], [0.1, -0.1]),
    ],
)
def test_values_that_are_not_finite_and_negative_standard_errors_are_refused(at, mean, se):
    with pytest.raises(InputError, match="curve lcb has a value that is not finite, or a standard error below 0"):
        Curve("lcb", at, mean, se)
