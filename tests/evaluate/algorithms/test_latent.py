"""Algorithm 1 with each learner, and with past users."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import replace

import numpy as np
import pytest

from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.event_log import EventLog
from lcb.learners.registry import LEARNERS
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral.moments import Moments
from lcb.recommenders.latent import Latent

WORLD = SimulatedWorld(paper_classes(), n_arms=6)
TASK = Task(10, 6, 20, 1000, 5, WORLD.reward_range, truth=WORLD.models)


def past(n_users=150, n_steps=20, seed=5):
    users = WORLD.draw(n_users, n_steps, np.random.default_rng(seed))
    names = np.repeat(np.arange(n_users), n_steps)  # the new users have the same names
    return EventLog.from_rows(names, users.contexts[:, :, 0].reshape(-1, 10), users.rewards[:, :, 0].ravel())


def served(recommender, n_users=70, seed=1) -> Latent:
    users = WORLD.draw(n_users, 20, np.random.default_rng(seed))
    recommender.serve(range(n_users), users.contexts, users.rewards, np.random.default_rng(0))
    return recommender


def test_every_learner_brings_algorithm_1_below_one_linucb_for_all_and_the_published_spectral_is_the_worst():
    names = ["lcb", "lcb-gibbs", "lcb-blocked", "lcb-spectral-grouped", "lcb-spectral", "linucb-population"]
    found = simulate(SimulatedWorld(paper_classes()), names, n_users=300, n_runs=2, n_workers=1)
    late = {result.algorithm: result.last_quarter.mean() for result in found.results}
    for name in ("lcb-gibbs", "lcb-blocked"):
        assert late[name] < 1.15 * late["lcb"]
    assert 1.2 * late["lcb"] < late["lcb-spectral-grouped"] < 0.6 * late["linucb-population"]
    assert late["lcb-spectral"] > 2 * late["lcb-spectral-grouped"]


@pytest.mark.parametrize("name", ["lcb-gibbs", "lcb-blocked", "lcb-spectral", "lcb-spectral-grouped"])
def test_every_learner_is_asked_again_after_every_50_users(name):
    recommender = served(ALGORITHMS[name].build_for(TASK, np.random.default_rng(0), {}), 170)
    assert len(recommender.versions) == 3
    assert [recommender.version_of(u) for u in (0, 49, 50, 99, 100, 150)] == [None, None, 0, 0, 1, 2]


def test_with_too_few_rows_for_the_moments_phase_one_goes_on():
    """Of 50 users of 3 steps there are 150 rows; third moments of 10 features have 220 entries."""
    task = replace(TASK, n_steps=3)
    recommender = ALGORITHMS["lcb-spectral"].build_for(task, np.random.default_rng(0), {})
    users = WORLD.draw(120, 3, np.random.default_rng(1))
    recommender.serve(range(120), users.contexts, users.rewards, np.random.default_rng(0))
    assert [recommender.version_of(u) for u in (50, 99, 100)] == [None, None, 0]


def test_what_more_rows_would_not_mend_is_an_error_with_the_name_of_the_algorithm():
    world = SimulatedWorld(
        equal_classes(np.eye(3)[[0, 1, 2, 0]] + 0.1 * np.arange(4)[:, None]), n_arms=4
    )  # 4 classes in 3
    for name in ("lcb-spectral", "lcb-spectral-grouped"):
        with pytest.raises(InputError, match=f"{name}: n_classes=4, but 3 features"):
            simulate(world, [name], n_users=60, n_steps=10, n_runs=1, n_workers=1)


def test_the_setting_of_the_learner_and_those_of_the_bandit_reach_their_place(monkeypatch):
    from lcb.learners.spectral import experts as spectral

    penalties = []
    real = spectral.fit

    def fit(moments, n_classes, **settings):
        penalties.append((moments.form, settings["penalty"], settings["centred"], settings["matching"]))
        return real(moments, n_classes, **settings)

    monkeypatch.setattr(spectral, "fit", fit)
    made = ALGORITHMS["lcb-spectral"].build_for(TASK, np.random.default_rng(0), {"penalty": 1.0, "eta": 0.5})
    recommender = served(made)
    assert penalties == [("pooled", 1.0, False, False)]
    assert recommender.make_bandit(paper_classes()).eta == 0.5


def test_fewer_users_than_classes_are_learned_as_so_many_classes():
    task = replace(TASK, n_warmup_users=3, retrain_every=3)
    for name in ("lcb", "lcb-gibbs", "lcb-blocked"):
        recommender = served(ALGORITHMS[name].build_for(task, np.random.default_rng(0), {}), 10)
        assert [models.n_classes for models in recommender.versions] == [3, 5, 5]


@pytest.mark.parametrize("name", ["gibbs", "blocked"])
def test_a_chain_begins_at_the_classes_the_last_one_ended_with(monkeypatch, name):
    sampler = importlib.import_module(LEARNERS[name])
    starts, real = [], sampler.fit

    def fit(stats, n_classes, *, start="split", **settings):
        starts.append((stats, start))
        return real(stats, n_classes, start=start, **settings)

    monkeypatch.setattr(sampler, "fit", fit)
    recommender = served(ALGORITHMS[f"lcb-{name}"].build_for(TASK, np.random.default_rng(0), {}), 101)
    (_, first), (stats, second) = starts
    assert first == "split"
    np.testing.assert_array_equal(second, recommender.versions[0].posterior(stats).argmax(axis=1))
    assert len(np.unique(second)) == 5


# Past users


@pytest.mark.parametrize("name", ["lcb", "lcb-mean", "lcb-bonus", "lcb-personal", "lcb-gibbs", "lcb-blocked"])
def test_past_users_are_learned_from_before_the_first_and_the_classes_stay(name):
    task = replace(TASK, history=past())
    recommender = served(ALGORITHMS[name].build_for(task, np.random.default_rng(0), {}), 120)
    assert {recommender.version_of(u) for u in range(120)} == {0}
    (models,) = recommender.versions
    error = np.linalg.norm(models.beta[:, None] - WORLD.models.beta, axis=2).min(axis=0).max()
    assert error < 0.15


@pytest.mark.parametrize(("name", "form", "settings"), [
    ("lcb-spectral", "pooled", {"centred": False, "matching": False, "penalty": 0.0}),
    ("lcb-spectral-grouped", "grouped", {}),
])  # fmt: skip
def test_spectral_learning_of_past_users_has_its_own_form_and_settings(name, form, settings):
    """As the learner called directly."""
    history = past()
    task, own = replace(TASK, history=history), {"penalty": 0.0} if name == "lcb-spectral" else {}
    recommender = served(ALGORITHMS[name].build_for(task, np.random.default_rng(3), own), 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        direct = spectral.fit(Moments.from_rows(*history.rows, form=form), 5, rng=np.random.default_rng(3), **settings)
    (models,) = recommender.versions
    np.testing.assert_array_equal(models.beta, direct.models.beta)


def test_statistics_of_past_users_are_not_enough_for_spectral_learning():
    task = replace(TASK, history=replace(past(), rows=None))
    with pytest.raises(InputError, match="learns from rows"):
        ALGORITHMS["lcb-spectral"].build_for(task, np.random.default_rng(0), {})


def test_the_true_classes_are_given_where_they_are_known_only():
    with pytest.raises(InputError, match="leave it out"):
        ALGORITHMS["lcb-gt"].build_for(replace(TASK, truth=None), np.random.default_rng(0), {})
