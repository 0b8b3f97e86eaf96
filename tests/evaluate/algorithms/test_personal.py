"""Personal classes and the mixed model as algorithms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.event_log import EventLog


def test_on_classes_without_spread_they_are_near_the_classes_and_the_bonus_does_no_harm():
    names = ["lcb-mean", "lcb-bonus", "lcb-personal", "mixed-model", "linucb-population"]
    found = simulate(SimulatedWorld(paper_classes()), names, n_users=300, n_runs=2, n_workers=1)
    late = {result.algorithm: result.last_quarter.mean() for result in found.results}
    assert late["lcb-bonus"] < 1.2 * late["lcb-mean"]
    assert late["lcb-personal"] < 1.4 * late["lcb-mean"]
    assert late["lcb-personal"] < late["mixed-model"] < 0.5 * late["linucb-population"]


@pytest.mark.parametrize(("name", "n_classes"), [("lcb-personal", 2), ("mixed-model", 1)])
def test_past_clicks_give_classes_of_people_with_noise_per_arm(name, n_classes):
    rng = np.random.default_rng(0)
    shown = np.full((200, 3), 3)
    clicked = rng.binomial(shown, rng.beta(1, 2, (200, 3)))
    history = EventLog.from_counts(np.eye(3), clicked, shown - clicked)
    task = Task(3, 3, 10, 50, 4, (0.0, 1.0), history=history, two_valued=True)
    settings = {"bonus": 0.25} | ({"most_classes": 2} if n_classes > 1 else {})
    recommender = ALGORITHMS[name].build_for(task, rng, settings)
    (models,) = recommender.versions
    assert (models.n_classes, models.personal, len(models.arms)) == (n_classes, True, 3)
    assert recommender.make_bandit(models).bonus == 0.25
    fewer = replace(task, n_classes=1)
    assert ALGORITHMS["lcb-personal"].build_for(fewer, rng, {}).versions[0].n_classes == 1
