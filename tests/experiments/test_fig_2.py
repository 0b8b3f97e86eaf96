"""Figures 2a and 2b with the algorithms one asks for."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.evaluate.algorithms import NEWER, PAPERS
from lcb.evaluate.simulation.simulate import AlgorithmRegret, Simulation
from lcb.experiments import fig_2a, fig_2b


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(fig_2a, "N_USERS", 60)
    monkeypatch.setattr(fig_2b, "N_USERS", 10)
    monkeypatch.setattr(fig_2b, "STEPS", (2, 4))


@pytest.mark.parametrize("names", [["random"], ["linucb-individual", "lcb-gt"]])
def test_figures_are_drawn_and_told_of_the_algorithms_named(names):
    one = fig_2a.run(n_runs=1, algorithms=names)
    told = fig_2a.summarise(one)
    assert [line.split()[0] for line in told] == names
    assert [row["algorithm"] for row in fig_2a.to_json(one)["results"]] == names
    fig_2a.draw(one).to_dict()
    several = fig_2b.run(n_runs=1, algorithms=names)
    assert [line.split()[0] for line in fig_2b.summarise(several)] == ["T_u", *names]
    fig_2b.draw(several).to_dict()


def test_what_the_paper_says_is_told_when_its_algorithms_were_run():
    one = fig_2a.run(n_runs=2)
    told = fig_2a.summarise(one)
    assert [line.split()[0] for line in told[: len(PAPERS + NEWER)]] == [*PAPERS, *NEWER]
    assert [claim.what for claim in fig_2a.check_claims(one)] == [
        "regret of lcb below Population LinUCB", "regret of lcb below CLUB",
        "last quarter of the users, lcb over lcb-gt",
    ]  # fmt: skip
    assert "(the paper: about 50 %)" in told[len(PAPERS + NEWER)]
    pair = ["lcb", "linucb-population"]
    assert "the paper: about 50 %" in fig_2a.summarise(fig_2a.run(n_runs=1, algorithms=pair))[-1]


def test_a_share_below_is_taken_run_by_run():
    regret = {"lcb": [[1.0, 1.0], [2.0, 2.0]], "linucb-population": [[4.0, 4.0], [4.0, 4.0]]}
    results = [AlgorithmRegret(name, {}, np.array(rows), 0.0) for name, rows in regret.items()]
    (claim,) = fig_2a.check_claims(Simulation({}, results))
    assert claim.ours == "62 % ± 24.5 %"  # 75 and 50: a standard error of 12.5
    assert claim.holds


def test_where_individual_overtakes_population_is_found():
    def at(steps, individual, population, lcb):
        rows = {"linucb-individual": individual, "linucb-population": population, "lcb": lcb}
        results = [AlgorithmRegret(name, {}, np.array([[value]]), 0.0) for name, value in rows.items()]
        return Simulation({"steps": steps}, results)

    overtaken, least = fig_2b.check_claims([at(20, 3.0, 2.0, 0.5), at(40, 3.9, 4.0, 1.0)])
    assert (overtaken.ours, overtaken.holds) == ("from T_u = 40", True)
    assert (least.ours, least.holds) == ("at most 26 % of the best other", True)
    newer = AlgorithmRegret("mixed-model", {}, np.array([[0.1]]), 0.0)  # is none of those that the paper compares
    several = [at(20, 3.0, 2.0, 0.5), at(40, 3.9, 4.0, 1.0)]
    beside = [Simulation(one.settings, [*one.results, newer]) for one in several]
    assert fig_2b.check_claims(beside) == fig_2b.check_claims(several)
    never, most = fig_2b.check_claims([at(20, 3.0, 2.0, 2.5)])
    assert (never.ours, never.holds, most.holds) == ("never", False, False)
