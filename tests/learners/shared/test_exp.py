"""The vector exp against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.learners.shared._exp_numba import fast_exp, fast_exp32


def test_exp_is_accurate_to_the_last_digits():
    for x in np.linspace(-690, 690, 200):
        assert fast_exp(x) == pytest.approx(np.exp(x), rel=1e-14)
    for x in np.linspace(-86, 86, 200).astype(np.float32):
        assert fast_exp32(x) == pytest.approx(np.exp(np.float64(x)), rel=3e-7)


def test_exp_of_what_is_impossible_is_next_to_nothing():
    assert fast_exp(-np.inf) < 1e-290
