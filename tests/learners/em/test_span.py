from __future__ import annotations

import numpy as np
import pytest

from lcb.learners.em import _span_numba
from lcb.learners.em._span_numba import sum_blocks


def expect(packed, weights, log_pi):
    """The E-step of all users at once, in float64."""
    joint = weights.astype(float) @ packed.astype(float) + log_pi.astype(float)[:, None]
    evidence = np.logaddexp.reduce(joint, axis=0)
    resp = np.exp(joint - evidence)
    return packed.astype(float) @ resp.T, resp.sum(axis=1), evidence


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
@pytest.mark.parametrize("layout", ["by rows", "by columns", "every other user", "too far apart"])
def test_the_compiled_step_is_the_e_step_of_these_users(dtype, tolerance, layout, monkeypatch):
    """The last block is smaller; statistics may lie in memory in any way."""
    rng = np.random.default_rng(0)
    packed, weights = rng.normal(size=(9, 400)).astype(dtype), rng.normal(size=(4, 9)).astype(dtype)
    log_pi, users = np.log(rng.dirichlet(np.ones(4))).astype(dtype), slice(30, 380)
    if layout == "by columns":
        packed = np.asfortranarray(packed)
    elif layout == "every other user":
        packed = np.repeat(packed, 2, axis=1)[:, ::2]
    elif layout == "too far apart":
        monkeypatch.setattr(_span_numba, "_MOST", 100)
    sums, mass = np.ones((9, 4)), np.ones(4)
    top, total = sum_blocks(packed, weights, log_pi, users, 128, sums, mass)
    statistics, n_users, evidence = expect(packed[:, users], weights, log_pi)
    np.testing.assert_allclose(sums - 1, statistics, rtol=tolerance, atol=100 * tolerance)
    np.testing.assert_allclose(mass - 1, n_users, rtol=tolerance)
    np.testing.assert_allclose(top + np.log(total), evidence, rtol=tolerance, atol=10 * tolerance)
