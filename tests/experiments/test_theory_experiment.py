"""The experiment on the theorems at small sizes, and on growth that is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lcb import charts
from lcb.evaluate.simulation.schedules import BANDITS
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes
from lcb.experiments import theory
from lcb.theory import Sizes, smallest_gap, theorem_1, theorem_2

WORLD = SimulatedWorld(equal_classes(np.eye(3)[:2]), n_arms=4)
SWEEPS = (
    theory.Sweep("a small world", WORLD, "users", (2, 4, 8), 9),
    theory.Sweep("a small world", WORLD, "steps", (4, 16), 3),
)


@pytest.fixture(scope="module")
def outcome():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "SWEEPS", SWEEPS)
        return theory.run(n_runs=2, seed=3, n_workers=1)


def test_every_bandit_is_measured_at_every_size_of_every_sweep(outcome):
    for sweep, growths in outcome.sweeps:
        assert [growth.bandit for growth in growths] == list(BANDITS)
        for growth in growths:
            assert growth.at == sweep.at
            assert {a.shape for a in (growth.regret, growth.models_error, growth.phase_1)} == {(2, len(sweep.at))}
            assert (growth.regret > 0).all()
            assert len(growth.plans) == len(growth.bound) == len(sweep.at)


def test_results_come_back_to_the_size_they_are_of(outcome, monkeypatch):
    """A fake run that writes down what it was asked for; tasks are handed out longest first."""
    monkeypatch.setattr(theory, "SWEEPS", SWEEPS)
    asked = []

    def fake(task):
        asked.append(task.n_steps * max(task.users))
        return np.array(
            [[[1000 * i + 100 * task.run + n * task.n_steps for n in task.users]] * 3 for i in range(3)], float
        )

    monkeypatch.setattr(theory, "play_schedules", fake)
    faked = theory.run(n_runs=2, n_workers=1)
    by_users, by_steps = (growths for _, growths in faked.sweeps)
    assert asked == sorted(asked, reverse=True)
    for i in range(3):
        np.testing.assert_array_equal(by_users[i].regret, 1000 * i + np.array([[18, 36, 72], [118, 136, 172]]))
        np.testing.assert_array_equal(by_steps[i].regret, 1000 * i + np.array([[12, 48], [112, 148]]))
    lines = theory.summarise(faked)
    (regret,) = [line for line in lines[:6] if line.startswith("exp4p ")]
    assert regret.split()[-3:] == ["34.0", "21.5", "15.2"]  # (18 + 118) / 2 / 2 users, ...
    (times,) = [line for line in lines[:9] if line.startswith("exp4p: regret / bound")]
    assert [float(word) for word in times.split()[-3:]] == pytest.approx([68, 86, 122] / by_users[0].bound, rel=0.01)


def test_the_bounds_are_phase_2_of_the_theorems_at_the_same_sizes(outcome):
    for sweep, growths in outcome.sweeps:
        for growth in growths:
            for i, (n_users, n_steps) in enumerate(sweep.list_sizes()):
                sizes = Sizes.of_equal_users(
                    n_users=n_users,
                    steps_per_user=n_steps,
                    n_arms=4,
                    n_classes=2,
                    n_features=3,
                    gap=smallest_gap(WORLD.models),
                )
                phases = theorem_2(sizes) if growth.bandit == "epoch-greedy" else theorem_1(sizes, growth.bandit)
                assert growth.bound[i] == pytest.approx(phases.phase_2)


def test_the_bounds_slopes_are_those_the_theory_names():
    by_users, by_steps, _ = (
        [theory._build_growth(sweep, bandit, np.ones((1, 3, len(sweep.at)))) for bandit in BANDITS]
        for sweep in theory.SWEEPS
    )
    assert [growth.bound_slope for growth in by_users] == [
        pytest.approx(1),
        pytest.approx(1),
        pytest.approx(1.08, abs=0.02),
    ]
    assert [growth.bound_slope for growth in by_steps] == [
        pytest.approx(0.5),
        pytest.approx(0.5),
        pytest.approx(0.1, abs=0.02),
    ]


@pytest.mark.parametrize("true", [0.0, 0.5, 1.0])
def test_a_known_slope_is_recovered(true):
    sweep = SWEEPS[0]
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((20, 1, 3)))
    regret = np.array(sweep.at) ** true * noise
    growth = theory._build_growth(sweep, "exp3", np.repeat(regret, 3, axis=1))
    assert abs(growth.slope.mean - true) < 2 * growth.slope.half < 0.02
    assert growth.last_slope.mean == pytest.approx(true, abs=0.03)


def test_the_numbers_are_json(outcome):
    written = json.loads(json.dumps(theory.to_json(outcome), allow_nan=False))
    assert written["settings"] == {"runs": 2, "seed": 3, "learner": "em"}
    assert [sweep["against"] for sweep in written["sweeps"]] == ["users", "steps"]
    first = written["sweeps"][0]["growth"][0]
    assert first["bandit"] == "exp4p"
    assert np.shape(first["regret"]) == (2, 3)
    assert first["slope"]["half"] > 0
    assert first["schedules"][0]["applied"] == "J = 20 users, as the learner needs (sqrt(L) would be 3)"


def test_a_single_run_is_told_without_intervals(monkeypatch):
    monkeypatch.setattr(theory, "SWEEPS", SWEEPS[:1])
    outcome = theory.run(n_runs=1, n_workers=1)
    assert theory.to_json(outcome)["sweeps"][0]["growth"][0]["slope"]["half"] is None
    json.dumps(theory.draw(outcome).to_dict(), allow_nan=False)
    assert "±" not in "\n".join(theory.summarise(outcome))


def test_the_text_tells_slopes_sizes_and_which_phase_1_applied(outcome):
    lines = theory.summarise(outcome)
    assert "against users U, at T_u = 9; a small world" in lines
    assert "against steps per user T_u, at U = 3; a small world" in lines
    (exp4p,) = [line for line in lines if line.startswith("exp4p ")][:1]
    assert f"{outcome.sweeps[0][1][0].slope}" in exp4p
    j = [line.split(": J")[1].split() for line in lines if ": J" in line]
    assert j == [["20*"] * 3, ["81"] * 3, ["20*"] * 2, ["20*", "256"]]
    assert lines[-1] == "* J is what the learner needs, more than the theorem's"


def test_the_picture_has_a_panel_per_sweep(outcome, tmp_path):
    chart = theory.draw(outcome)
    assert len(chart.to_dict()["vconcat"]) == 2
    charts.save(chart, tmp_path / "theory.png")
    assert (tmp_path / "theory.png").stat().st_size > 10_000


def test_the_papers_world_and_a_wider_one_are_run():
    users, steps, apart = theory.SWEEPS
    assert users.world is steps.world
    assert (users.world.n_arms, users.world.models.n_classes, users.world.models.n_features) == (20, 5, 10)
    assert smallest_gap(apart.world.models) == pytest.approx(2)
