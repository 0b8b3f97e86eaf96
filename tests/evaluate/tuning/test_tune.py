"""Tuning finds what is there to be found, on seeds of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from lcb.errors import InputError
from lcb.evaluate.algorithms import ALGORITHMS, Algorithm, check_settings, parse_settings, tuned_settings
from lcb.evaluate.algorithms.algorithm import Task
from lcb.evaluate.simulation import simulate
from lcb.evaluate.tuning import tune_simulation as tune
from lcb.evaluate.tuning.grid_search import choose_trials
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes

WORLD = SimulatedWorld(paper_classes(), n_arms=6)
SMALL = {"n_users": 20, "n_steps": 3, "n_runs": 2, "n_workers": 1}


class Toy:
    """Takes the best arm with a probability that is the higher the nearer its settings are to what was planted."""

    def __init__(self, closeness: float) -> None:
        self.closeness = closeness

    def serve(self, users, contexts, rewards, rng):
        best, worst = rewards.argmax(axis=2), rewards.argmin(axis=2)
        return np.where(rng.random(best.shape) < self.closeness, best, worst)


def toy(grid, closeness, refuses=lambda values: False):
    def build(task: Task, rng, **values):
        if refuses(values):
            raise InputError("not with these")
        return Toy(closeness(**values))

    return Algorithm("toy", "a toy", "-", build, grid, cost="1")


@pytest.fixture
def planted(monkeypatch):
    """One of 12 combinations is best; a word is among the values."""

    def closeness(a, b, c):
        return 0.2 + 0.3 * (a == 0.5) + 0.2 * (b == 7) + 0.3 * (c == "theory")

    grid = {"a": (1.0, 0.5, 2.0), "b": (3, 7), "c": (0.1, "theory")}
    monkeypatch.setitem(ALGORITHMS, "toy", toy(grid, closeness))
    return {"a": 0.5, "b": 7, "c": "theory"}


def test_the_planted_best_is_found_among_all_combinations(planted):
    found = tune.tune(WORLD, ["toy"], **SMALL)
    assert found.chosen == {"toy": planted}
    assert len(found.trials["toy"]) == 12
    assert len({tuple(trial.settings.items()) for trial in found.trials["toy"]}) == 12
    assert found.trials["toy"][0].settings == ALGORITHMS["toy"].defaults
    assert found.best["toy"].mean == min(trial.mean for trial in found.trials["toy"])


def test_the_planted_best_is_found_one_setting_at_a_time_where_combinations_are_too_many(planted):
    found = tune.tune(WORLD, ["toy"], most=11, **SMALL)
    assert found.chosen == {"toy": planted}
    assert len(found.trials["toy"]) < 11


def test_settings_that_are_refused_are_noted_and_never_chosen(monkeypatch):
    grid = {"a": (1.0, 0.5, 2.0)}
    algorithm = toy(grid, lambda a: a == 0.5, refuses=lambda values: values["a"] == 0.5)
    monkeypatch.setitem(ALGORITHMS, "toy", algorithm)
    found = tune.tune(WORLD, ["toy"], **SMALL)
    assert found.chosen["toy"] == {"a": 1.0}
    assert [trial.refusal for trial in found.trials["toy"]] == ["", "toy: not with these", ""]
    row = found.to_json()["grid"]["toy"][1]
    assert row == {"settings": {"a": 0.5}, "refused": "toy: not with these"}


def test_an_algorithm_that_refuses_the_world_is_left_out_of_the_chosen_and_alone_is_an_error(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "toy", toy({}, lambda: 1.0, refuses=lambda values: True))
    found = tune.tune(WORLD, ["toy", "random"], **SMALL)
    assert list(found.chosen) == ["random"]
    assert list(found.to_json()["grid"]) == ["toy", "random"]
    with pytest.raises(InputError, match="no settings could be tried: toy: not with these"):
        tune.tune(WORLD, ["toy"], **SMALL)


def test_of_equals_the_defaults_are_chosen(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "toy", toy({"a": (2.0, 1.0), "b": (5, 1)}, lambda a, b: 1.0))
    assert tune.tune(WORLD, ["toy"], **SMALL).chosen["toy"] == {"a": 2.0, "b": 5}


# The search


def searched(grid, regret, most):
    """All that is tried, round by round."""
    tried, rounds = {}, 0
    while wanted := choose_trials(grid, tried, most):
        assert not set(wanted) & set(tried)
        tried |= {values: regret(values) for values in wanted}
        rounds += 1
    return tried, rounds


def test_one_setting_at_a_time_goes_on_until_a_round_changes_nothing():
    """A crooked valley: b is right only once a is, and a only once b has moved."""
    valley = {(0, 0): 9, (1, 0): 8, (1, 1): 7, (2, 1): 6, (2, 2): 5}
    grid = {"a": (0, 1, 2), "b": (0, 1, 2)}
    tried, _ = searched(grid, lambda values: valley.get(values, 20), most=8)
    assert min(tried, key=tried.get) == (2, 2)
    assert list(tried)[:3] == [(0, 0), (1, 0), (2, 0)]  # all values of the first setting, from the defaults
    assert list(tried)[3:5] == [(1, 1), (1, 2)]  # then of the second, at the best of the first


@given(
    sizes=lists(integers(1, 4), min_size=1, max_size=4), most=integers(1, 20), seed=integers(0, 2**32 - 1)
)  # ties are common: regrets are one of three
def test_a_search_begins_with_the_defaults_and_ends_within_its_limit(sizes, most, seed):
    grid = {f"s{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    rng = np.random.default_rng(seed)
    regrets = {}
    tried, _ = searched(grid, lambda values: regrets.setdefault(values, int(rng.integers(3))), most)
    assert 1 <= len(tried) <= max(most, 1)
    assert next(iter(tried)) == (0,) * len(sizes)
    if np.prod(sizes) <= most:
        assert len(tried) == np.prod(sizes)


# Seeds


def streams(seed, run, names=("lcb", "random")):
    """The state of every generator that a run makes of these."""
    roots = [(seed, run), *((seed, run, simulate.crc32(name.encode())) for name in names)]
    sequences = [np.random.SeedSequence(root) for root in roots]
    sequences += [child for sequence in sequences[1:] for child in sequence.spawn(2)]
    return {tuple(sequence.generate_state(4).tolist()) for sequence in sequences}


SEEDS = integers(0, 2**64 - 1) | integers(0, 5)
RUNS = integers(0, 2**32 - 1) | integers(0, 5)


@given(SEEDS, RUNS, SEEDS, RUNS)
@settings(max_examples=300)
def test_no_seed_of_tuning_is_a_seed_of_an_experiment(seed, run, other, other_run):
    assert not streams(seed, run) & streams(tune.build_tuning_seed(other), other_run)


@given(SEEDS)
def test_seeds_of_tuning_differ_from_those_of_experiments_in_the_fifth_word(seed):
    """Words of 32 bits, as `SeedSequence` takes them: an experiment fills four at most, and has 0 or 1 in a child's."""
    number, parts = tune.build_tuning_seed(seed), []
    while number:
        parts.append(number & 0xFFFFFFFF)
        number >>= 32
    assert len(parts) == 5
    assert parts[4] == tune.TUNING > 1
    assert parts[0] + (parts[1] << 32) == seed
    assert parts[2:4] == [0, 0]


def test_different_seeds_of_tuning_are_different():
    assert not streams(tune.build_tuning_seed(0), 1) & streams(tune.build_tuning_seed(1), 0)


def test_tuning_runs_on_its_own_seeds(monkeypatch):
    seen = []
    real = tune.play_run
    monkeypatch.setattr(tune, "play_run", lambda run: (seen.append((run.seed, run.run)), real(run))[1])
    tune.tune(WORLD, ["random"], seed=3, **SMALL)
    assert seen == [(tune.build_tuning_seed(3), 0), (tune.build_tuning_seed(3), 1)]


def test_an_experiment_refuses_the_seeds_of_tuning():
    with pytest.raises(InputError, match="below 2"):
        simulate.simulate(WORLD, ["random"], seed=tune.build_tuning_seed(0), n_users=1, n_runs=1)


# The numbers


def test_the_numbers_do_not_depend_on_the_number_of_workers():
    sizes = {"n_users": 60, "n_steps": 4, "n_runs": 2, "most": 5}  # both ways to search
    names = ["lcb-gt", "linucb-individual", "random"]
    one, two = (tune.tune(WORLD, names, n_workers=n, **sizes).to_json() for n in (1, 2))
    assert one == two


def test_a_combination_does_as_it_does_alone_and_all_meet_the_same_users():
    sizes = {"n_users": 60, "n_steps": 4, "n_runs": 2}
    found = tune.tune(WORLD, ["linucb-individual", "random"], n_workers=1, **sizes)
    for name in found.trials:
        for trial in found.trials[name][:8:7]:
            run = simulate.SimulationRun(WORLD, ((name, trial.settings),), 60, 4, tune.build_tuning_seed(0), 1)
            assert trial.regret[1] == simulate.play_run(run)[0].mean()


def test_the_file_says_how_far_behind_each_combination_is_in_pairs():
    found = tune.tune(WORLD, ["linucb-individual"], **{**SMALL, "n_runs": 3})
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    best = found.best["linucb-individual"]
    for row, trial in zip(written["grid"]["linucb-individual"], found.trials["linucb-individual"], strict=True):
        assert row["settings"] == trial.settings
        assert row["regret_per_user"] == pytest.approx(trial.regret.mean())
        assert row["se"] == pytest.approx(trial.regret.std(ddof=1) / np.sqrt(3))
        behind = trial.regret - best.regret
        assert row["behind"] == pytest.approx(behind.mean())
        assert row["se_behind"] == pytest.approx(behind.std(ddof=1) / np.sqrt(3))
    assert written["chosen"] == {"linucb-individual": best.settings}
    assert parse_settings(written, "a file") == written["chosen"]
    assert {"users": 20, "steps": 3, "runs": 2 + 1, "seed": 0, "arms": 6}.items() <= written["settings"].items()


def test_a_single_run_has_no_standard_error():
    found = tune.tune(WORLD, ["random"], **{**SMALL, "n_runs": 1})
    assert found.to_json()["grid"]["random"][0]["se"] is None


def test_numbers_chosen_at_the_end_of_a_grid_are_named_but_for_0(monkeypatch):
    grid = {"a": (1.0, 3.0, 2.0), "b": (1.0, 0.0), "c": ("theory", 1.0, 2.0, 3.0)}
    monkeypatch.setitem(ALGORITHMS, "toy", toy(grid, lambda a, b, c: 0.5 * (a == 3) + 0.3 * (b == 0) + 0.2 * (c == 2)))
    found = tune.tune(WORLD, ["toy"], **SMALL)
    assert found.chosen["toy"] == {"a": 3.0, "b": 0.0, "c": 2.0}
    assert found.at_ends == [("toy", "a", 3.0)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"algorithms": ["magic"]}, "unknown algorithm 'magic'"),
        ({"n_users": 0}, "n_users=0"),
        ({"n_runs": 0}, "n_runs=0"),
        ({"most": 0}, "most=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "below 2"),
    ],
)
def test_what_cannot_be_tuned_is_refused(words, message):
    with pytest.raises(InputError, match=message):
        tune.tune(WORLD, **{"algorithms": ["random"], **SMALL, **words})


# Files of settings


def test_the_packaged_settings_exist_and_are_of_algorithms_and_settings_that_exist():
    for name, values in tuned_settings().items():
        assert values.keys() <= ALGORITHMS[name].grid.keys()


def test_every_grid_holds_plain_values_that_survive_a_file():
    for name, algorithm in ALGORITHMS.items():
        for setting, values in algorithm.grid.items():
            assert len(values) == len(set(values)) >= 1, (name, setting)
            for value in values:
                (back,) = json.loads(json.dumps([value], allow_nan=False))
                (kept,) = parse_settings({"chosen": {name: {setting: back}}}, "f")[name].values()
                assert kept == value
                assert type(kept) is type(value) or isinstance(kept, float), (name, setting, value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "f has no settings; give a file written by lcb tune"),
        ({}, "f has no settings"),
        ({"chosen": []}, "f has no settings"),
        ({"chosen": {"lcb": 3}}, "f has no settings"),
        ({"chosen": {"magic": {}}}, "f: unknown algorithm 'magic'; use one of: lcb-auto, lcb,"),
        ({"chosen": {"lcb": {"width": 1.0}}}, "f: lcb has no setting 'width'; it has eta, uniform"),
        ({"chosen": {"random": {"eta": 1.0}}}, "f: random has no setting 'eta'; it has none"),
        ({"chosen": {"lcb": {"eta": "theory"}}}, "f: lcb has eta 'theory'; give a value such as 1.0, 0.25"),
        ({"chosen": {"lcb": {"eta": None}}}, "f: lcb has eta None"),
        ({"chosen": {"lcb": {"eta": True}}}, "f: lcb has eta True"),
        ({"chosen": {"lcb": {"eta": float("nan")}}}, "f: lcb has eta nan"),
        ({"chosen": {"lcb": {"eta": 10**400}}}, "f: lcb has eta 1000"),
    ],
)
def test_bad_files_of_settings_are_refused_by_name(document, message):
    with pytest.raises(InputError) as error:
        parse_settings(document, "f")
    assert message in str(error.value)


def test_values_of_settings_are_numbers_or_words_as_they_were_tried(monkeypatch):
    grid = {"count": (3, 5), "rate": (1.0, "theory"), "flag": (True, False)}
    monkeypatch.setitem(ALGORITHMS, "toy", toy(grid, lambda **values: 1.0))
    kept = check_settings({"toy": {"count": 4.0, "rate": 2, "flag": False}})["toy"]
    assert [(value, type(value)) for value in kept.values()] == [(4, int), (2.0, float), (False, bool)]
    assert check_settings({"toy": {"rate": "theory"}})["toy"] == {"rate": "theory"}
    for bad in ({"count": 3.5}, {"rate": "other"}, {"flag": 1.5}):
        with pytest.raises(InputError, match=f"toy has {next(iter(bad))} "):
            check_settings({"toy": bad})


def test_given_settings_replace_the_packaged_ones_of_that_algorithm_alone(monkeypatch):
    monkeypatch.setattr(simulate, "tuned_settings", lambda: {"lcb": {"eta": 0.5}, "lcb-gt": {"eta": 2.0}})
    sizes = {"n_users": 5, "n_steps": 2, "n_runs": 1, "n_workers": 1}
    found = simulate.simulate(WORLD, ["lcb", "lcb-gt"], settings={"lcb": {"uniform": 0.05}}, **sizes)
    assert [dict(result.settings) for result in found.results] == [
        {"eta": 1.0, "uniform": 0.05}, {"eta": 2.0, "uniform": 0.0}
    ]  # fmt: skip
