from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conftest import stats_of
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.algorithms.policy_sets import ALGORITHMS as POLICY_SETS
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.event_log import EventLog
from lcb.policies import Greedy, Softmax

TASK = Task(10, n_arms=20, n_steps=20, n_users=1000, n_classes=5, reward_range=(-1.4, 1.4), truth=paper_classes())
OVER_CLASSES = [algorithm.name for algorithm in POLICY_SETS if not algorithm.needs]
CONTEXTS = list(np.random.default_rng(0).standard_normal((2, 3, 4)))  # two contexts of three arms


def made(name, task=TASK, **settings):
    return ALGORITHMS[name].build_for(task, np.random.default_rng(0), settings)


@pytest.mark.parametrize("name", OVER_CLASSES)
def test_every_name_runs_in_the_papers_world_and_is_not_worse_than_random(name):
    settings = {"n_users": 120, "n_steps": 6, "n_runs": 1, "n_workers": 1}
    by_name = {r.algorithm: r for r in simulate(SimulatedWorld(paper_classes()), [name, "random"], **settings).results}
    assert by_name[name].last_quarter.mean() < 1.1 * by_name["random"].last_quarter.mean()


@pytest.mark.parametrize("name", ["lcb-exp4p", "lcb-exp4", "lcb-exp3", "exp4p-population", "exp4p-individual"])
def test_tuned_settings_leave_random_far_behind(name):
    settings = {"n_users": 150, "n_steps": 20, "n_runs": 1, "n_workers": 1}
    by_name = {r.algorithm: r for r in simulate(SimulatedWorld(paper_classes()), [name, "random"], **settings).results}
    assert by_name[name].last_quarter.mean() < 0.5 * by_name["random"].last_quarter.mean()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("lcb-exp4p-theory", "at K 20, N 5, T 20 the theory's p_min makes this the uniform policy"),
        ("exp4p-individual-theory", "at K 20, N 5, T 20 the theory's p_min makes this the uniform policy"),
        ("lcb-exp4-theory", "at K 20, N 5, T 20 the theory's gamma makes 97% of the decisions uniform"),
    ],
)
def test_at_the_papers_sizes_the_theory_is_nearly_random_and_says_so(name, note):
    assert ALGORITHMS[name].note_for(TASK, {}).startswith(note)


def test_where_there_is_nothing_to_say_nothing_is_said():
    for name in ("lcb-exp4p", "lcb-exp4", "lcb-exp3", "lcb-exp3-theory", "exp4p-population-theory", "lcb", "random"):
        assert ALGORITHMS[name].note_for(TASK, {}) is None
    note = ALGORITHMS["lcb-exp4p"].note_for(TASK, {"p_min": "theory"})
    assert note == ALGORITHMS["lcb-exp4p-theory"].note_for(TASK, {})


def test_the_population_looks_ahead_over_all_users_an_individual_over_its_own_steps():
    population, individual = made("exp4p-population-theory"), made("exp4p-individual-theory")
    assert population.bandit.horizon == 20_000
    assert individual.bandit.horizon == 20
    assert population.bandit.p_min is individual.bandit.p_min is population.bandit.eta is None
    assert population.bandit.reward_range == (-1.4, 1.4)


def test_settings_reach_the_bandit():
    bandit = made("exp4p-individual", p_min=0.01, eta=0.5, temperature=0.05).bandit
    assert isinstance(bandit, EXP4P)
    assert (bandit.p_min, bandit.eta, bandit.policies.policy) == (0.01, 0.5, Softmax(0.05))
    bandit = made("exp4p-individual", p_min="theory", eta="theory", temperature=0.0).bandit
    assert (bandit.p_min, bandit.eta, bandit.policies.policy) == (None, None, Greedy())
    for name in ("lcb-exp4", "lcb-exp3"):
        bandit = made(name, gamma=0.3, eta="theory", temperature=0.1).make_bandit(TASK.truth)
        assert (bandit.gamma, bandit.eta, bandit.horizon) == (0.3, None, 20)
        assert bandit.policies.policy == Softmax(0.1)


def test_a_setting_that_is_a_word_other_than_theory_is_refused():
    with pytest.raises(InputError, match="setting 'practice'; give a number, or 'theory'"):
        made("exp4p-individual", p_min="practice")


def test_without_the_truth_the_given_policies_are_learned_from_past_users():
    stats, _ = stats_of(paper_classes(), n_users=200, n_rows=20, seed=0)
    models = made("exp4p-individual", replace(TASK, truth=None, history=EventLog(stats))).bandit.policies.models
    distance = np.linalg.norm(models.beta[:, None] - paper_classes().beta[None], axis=2)
    assert distance.min(axis=0).max() < 0.2
    with pytest.raises(InputError, match="true classes"):
        made("exp4p-individual", replace(TASK, truth=None))


def test_contexts_that_cannot_be_listed_are_refused_with_the_number_of_policies():
    with pytest.raises(InputError, match=r"cannot be listed: the 20 .* need 20\^20 \(about 1e\+26\) policies"):
        made("exp4p-enum")
    with pytest.raises(InputError, match="cannot be listed"):
        simulate(SimulatedWorld(paper_classes()), ["exp4p-enum"], n_users=60, n_runs=1, n_workers=1)


def test_where_contexts_can_be_listed_every_policy_competes(rng):
    """Two contexts of three arms, a best arm in each: nine policies, and one user after another finds the best."""
    best, n_users, n_steps = np.array([2, 0]), 10, 1500
    task = Task(4, 3, n_steps, n_users, 1, (0.0, 1.0), contexts=CONTEXTS)
    recommender = made("exp4p-enum", task)
    met = rng.integers(2, size=(n_users, n_steps))
    chance = np.where(np.arange(3) == best[met][..., None], 0.9, 0.1)
    rewards = (rng.random(chance.shape) < chance).astype(float)
    arms = recommender.serve(range(n_users), np.array(CONTEXTS)[met], rewards, rng)
    right = arms == best[met]
    assert right[:, :50].mean() < 0.5
    assert right[:, -200:].mean() > 0.8
    assert recommender.bandit.policies.n_policies == 9
    assert ALGORITHMS["exp4p-enum"].note_for(task, {}) is None
    assert "uniform" in ALGORITHMS["exp4p-enum"].note_for(replace(task, n_steps=6), {})
