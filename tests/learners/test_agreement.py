"""The learners know nothing of each other and agree."""

from __future__ import annotations

import numpy as np

from conftest import largest_error, rows_of
from lcb.evaluate.worlds.paper import equal_classes, paper_classes
from lcb.event_log import EventLog
from lcb.learners import fit


def test_all_learners_find_the_same_classes_of_the_simulation():
    true = equal_classes(1.6 * paper_classes().beta)
    user, x, reward, _ = rows_of(true, 800, 20, seed=0)
    log = EventLog.from_rows(user, x, reward)
    found = {
        learner: fit(log, 5, rng=np.random.default_rng(0), learner=learner, **settings).models
        for learner, settings in (
            ("em", {}),
            ("gibbs", {"n_sweeps": 60}),
            ("blocked", {"n_sweeps": 60}),
            ("spectral", {"polish": True}),
        )
    }
    for models in found.values():
        assert largest_error(models.beta, true.beta) < 0.04
        assert largest_error(models.beta, found["em"].beta) < 0.01
        np.testing.assert_allclose(np.sort(models.pi), np.sort(found["em"].pi), atol=0.01)
        np.testing.assert_allclose(models.sigma2, 0.01, rtol=0.1)
