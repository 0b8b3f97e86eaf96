"""Features of any size that a service accepts leave the mixture with finite numbers."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.recommenders import Mixture


@pytest.mark.parametrize("x", [[1e9, -1e9, 1e9], [1e9, 1e9, 1e9], [1e9, 1e-9, 0.0], [1e6, -1e6, 1e6]])
@pytest.mark.parametrize("reward", [1.0, 1e9, -1e9])
def test_one_user_with_huge_features_does_not_stop_the_others(x, reward):
    mixture, rng = Mixture(3, rng=np.random.default_rng(0)), np.random.default_rng(1)
    for user in range(12):
        context = np.array([x]) if user == 5 else np.eye(3)
        decision = mixture.choose(user, context, rng)
        assert np.isfinite(decision.distribution).all()
        mixture.update(user, decision, reward if user == 5 else float(user % 2))
    assert np.isfinite(mixture.seats.models().beta).all()
