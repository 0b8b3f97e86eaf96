"""`lcb-mixture` in simulations, from nothing, and on a log, learned from past users."""

from __future__ import annotations

import numpy as np

from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes
from lcb.event_log import EventLog
from lcb.recommenders.latent import Latent

WORLD = SimulatedWorld(equal_classes(np.eye(4)[:2] + 0.1, noise=0.1), n_arms=8)


def test_from_nothing_it_loses_less_than_algorithm_1_and_hardly_more_than_the_truth() -> None:
    names = ["lcb-mean", "lcb-mixture", "lcb-gt-mean"]
    found = simulate(WORLD, names, n_users=150, n_steps=10, n_runs=2, seed=3, n_workers=1)
    regret = {one.algorithm: one.regret_per_user for one in found.results}
    assert regret["lcb-mixture"] < 0.75 * regret["lcb-mean"]
    assert regret["lcb-mixture"] < 1.4 * regret["lcb-gt-mean"]  # 150 users, of whom the first know nothing


def test_past_users_teach_it_the_classes() -> None:
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(80), 10), rng.normal(size=(800, 4))
    reward = np.einsum("ij,ij->i", x, WORLD.models.beta[user % 2]) + 0.1 * rng.normal(size=800)
    history = EventLog.from_rows(user, x, reward)
    task = Task(4, 8, 10, 100, 5, (-2.0, 2.0), history=history)
    recommender = ALGORITHMS["lcb-mixture"].build_for(task, rng, {"n_samples": 1})
    assert isinstance(recommender, Latent)
    (models,) = recommender.versions
    likely = models.pi > 0.2
    assert likely.sum() == 2
    near = np.abs(models.beta[likely][:, None] - WORLD.models.beta).max(axis=2).min(axis=1)
    assert (near < 0.05).all()
    assert 0 < models.pi[-1] < 0.05  # a new class is always possible
