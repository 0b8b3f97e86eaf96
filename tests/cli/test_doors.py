"""Small doors that a newcomer meets: names of columns, separators, misspelt words, chosen learners."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.evaluate.worlds.paper import SimulatedWorld
from lcb.models import LatentModels
from support.in_process import InProcess


@pytest.fixture
def visits(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["visitor,article,clicked,sport"]
    for user in range(60):
        for _ in range(12):
            sport = rng.integers(0, 2)
            rows.append(f"v{user},{'ab'[sport]},{int(rng.random() < (0.9 if sport == user % 2 else 0.1))},{sport}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(rows))
    return path


def test_learn_takes_the_names_of_columns(lcb, visits):
    outcome = lcb("learn", visits, "--user", "visitor", "--item", "article", "--reward", "clicked", "--out", "m")
    assert outcome.code == 0, outcome.err
    assert "2 classes from 720 events of 60 users" in outcome.out
    words = ("--user", "visitor", "--reward", "clicked", "--columns", "sport", "--learner", "em", "--classes", 2)
    outcome = lcb("learn", visits, *words, "--out", "m")
    assert outcome.code == 0, outcome.err
    assert "2 classes from 720 events of 60 users" in outcome.out


def test_what_is_misspelt_is_suggested(lcb, visits):
    assert lcb("evalute").err == "lcb: no such command 'evalute', did you mean evaluate?; see lcb --help\n"
    assert "did you mean verify?" in lcb("log", "verfy").err
    said = lcb("learn", visits, "--user", "vistor", "--columns", "sport", "--out", "m").err
    assert "no column vistor (did you mean visitor?)" in said
    assert "did you mean lcb-mean?" in lcb("simulate", "--algorithms", "lcb-men").err


@pytest.mark.parametrize(("separator", "said"), [(";", "by ;"), ("\t", "by a tab; name it .tsv")])
def test_another_separator_is_noticed(lcb, visits, separator, said):
    visits.write_text(visits.read_text().replace(",", separator))
    outcome = lcb("import", visits, "--out", "log")
    assert outcome.code == 2
    assert f"columns seem to be separated {said}" in outcome.err


def test_learners_are_chosen_and_stopped_after_the_budget(lcb, visits):
    lcb("import", visits, "--user", "visitor", "--item", "article", "--reward", "clicked", "--out", "log")
    outcome = lcb("compare-learners", "log", "--classes", 2, "--learners", "spectral", "--budget", 0.001)
    assert outcome.code == 2
    assert "it takes longer than 0.001 s; raise --budget" in outcome.err
    assert "unknown learner" in lcb("compare-learners", "log", "--learners", "en").err


def test_a_comparison_of_learners_takes_the_names_of_columns(lcb, visits, monkeypatch):
    monkeypatch.setattr("lcb.evaluate.compare_learners.get_context", InProcess)
    names = ("--user", "visitor", "--reward", "clicked", "--learners", "em", "--classes", 2)
    for words in (("--item", "article"), ("--columns", "sport")):
        outcome = lcb("compare-learners", visits, *names, *words)
        assert outcome.code == 0, outcome.err
        assert "em" in outcome.out


def test_click_models_draw_clicks_and_their_true_means():
    models = LatentModels([1.0], [[0.3, 0.2]], [0.2], likelihood="bernoulli", levels=(0.0, 1.0))
    users = SimulatedWorld(models, n_arms=2).draw(200, 20, rng=0)
    assert set(np.unique(users.rewards)) == {0.0, 1.0}
    assert (users.means > 0).all()
    error = np.sqrt((users.means * (1 - users.means)).sum())
    assert abs((users.rewards - users.means).sum()) < 4.5 * error


def test_no_error_of_nan_is_printed(lcb):
    outcome = lcb("simulate", "--users", 5, "--runs", 1, "--algorithms", "random", "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert "nan" not in outcome.out
