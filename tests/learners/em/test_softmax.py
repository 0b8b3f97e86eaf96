from __future__ import annotations

import numpy as np
import pytest

from lcb.learners.em._softmax_numba import softmax


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0, 5000.0])
def test_the_compiled_softmax_is_the_softmax(dtype, tolerance, scale):
    rng = np.random.default_rng(0)
    scores = (scale * rng.standard_normal((7, 333))).astype(dtype)
    log_pi = np.log(rng.dirichlet(np.ones(7))).astype(dtype)
    joint = scores.astype(np.float64) + log_pi[:, None].astype(np.float64)
    evidence = np.logaddexp.reduce(joint, axis=0)
    top, total, mass = np.empty(333, dtype), np.empty(333, dtype), np.ones(7)
    softmax(scores, log_pi, top, total, mass)
    np.testing.assert_allclose(scores, np.exp(joint - evidence), atol=tolerance * max(1, scale))
    np.testing.assert_allclose(top + np.log(total), evidence, atol=tolerance * max(1, scale) * 10)
    np.testing.assert_allclose(mass, 1 + scores.sum(axis=1, dtype=np.float64), rtol=1e-5)
