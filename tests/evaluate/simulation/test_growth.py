from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.evaluate.simulation.growth import fit_slopes, mean_slope

AT = [100, 400, 1600, 6400]


@pytest.mark.parametrize("true", [0.0, 0.5, 1.0, -2.0])
def test_the_slope_of_a_power_is_its_exponent(true):
    values = np.array([[3.0], [70.0]]) * np.array(AT) ** true
    np.testing.assert_allclose(fit_slopes(AT, values), true, atol=1e-12)
    found = mean_slope(AT, values)
    assert (found.mean, found.half) == (pytest.approx(true), pytest.approx(0, abs=1e-12))


def test_the_slope_is_that_of_least_squares():
    values = np.array([5.0, 9.0, 80.0, 70.0])
    assert fit_slopes(AT, values) == pytest.approx(np.polyfit(np.log(AT), np.log(values), 1)[0])


def test_the_interval_is_students_over_runs():
    values = np.exp(np.array([[0.2], [0.5], [0.8]]) * np.log(AT))
    found = mean_slope(AT, values)
    assert found.mean == pytest.approx(0.5)
    assert found.half == pytest.approx(4.302653 * 0.3 / 3**0.5)  # t of 2 degrees of freedom at 97.5 %
    assert str(found) == "0.50 ± 0.75"


def test_the_interval_holds_the_true_slope_as_often_as_it_says():
    """2000 experiments of 5 noisy runs: 95 % within 4.5 sd."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2000, 5, 4))
    held = [abs(found.mean - 0.5) <= found.half for found in (mean_slope(AT, np.sqrt(AT) * np.exp(n)) for n in noise)]
    assert abs(np.mean(held) - 0.95) < 4.5 * (0.95 * 0.05 / 2000) ** 0.5


def test_a_single_run_has_a_slope_without_an_interval():
    found = mean_slope(AT, [np.sqrt(AT)])
    assert found.mean == pytest.approx(0.5)
    assert np.isnan(found.half)
    assert str(found) == "0.50"


@pytest.mark.parametrize(
    ("at", "values", "message"),
    [
        ([5], [1.0], "1 sizes"),
        ([5, 6], [1.0, 2.0, 3.0], "2 sizes, values of shape"),
        ([5, 5], [1.0, 2.0], "all sizes are 5"),
        ([5, 6], [1.0, 0.0], "not a positive number"),
        ([5, 6], [1.0, np.nan], "not a positive number"),
        ([0, 6], [1.0, 2.0], "not a positive number"),
    ],
)
def test_what_has_no_slope_is_refused(at, values, message):
    with pytest.raises(InputError, match=message):
        fit_slopes(at, values)
