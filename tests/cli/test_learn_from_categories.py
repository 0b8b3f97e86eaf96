"""`lcb learn` of logs whose items have several categories, held to the classes they were drawn from."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lcb as library
from lcb.storage import load_feature_map
from support.categories import write_log


@pytest.mark.parametrize(
    ("combine", "n_classes", "features"), [("mean", 5, "one-hot"), ("sum", 3, "multi-hot"), ("mean", 1, "one-hot")]
)
def test_one_event_is_one_row_and_the_true_classes_are_found(lcb, tmp_path, combine, n_classes, features):
    p, member = write_log(tmp_path / "log", combine=combine, n_classes=n_classes)
    summary = json.loads(lcb("learn", "log", "--out", "models", "--learner", "em", "--json", "-").out)
    assert (summary["events"], summary["users"], summary["classes"]) == (30_000, 600, n_classes)
    assert summary["why"][0].startswith(f"{features} features: the log likelihood per held-out user is one-hot -")
    models, feature_map = library.load_models("models"), load_feature_map("models")
    assert feature_map.spec == features
    expected = feature_map(member) @ models.beta.T
    if models.item_effects is not None:  # categories do not describe every rate
        expected += models.item_effects.effect[:, None]
    error = np.abs(expected[:, :, None] - p.T[:, None, :]).mean(axis=0)  # (learned, true)
    assert sorted(error.argmin(axis=1)) == list(range(n_classes))
    assert error.min(axis=1).max() < 0.04


@pytest.mark.parametrize("n_classes", [1, 5])
def test_rates_that_saturate_do_not_split_the_classes(lcb, tmp_path, n_classes):
    write_log(tmp_path / "log", combine="saturate", n_classes=n_classes)
    summary = json.loads(lcb("learn", "log", "--out", "models", "--learner", "em", "--json", "-").out)
    assert summary["classes"] == n_classes
    assert "found with a feature for each item, which predicts held-out users better" in summary["why"][1]
    if n_classes == 1:
        asked = json.loads(lcb("learn", "log", "--out", "models", "--learner", "em", "--classes", 3, "--json", "-").out)
        assert asked["classes"] == 3


def test_a_log_and_its_parquet_give_the_same_models(lcb, tmp_path):
    write_log(tmp_path / "log", combine="mean", n_classes=2, n_users=100, n_events=2000)
    lcb("learn", "log", "--out", "one", "--classes", 2, "--learner", "em")
    lcb("learn", "log/events.parquet", "--out", "two", "--classes", 2, "--learner", "em")
    np.testing.assert_array_equal(library.load_models("one").beta, library.load_models("two").beta)
    assert load_feature_map("one").to_json() == load_feature_map("two").to_json()


def test_classes_without_users_are_left_out_and_shown_by_share(lcb, tmp_path):
    write_log(tmp_path / "log", combine="mean", n_classes=1, n_users=100, n_events=3000)
    lcb("learn", "log", "--out", "models", "--classes", 30, "--features", "one-hot", "--learner", "em")
    models = library.load_models("models")
    assert (models.pi * 100 >= 0.5).all()
    shares = [line.split()[1] for line in lcb("show", "models").out.splitlines() if "%" in line]
    assert shares == [f"{share:.1%}" for share in sorted(models.pi, reverse=True)]


@pytest.mark.parametrize(("combine", "features"), [("mean", "one-hot"), ("sum", "multi-hot")])
def test_evaluate_chooses_the_features_of_items_as_learn_does(lcb, tmp_path, combine, features):
    write_log(tmp_path / "log", combine=combine, n_classes=3)
    asked = ("evaluate", "log", "--algorithms", "random", "--seeds", 1, "--json", "-")
    settings = json.loads(lcb(*asked, "--method", "ips").out)["settings"]
    assert (settings["features"], settings["features_by_seed"]) == (features, [features])
    assert settings["why_features"].startswith(f"{features} features: the log likelihood per held-out user is")
    settings = json.loads(lcb(*asked, "--method", "queue", "--steps", 2).out)["settings"]
    assert (settings["features"], settings["why_features"]) == ("one-hot", "")  # arms are single categories
