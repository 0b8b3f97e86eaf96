from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conftest import stats_of
from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.event_log import EventLog
from lcb.recommenders.cofine import fit_profiles, learn_subspace

MODELS = paper_classes()
HISTORY = stats_of(MODELS, n_users=40, n_rows=12, seed=1)[0]
TASK = Task(10, 20, 20, 100, 5, (-1.5, 1.5), n_warmup_users=7, retrain_every=9)
NAMES = ("lints-population", "lints-individual", "cofineucb")


def built(name, task=TASK, **settings):
    return ALGORITHMS[name].build_for(task, np.random.default_rng(0), settings)


def test_one_bandit_for_all_has_seen_the_history():
    task = replace(TASK, history=EventLog(HISTORY))
    np.testing.assert_array_equal(
        built("linucb-population", task, ridge=0.5).state, LinUCB(10, ridge=0.5).train(HISTORY)
    )
    np.testing.assert_array_equal(built("lints-population", task, ridge=0.5).state, LinTS(10, ridge=0.5).train(HISTORY))
    np.testing.assert_array_equal(built("linucb-population").state, LinUCB(10).start())
    np.testing.assert_array_equal(built("lints-population").state, LinTS(10).start())


@pytest.mark.parametrize("name", ["linucb-individual", "lints-individual"])
def test_one_bandit_each_starts_from_scratch_whatever_the_history(name):
    with_history, without = built(name, replace(TASK, history=EventLog(HISTORY))), built(name)
    for recommender in (with_history, without):
        recommender.start("ann")
    np.testing.assert_array_equal(with_history.states["ann"], without.states["ann"])


def test_cofineucb_learns_its_subspace_from_the_history():
    recommender = built("cofineucb", replace(TASK, history=EventLog(HISTORY)), n_coarse=3)
    np.testing.assert_array_equal(recommender.subspaces[0], learn_subspace(fit_profiles(HISTORY, 1.0), 3))
    without = built("cofineucb")
    assert without.subspaces == []
    assert (without.schedule.n_warmup_users, without.schedule.retrain_every) == (7, 9)


def test_cofineucb_has_no_more_dimensions_than_there_are_features():
    assert built("cofineucb", replace(TASK, n_features=4), n_coarse=8).n_coarse == 4


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_reaches_the_algorithm(name):
    """A value of the grid that is not the default changes what is played, but for dimensions the world has not."""
    users = SimulatedWorld(MODELS, n_arms=20).draw(30, 10, np.random.default_rng(0))
    task, algorithm = replace(TASK, history=EventLog(HISTORY), n_warmup_users=5), ALGORITHMS[name]

    def regret(**settings):
        arms = built(name, task, **settings).serve(range(30), users.contexts, users.rewards, np.random.default_rng(1))
        return users.regret(arms).sum()

    for setting, values in algorithm.grid.items():
        assert regret(**{setting: values[-1]}) != regret(), setting


def test_regrets_of_the_paper_s_simulation_are_in_order():
    """400 users: Population 2.2, LinTS for all 2.2, LinTS each 3.4, CoFineUCB 1.4 (standard errors near .05)."""
    settings = {"lints-individual": {"scale": 0.01, "ridge": 0.1}}
    results = simulate(
        SimulatedWorld(MODELS), [*NAMES, "linucb-population"], settings=settings, n_users=400, n_runs=1, n_workers=1
    ).results
    regret = {result.algorithm: result.regret_per_user for result in results}
    assert abs(regret["lints-population"] - regret["linucb-population"]) < 0.1
    assert regret["cofineucb"] < 1.6 < 1.9 < regret["lints-population"] < 2.5 < 3 < regret["lints-individual"] < 3.7
