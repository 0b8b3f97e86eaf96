from __future__ import annotations

import json

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, PAPERS
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes


def test_arms_lie_on_the_unit_sphere_and_rewards_scatter_by_the_noise():
    users = SimulatedWorld(paper_classes(noise=0.3)).draw(200, 20, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(users.contexts, axis=3), 1)
    np.testing.assert_allclose(
        users.means, np.einsum("utkd,ud->utk", users.contexts, paper_classes().beta[users.label]), atol=1e-12
    )
    noise = users.rewards - users.means
    assert noise.std() == pytest.approx(0.3, rel=0.02)
    assert abs(noise.mean()) < 0.01


def test_users_come_from_the_classes_in_their_shares():
    label = SimulatedWorld(paper_classes()).draw(10_000, 1, np.random.default_rng(0)).label
    assert np.abs(np.bincount(label, minlength=5) / 10_000 - 0.2).max() < 4.5 * np.sqrt(0.16 / 10_000)


def test_regret_is_the_expected_reward_lost():
    users = SimulatedWorld(paper_classes(), n_arms=3).draw(2, 2, np.random.default_rng(0))
    assert users.regret(users.means.argmax(axis=2)).max() == 0
    worst = users.regret(users.means.argmin(axis=2))
    np.testing.assert_allclose(worst, np.ptp(users.means, axis=2).sum(axis=1))


def test_the_numbers_do_not_depend_on_the_number_of_workers():
    settings = {"algorithms": PAPERS, "n_users": 70, "n_steps": 5, "n_runs": 3, "seed": 4}
    one, two = (simulate(SimulatedWorld(paper_classes()), n_workers=n, **settings) for n in (1, 2))
    for a, b in zip(one.results, two.results, strict=True):
        np.testing.assert_array_equal(a.regret, b.regret)


def test_an_algorithm_does_not_depend_on_its_company():
    settings = {"n_users": 60, "n_steps": 5, "n_runs": 1, "n_workers": 1}
    alone = simulate(SimulatedWorld(paper_classes()), ["lcb-gt"], **settings).results[0]
    together = simulate(SimulatedWorld(paper_classes()), ["random", "lcb-gt"], **settings).results[1]
    np.testing.assert_array_equal(alone.regret, together.regret)


def regrets(world, **settings):
    simulation = simulate(world, PAPERS, n_workers=1, **{"n_users": 300, "n_runs": 3, **settings})
    return {result.algorithm: result for result in simulation.results}


def test_the_papers_simulation_shows_its_order():  # sizes that leave every gap many standard errors wide
    by_name = regrets(SimulatedWorld(paper_classes()))
    late = {name: result.last_quarter.mean() for name, result in by_name.items()}
    assert late["lcb"] < 0.4 * late["linucb-population"]
    assert late["lcb"] < 1.35 * late["lcb-gt"]
    assert late["lcb-mean"] < late["lcb"]
    assert late["lcb-gt-mean"] < late["lcb-gt"]
    assert late["linucb-population"] < late["linucb-individual"] < late["random"]
    assert by_name["random"].regret_per_user == pytest.approx(11.4, abs=0.15)
    assert by_name["linucb-population"].regret_per_user == pytest.approx(2.2, abs=0.15)


@pytest.mark.parametrize("kind", ["signed", "random positions", "zero elsewhere"])
def test_other_classes_behave_alike(kind):
    rng = np.random.default_rng(3)
    beta = paper_classes().beta.copy()
    if kind == "signed":
        beta *= rng.choice([-1, 1], beta.shape)
    if kind == "random positions":
        beta = np.array([row[rng.permutation(10)] for row in beta])
    if kind == "zero elsewhere":
        beta[beta < 0.3] = 0
        beta /= np.linalg.norm(beta, axis=1, keepdims=True)
    by_name = regrets(SimulatedWorld(equal_classes(beta)), n_runs=2)
    late = {name: result.last_quarter.mean() for name, result in by_name.items()}
    assert late["lcb"] < 0.5 * late["linucb-population"]
    assert late["lcb-mean"] < late["lcb"]


def test_the_json_is_what_the_command_line_promises():
    simulation = simulate(
        SimulatedWorld(paper_classes()), ["lcb", "random"], n_users=60, n_steps=4, n_runs=2, n_workers=1
    )
    written = json.loads(json.dumps(simulation.to_json(), allow_nan=False))
    assert written["settings"]["users"] == 60
    assert [row["algorithm"] for row in written["results"]] == ["lcb", "random"]
    for row, result in zip(written["results"], simulation.results, strict=True):
        assert {"regret_per_user", "se", "regret_last_quarter", "cpu_seconds", "curve"} <= row.keys()
        assert row["curve"][-1] == pytest.approx(row["regret_per_user"])
        assert row["curve"][9] == pytest.approx(result.regret[:, :10].mean())
        assert row["regret_last_quarter"] == pytest.approx(result.regret[:, -15:].mean())
        assert row["se"] == pytest.approx(np.ptp(result.regret.mean(axis=1)) / 2)  # two runs
        assert len(row["curve"]) == len(written["settings"]["curve_users"])


def test_a_single_run_has_no_standard_error():
    simulation = simulate(SimulatedWorld(paper_classes()), ["random"], n_users=5, n_steps=2, n_runs=1, n_workers=1)
    assert simulation.to_json()["results"][0]["se"] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithms": ["lcb", "magic"]}, "unknown algorithm 'magic'; use one of: lcb-auto, lcb,"),
        ({"algorithms": []}, "at least one"),
        ({"algorithms": ["lcb", "lcb"]}, "each once"),
        ({"n_users": 0}, "n_users=0"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"n_runs": 0}, "n_runs=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "below 2"),
        ({"settings": {"lcb": {"width": 1.0}}}, "lcb has no setting 'width'; it has eta, uniform"),
        ({"algorithms": ["lcb-spectral-grouped"], "n_steps": 2, "n_workers": 1}, "lcb-spectral-grouped: no user has 3"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        simulate(SimulatedWorld(paper_classes()), **settings)


def test_a_step_without_arms_is_refused():
    with pytest.raises(InputError, match="n_arms=0"):
        SimulatedWorld(paper_classes(), n_arms=0)


def test_the_names_are_those_promised():
    promised = {
        "lcb", "lcb-mean", "lcb-gt", "lcb-gt-mean", "linucb-population", "linucb-individual", "random",
        "lcb-spectral", "lcb-spectral-grouped", "lcb-gibbs", "lcb-exp4p", "lcb-exp4", "lcb-exp3", "lcb-epoch-greedy",
        "lcb-iltcb", "exp4p-population", "exp4p-individual", "exp4p-enum", "lints-population", "lints-individual",
        "cofineucb", "club", "club-one-hop", "sclub", "mts", "mucb",
    }  # fmt: skip
    assert promised <= set(ALGORITHMS)


def test_one_class_one_arm_and_one_feature_simply_work():
    world = SimulatedWorld(equal_classes(np.array([[0.7]])), n_arms=1)
    for result in simulate(world, n_users=60, n_steps=2, n_runs=1, n_workers=1).results:
        assert np.abs(result.regret).max() == 0


def test_the_bandits_that_came_after_the_paper_find_the_classes_too():
    settings = {"n_users": 300, "n_runs": 2, "n_workers": 1, "settings": {"mucb": {"width": 0.25, "epsilon": 0.05}}}
    names = ["lcb", "mts", "mmts", "mucb", "linucb-population"]
    results = simulate(SimulatedWorld(paper_classes()), names, **settings).results
    late = {result.algorithm: result.last_quarter.mean() for result in results}
    assert 0.8 < late["mts"] / late["lcb"] < 1.25  # the same algorithm, other random numbers
    assert late["mmts"] < 1.2 * late["mts"]
    assert late["mts"] < late["mucb"] < 0.7 * late["linucb-population"]
