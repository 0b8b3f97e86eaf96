from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.algorithms.algorithm import NO_FEATURES
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.fixed_arms import FixedArms
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.event_log import EventLog
from lcb.models import LatentModels
from lcb.stats import UserStats

BETA = np.array([[0.9, 0.5, 0.1, 0.3], [0.1, 0.6, 0.8, 0.2], [0.3, 0.1, 0.2, 0.7]])
WORLD = FixedArms(equal_classes(BETA, noise=0.2))
HERE_ONLY = ["ucb-individual", "maillard-mannor", "umucb", "tucb", "factorised"]


def test_every_step_offers_the_same_arms_and_means_are_those_of_the_class():
    users = WORLD.draw(50, 30, np.random.default_rng(0))
    assert (users.contexts == np.eye(4)).all()
    assert (users.means == BETA[users.label][:, None]).all()
    noise = users.rewards - users.means
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert abs(noise.mean()) < 4.5 * 0.2 / np.sqrt(noise.size)
    low, high = WORLD.reward_range
    assert (low, high) == (pytest.approx(0.1 - 0.8), pytest.approx(0.9 + 0.8))


def test_clicks_are_drawn_with_the_probability_the_class_says():
    models = LatentModels([0.5, 0.5], [[0.1, 1.9], [1.0, 0.4]], [1, 1], likelihood="bernoulli", levels=(0.0, 2.0))
    world = FixedArms(models)
    users = world.draw(2000, 20, np.random.default_rng(0))
    assert set(np.unique(users.rewards)) == {0.0, 2.0}
    for label in (0, 1):
        np.testing.assert_allclose(users.means[users.label == label][0, 0], models.beta[label])
        np.testing.assert_allclose(users.rewards[users.label == label].mean(axis=(0, 1)), models.beta[label], atol=0.06)
    assert world.reward_range == (0.0, 2.0)


def test_all_algorithms_run_on_fixed_arms():
    names = ["lcb", "lcb-mean", "lcb-gt", "linucb-population", "linucb-individual", "random", "mts", "mmts", "mucb"]
    simulation = simulate(WORLD, names + HERE_ONLY, settings={}, n_users=60, n_steps=6, n_runs=1, n_workers=1)
    assert simulation.settings["arms"] == simulation.settings["features"] == 4
    for result in simulation.results:
        assert np.isfinite(result.regret).all()


def test_knowing_the_classes_beats_starting_from_scratch():
    names = ["maillard-mannor", "umucb", "ucb-individual", "random"]
    results = simulate(WORLD, names, settings={}, n_users=100, n_steps=60, n_runs=2, n_workers=1).results
    regret = {result.algorithm: result.regret_per_user for result in results}
    assert max(regret["maillard-mannor"], regret["umucb"]) < 0.4 * regret["ucb-individual"]
    assert regret["ucb-individual"] < 0.8 * regret["random"]


@pytest.mark.parametrize("name", HERE_ONLY)
def test_arms_with_features_are_refused(name):
    with pytest.raises(InputError, match=f"{name} needs arms without features.*--fixed-arms"):
        simulate(SimulatedWorld(paper_classes(), n_arms=10), [name], n_users=3, n_steps=2, n_runs=1, n_workers=1)


def test_only_these_need_fixed_arms():
    assert [name for name, algorithm in ALGORITHMS.items() if algorithm.needs == NO_FEATURES] == HERE_ONLY


def test_collaborative_filtering_is_trained_on_history():
    rng = np.random.default_rng(0)
    history = UserStats.from_rows(
        np.repeat(np.arange(40), 4), np.tile(np.eye(4), (40, 1)), np.tile([0, 0.2, 1, 0.1], 40)
    )
    task = Task(4, 4, 5, 10, 2, (0.0, 1.0), history=EventLog(history), fixed_arms=True)
    recommender = ALGORITHMS["factorised"].build_for(task, rng, {})
    assert recommender.choose("new", np.eye(4), rng).arm == 2
