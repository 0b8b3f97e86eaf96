from __future__ import annotations

import json

import pytest


def test_the_command_prints_the_table_at_the_sizes_asked_for(lcb, tmp_path):
    words = ["--users", 12, "--warmup-users", 2, "--steps", 30, "--arms", 4, "--classes", 3, "--features", 6]
    outcome = lcb("reproduce", "table-1", *words, "--contexts", 9, "--gap", 0.5, "--json", "t.json")
    assert outcome.code == 0
    assert "J = 2  U = 10  S = 60  T = 300  L = 30  K = 4  N = 3  d = 6  C = 9  gap = 0.5" in outcome.out
    assert (tmp_path / "figures" / "table-1.png").read_bytes()[:4] == b"\x89PNG"
    sizes = json.loads((tmp_path / "t.json").read_text())["sizes"]
    assert (sizes["n_users"], sizes["n_warmup_users"], sizes["n_contexts"], sizes["gap"]) == (10, 2, 9, 0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table-1", "--users", "20"], "--warmup-users 50 of --users 20"),
        (["table-1", "--gap", "0"], "gap=0.0"),
        (["table-1", "--arms", "0"], "'--arms'"),
        (["fig-1", "--steps", "20"], "--steps is an option of table-1, not of fig-1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_before_anything_is_written(lcb, tmp_path, words, message):
    outcome = lcb("reproduce", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("learner", ["em", "spectral"])
def test_the_command_runs_the_theorems(lcb, tmp_path, monkeypatch, learner):
    from lcb.experiments import theory

    asked = {}

    def run(**settings):
        asked.update(settings)
        return real(**settings, n_workers=1)

    real = theory.run
    world = theory.SimulatedWorld(theory.equal_classes(theory.np.eye(2)), n_arms=3)
    monkeypatch.setattr(theory, "SWEEPS", (theory.Sweep("a small world", world, "users", (2, 4), 9),))
    monkeypatch.setattr(theory, "run", run)
    outcome = lcb("reproduce", "theory", "--runs", 1, "--seed", 4, "--learner", learner, "--json", "out.json")
    assert outcome.code == 0, outcome.err
    assert (asked["n_runs"], asked["seed"], asked["learner"]) == (1, 4, learner)
    assert "against users U, at T_u = 9; a small world" in outcome.out
    assert json.loads((tmp_path / "out.json").read_text())["settings"]["learner"] == learner
    assert (tmp_path / "figures" / "theory.png").stat().st_size > 10_000


def test_a_learner_is_for_the_theorems_only(lcb, tmp_path):
    outcome = lcb("reproduce", "table-1", "--learner", "em")
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])
    assert "--learner is an option of theory" in outcome.err
