"""The explorers by name: both the tuned and the published form run."""

from __future__ import annotations

import pytest

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes

NAMES = ("lcb-epoch-greedy", "lcb-epoch-greedy-theory", "lcb-iltcb", "lcb-iltcb-theory")


def regrets(names, **settings):
    world = SimulatedWorld(paper_classes(), n_arms=20)
    return {
        result.algorithm: result.last_quarter.mean()
        for result in simulate(
            world, names, settings=settings, n_users=300, n_steps=20, n_runs=1, n_workers=1
        ).results
    }  # fmt: skip


def test_all_are_better_than_chance_and_the_tuned_better_than_the_published():
    """The theories explore every other step of 20, or with half the probability: half of random's regret is left."""
    found = regrets((*NAMES, "random"))
    assert found["random"] > 10
    for tuned in ("lcb-epoch-greedy", "lcb-iltcb"):
        assert found[tuned] < 0.8 * found[tuned + "-theory"] < 0.8 * 0.8 * found["random"]


def test_the_theory_is_one_of_the_values_mu_is_tuned_on():
    assert "theory" in ALGORITHMS["lcb-iltcb"].grid["mu"]
    by_name = simulate(
        SimulatedWorld(paper_classes()), ("lcb-iltcb",), settings={"lcb-iltcb": {"mu": "theory"}},
        n_users=60, n_steps=5, n_runs=1, n_workers=1,
    )  # fmt: skip
    assert by_name.results[0].settings == {"mu": "theory"}


def test_a_mu_that_is_another_word_is_refused():
    with pytest.raises(InputError, match=r"lcb-iltcb has mu 'small'; .* theory"):
        regrets(("lcb-iltcb",), **{"lcb-iltcb": {"mu": "small"}})


def test_the_notes_say_what_the_theories_leave_to_chance():
    task = Task(10, 20, n_steps=20, n_users=1000, n_classes=5, reward_range=(-1.0, 1.0))
    notes = {name: ALGORITHMS[name].note_for(task, {}) for name in NAMES}
    assert notes["lcb-iltcb-theory"].startswith("at K 20, N 5 the theory's mu makes half of the first 2048 decisions")
    assert notes["lcb-epoch-greedy-theory"].startswith("at K 20, N 5 every other one of the first 2358 decisions")
    assert notes["lcb-iltcb"] is None
    assert notes["lcb-epoch-greedy"] is None
    assert ALGORITHMS["lcb-iltcb"].note_for(task, {"mu": "theory"}) == notes["lcb-iltcb-theory"]
