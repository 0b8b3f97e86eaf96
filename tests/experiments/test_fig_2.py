"""Figures 2a and 2b with the algorithms one asks for."""

from __future__ import annotations

import pytest

from lcb.evaluate.algorithms import PAPERS
from lcb.experiments import fig_2a, fig_2b


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(fig_2a, "N_USERS", 60)
    monkeypatch.setattr(fig_2b, "N_USERS", 10)
    monkeypatch.setattr(fig_2b, "STEPS", (2, 4))


@pytest.mark.parametrize("names", [["random"], ["lcb", "random"], ["linucb-individual", "lcb-gt"]])
def test_figures_are_drawn_and_told_of_the_algorithms_named(names):
    one = fig_2a.run(n_runs=1, algorithms=names)
    told = fig_2a.summary(one)
    assert [line.split()[0] for line in told] == names
    assert [row["algorithm"] for row in fig_2a.to_json(one)["results"]] == names
    fig_2a.draw(one).to_dict()
    several = fig_2b.run(n_runs=1, algorithms=names)
    assert [line.split()[0] for line in fig_2b.summary(several)] == ["T_u", *names]
    fig_2b.draw(several).to_dict()


def test_what_the_paper_says_is_told_when_its_algorithms_were_run():
    told = fig_2a.summary(fig_2a.run(n_runs=1))
    assert [line.split()[0] for line in told[:-2]] == list(PAPERS)
    assert "below linucb-population (the paper: about 50 %)" in told[-2]
    assert "from lcb-gt, which knows the true classes" in told[-1]
    assert "the paper" in fig_2b.summary(fig_2b.run(n_runs=1))[-1]
    pair = ["lcb", "linucb-population"]
    assert "the paper: about 50 %" in fig_2a.summary(fig_2a.run(n_runs=1, algorithms=pair))[-1]
