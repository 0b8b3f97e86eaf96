"""`lcb learn`, `lcb show` and `lcb evaluate` on rewards that hardly differ: they find the truth or say why not."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lcb as library

MEANS = np.array([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1]])  # of two classes, by item
WORLDS = {
    "constant": lambda user, item: 0.7,
    "all 0": lambda user, item: 0,
    "all 1": lambda user, item: 1,
    "no noise, all alike": lambda user, item: MEANS[0, item],
    "no noise, two classes": lambda user, item: MEANS[user % 2, item],
    "no noise, two classes of 0 and 1": lambda user, item: int(MEANS[user % 2, item] > 0.5),
}
N_CLASSES = {"no noise, two classes": 2, "no noise, two classes of 0 and 1": 2}
LEARN = ("learn", "events.csv", "--columns", "a,b,c", "--out", "models", "--seed", 1)


def write_events(tmp_path, reward, *, n_users=40, n_items=3):
    rng = np.random.default_rng(0)
    lines = ["user,item,reward,a,b,c"]
    for user in range(n_users):
        for item in rng.integers(n_items, size=30).tolist():
            lines.append(f"u{user},i{item},{reward(user, item)},{int(item == 0)},{int(item == 1)},{int(item == 2)}")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")


def run_import(lcb):
    words = ("--user", "user", "--item", "item", "--reward", "reward", "--item-categories", "item", "--out", "log")
    assert lcb("import", "events.csv", *words).code == 0


@pytest.mark.parametrize("name", WORLDS)
def test_the_true_classes_are_found_and_shown(lcb, tmp_path, name):
    write_events(tmp_path, WORLDS[name])
    n_classes = N_CLASSES.get(name, 1)
    found = lcb(*LEARN)
    assert (found.code, found.err) == (0, "")
    assert f"{n_classes} class{'es' * (n_classes > 1)} from 1,200 events of 40 users" in found.out
    models = library.load_models("models")
    truth = np.array([[WORLDS[name](h, j) for j in range(3)] for h in range(n_classes)])
    order = np.argsort(-models.beta[:, 0])
    np.testing.assert_allclose(models.beta[order], truth, atol=0.05)
    shown = lcb("show", "models")
    assert (shown.code, shown.out.count("%")) == (0, n_classes)


@pytest.mark.parametrize("name", ["constant", "all 0", "all 1"])
def test_constant_rewards_are_one_class_of_a_table_and_of_a_log_and_no_evaluation(lcb, tmp_path, name):
    write_events(tmp_path, WORLDS[name])
    run_import(lcb)
    value = f"{WORLDS[name](0, 0):g}"
    for words in (LEARN, ("learn", "log", "--out", "models")):
        found = lcb(*words)
        assert found.out.startswith(
            f"every reward is {value}: nothing tells users apart, so there is one class\n1 class "
        )
    refused = lcb("evaluate", "log", "--steps", 5)
    assert refused.code == 2
    assert f"every label is {value}, so no algorithm can do better than another" in refused.err


@pytest.mark.parametrize(
    ("name", "truth"), [("no noise, all alike", 0.0), ("no noise, two classes", 100 * (1.7 / 1.1 - 1))]
)
def test_the_gain_where_there_is_no_noise_is_in_the_interval(lcb, tmp_path, name, truth):
    write_events(tmp_path, WORLDS[name])
    run_import(lcb)
    words = ("--algorithms", "lcb-auto,lcb-mean", "--seeds", 1, "--steps", 5, "--json", "-")
    found = lcb("evaluate", "log", *words)
    assert (found.code, found.err) == (0, "")
    answer = json.loads(found.out)["answer"]
    assert answer["low"] < truth < answer["high"]


def test_the_personal_learner_survives_rewards_without_noise(lcb, tmp_path):
    write_events(tmp_path, WORLDS["no noise, all alike"])
    assert lcb(*LEARN, "--learner", "personal", "--classes", 2).code == 0
    models = library.load_models("models")
    np.testing.assert_allclose(models.pi @ models.beta, MEANS[0], atol=0.001)


def test_one_user_is_too_few_and_one_item_has_nothing_to_choose(lcb, tmp_path):
    rng = np.random.default_rng(0)
    write_events(tmp_path, lambda user, item: int(rng.random() < MEANS[0, item]), n_users=1)
    run_import(lcb)
    found = lcb(*LEARN)
    assert (found.code, "only 1 user, too few" in found.err) == (2, True)
    found = lcb("evaluate", "log", "--steps", 5)
    assert (found.code, "events of one user only" in found.err) == (2, True)
    write_events(tmp_path, lambda user, item: int(rng.random() < MEANS[user % 2, 0]), n_items=1)
    run_import(lcb)
    answer = json.loads(lcb("evaluate", "log", "--steps", 5, "--algorithms", "lcb-mean", "--json", "-").out)["answer"]
    assert answer["low"] < answer["percent"] == 0 < answer["high"]
