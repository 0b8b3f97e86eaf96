"""The normals kept for one user against those made from the user's statistics."""

from __future__ import annotations

import numpy as np

from lcb.bandits.over_classes._kept_normals import KeptNormals
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.models import LatentModels
from lcb.stats import add_row


def test_kept_from_reward_to_reward_they_are_those_of_the_statistics() -> None:
    rng, n, d = np.random.default_rng(0), 5, 4
    roots = rng.normal(size=(n, d, d))
    covariance = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(d)
    covariance = (covariance + covariance.swapaxes(1, 2)) / 2
    models = LatentModels(
        rng.dirichlet(np.ones(n)), rng.normal(size=(n, d)), rng.uniform(0.1, 1, n), covariance=covariance, personal=True
    )
    bandit = PersonalClasses(models)
    state = bandit.start()
    kept = KeptNormals(bandit, state)
    for step in range(30):
        context = rng.normal(size=(6, d))
        np.testing.assert_allclose(kept.score(context), bandit.scores(state, context), rtol=1e-9)
        if step == 12:
            kept = KeptNormals(bandit, state)  # of a user who has rewards
        x, reward = context[step % 6], float(rng.normal())
        state = add_row(state, x, reward)
        assert kept.add(x, reward)


def test_a_reward_that_loses_digits_is_told() -> None:
    models = LatentModels([1.0], [[0.0]], [1e-9], covariance=[[[1.0]]], personal=True)
    kept = KeptNormals(PersonalClasses(models), np.zeros(4))
    assert not kept.add(np.ones(1), 1.0)
