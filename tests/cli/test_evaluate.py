from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.storage.models.folder import load_feature_map, load_models

LIKES = np.array([[0.9, 0.2, 0.2], [0.1, 0.8, 0.2]])


@pytest.fixture
def log(tmp_path):
    """Two kinds of readers, three kinds of books, one of two categories."""
    rng, n_users, n = np.random.default_rng(0), 160, 14
    kind = rng.integers(0, 2, n_users)
    user, item = np.repeat(np.arange(n_users), n), rng.integers(0, 3, n_users * n)
    stars = np.where(rng.random(len(user)) < LIKES[kind[user], item], 5, 2)
    folder = tmp_path / "books"
    folder.mkdir()
    order = np.tile(np.arange(n), n_users)
    pq.write_table(pa.table({"user": user, "order": order, "item": item, "rating": stars}), folder / "events.parquet")
    pq.write_table(pa.table({"item": [0, 1, 2], "categories": [[0], [1], [1, 2]]}), folder / "items.parquet")
    (folder / "categories.json").write_text(json.dumps(["crime", "travel", "poetry"]))
    return folder


WORDS = ["--steps", 6, "--classes", 2, "--seeds", 2, "--workers", 1, "--algorithms", "lcb-mean,linucb-individual"]


def test_an_evaluation_says_who_would_have_done_better(lcb, log):
    outcome = lcb("evaluate", log, "--like", 5, *WORDS, "--json", "out.json")
    assert outcome.code == 0, outcome.err
    assert "lcb-mean would have had" in outcome.out
    assert "more clicks than one model for all users" in outcome.out.replace("\n", " ")


def test_the_first_line_and_the_json_say_what_an_arm_was(lcb, log):
    words = ["--like", 5, "--steps", 6, "--seeds", 1, "--workers", 1, "--algorithms", "random"]
    assert "(3 arms, each a category)" in " ".join(lcb("evaluate", log, *words).out.split())
    assert json.loads(lcb("evaluate", log, *words, "--json", "-").out)["settings"]["arm_kind"] == "category"
    assert "each an item" in " ".join(lcb("evaluate", log, *words, "--method", "replay").out.split())
    (log / "items.parquet").unlink()
    (log / "categories.json").unlink()
    settings = json.loads(lcb("evaluate", log, *words, "--json", "-").out)["settings"]
    assert (settings["arms"], settings["arm_kind"]) == (3, "item")


def test_learning_prints_the_order_of_the_features(lcb, log):
    told = lcb("learn", log, "--like", 5, "--learner", "em", "--classes", 2, "--features", "one-hot", "--out", "models")
    assert "features (one-hot), in their order: crime, travel, poetry" in told.out


def test_the_json_has_the_promised_form(lcb, log):
    written = json.loads(lcb("evaluate", log, "--like", 5, *WORDS, "--json", "-").out)
    assert {"answer", "settings", "results"} == set(written)
    assert written["settings"]["reading"] == "labels"
    assert written["settings"]["test_users"] == 40
    assert [row["algorithm"] for row in written["results"]] == ["lcb-mean", "linucb-individual", "linucb-population"]
    for row in written["results"]:
        assert {"relative_ctr", "se", "vs_population_percent", "vs_se"} <= set(row)
    assert written["results"][0]["vs_population_percent"] > 5


def test_a_number_of_classes_that_is_asked_for_binds_lcb_auto(lcb, log):
    words = ["--like", 5, "--steps", 6, "--seeds", 1, "--workers", 1, "--algorithms", "lcb-auto"]
    for n_classes in (2, 3):
        outcome = lcb("evaluate", log, "--classes", n_classes, *words)
        assert f"lcb-auto, seed 0: chosen: {n_classes} p" in outcome.out


def test_learning_from_choices_is_judged_on_users_with_as_many_events_as_steps(lcb, tmp_path):
    rng = np.random.default_rng(0)
    n = np.where(np.arange(300) < 220, 20, 5)
    user = np.repeat(np.arange(300), n)
    (tmp_path / "taken").mkdir()
    events = {"user": user, "order": np.arange(len(user)), "item": rng.integers(0, 3, len(user))}
    pq.write_table(pa.table(events), tmp_path / "taken" / "events.parquet")
    pq.write_table(pa.table({"item": [0, 1, 2], "categories": [[0], [1], [2]]}), tmp_path / "taken" / "items.parquet")
    (tmp_path / "taken" / "categories.json").write_text(json.dumps(["crime", "travel", "poetry"]))
    outcome = lcb("learn", "taken", "--reading", "choices", "--classes", 1, "--out", "models")
    assert "candidates tried on 220 users" in outcome.out


def test_choices_and_uniform_rows_and_pca_and_tuning_run(lcb, log):
    words = [
        "--reading",
        "choices",
        "--train-on",
        "uniform:5",
        "--features",
        "pca:2+1",
        "--tune",
        *WORDS[:-1],
        "random",
    ]
    written = json.loads(lcb("evaluate", log, *words, "--json", "-").out)
    assert (written["settings"]["reading"], written["settings"]["features"]) == ("choices", "pca:2+1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the log has ratings; give --like R"),
        (["--like", 9], "every label is 0"),
        (["--like", 5, "--test-users", 500], "500 test users asked for, but only 160 of 160"),
        (["--like", 5, "--steps", 30], "no user has the 30 labelled events"),
        (["--like", 5, "--features", "pca:9"], "3 categories have pca:1 to pca:3"),
        (["--like", 5, "--method", "ips"], "ips needs the propensity of every event"),
        (["--like", 5, "--algorithms", "magic"], "unknown algorithm 'magic'"),
        (["--like", 5, "--algorithms", "lcb-gt"], "needs the true classes"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_line(lcb, log, words, message):
    outcome = lcb("evaluate", log, "--steps", 6, "--workers", 1, *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_log_that_is_not_there_is_refused(lcb):
    outcome = lcb("evaluate", "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_classes_learned_from_a_log_keep_how_its_features_were_made(lcb, log, tmp_path):
    outcome = lcb("learn", log, "--like", 5, "--features", "pca:2+1", "--classes", 2, "--out", "models")
    assert outcome.code == 0, outcome.err
    features, models = load_feature_map(tmp_path / "models"), load_models(tmp_path / "models")
    assert features.categories == ("crime", "travel", "poetry")
    assert models.features == features.names == ("pca1", "pca2", "constant")
    expected = np.sort(models.beta @ features.arms[0])  # of crime, by both kinds
    np.testing.assert_allclose(expected, [0.1, 0.9], atol=0.1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "a,b"], "--columns is for an event table"),
        (["--float32"], "--float32 is for an event table"),
    ],
)
def test_options_of_event_tables_are_refused_for_logs(lcb, log, words, message):
    outcome = lcb("learn", log, "--like", 5, "--out", "models", *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_factors_and_several_categories_lead_to_arms_items(lcb, log):
    outcome = lcb("evaluate", log, "--like", 5, *WORDS, "--features", "factors:3")
    assert outcome.code != 0
    assert "features factors:3 are learned for items" in " ".join(outcome.err.split())
    assert "--arms items" in outcome.err
    words = ["--like", 5, "--steps", 6, "--seeds", 1, "--workers", 1, "--algorithms", "random"]
    hint = "--arms items evaluates the choice of items"
    assert hint in " ".join(lcb("evaluate", log, *words).out.split())
    items = pa.table({"item": [0, 1, 2], "categories": [[0], [1], [2]]})
    pq.write_table(items, log / "items.parquet")
    assert hint not in " ".join(lcb("evaluate", log, *words).out.split())
