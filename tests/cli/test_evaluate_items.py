"""`lcb evaluate --arms items`: the arms are a test user's own items, in worlds whose appeal is known."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

N_ITEMS, N_USERS, N_LABELS = 90, 300, 24
LIKES = np.array([[0.5, 0.2, 0.2], [0.2, 0.5, 0.2]])


def write_world(folder, *, appeal=0.15, classes=True, categories=True, seed=0):
    """Readers of two classes (or of none) and books whose appeal differs by `appeal`."""
    rng = np.random.default_rng(seed)
    category, own = rng.integers(0, 3, N_ITEMS), rng.normal(0.0, appeal, N_ITEMS)
    likes = LIKES if classes else np.tile(LIKES.mean(axis=0), (2, 1))
    kind = rng.integers(0, 2, N_USERS)
    item = np.concatenate([rng.permutation(N_ITEMS)[:N_LABELS] for _ in range(N_USERS)])
    user = np.repeat(np.arange(N_USERS), N_LABELS)
    stars = np.where(rng.random(len(user)) < likes[kind[user], category[item]] + own[item], 5, 2)
    folder.mkdir()
    order = np.tile(np.arange(N_LABELS), N_USERS)
    pq.write_table(pa.table({"user": user, "order": order, "item": item, "rating": stars}), folder / "events.parquet")
    if categories:
        of_items = {"item": np.arange(N_ITEMS), "categories": [[one] for one in category.tolist()]}
        pq.write_table(pa.table(of_items), folder / "items.parquet")
        (folder / "categories.json").write_text(json.dumps(["crime", "travel", "poetry"]))
    return folder


def evaluate(lcb, folder, *words):
    outcome = lcb("evaluate", folder, "--arms", "items", "--steps", 8, "--seeds", 2, "--workers", 1, *words)
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("books") / "log")


def test_effects_and_classes_beat_popularity_which_beats_categories(lcb, world):
    written = json.loads(evaluate(lcb, world, "--like", 5, "--json", "-").out)
    rate = {row["algorithm"]: row["relative_ctr"] for row in written["results"]}
    assert rate["lcb-auto"] > rate["popularity"] > rate["category-popularity"] > rate["random"]
    assert rate["lcb-auto"] > rate["lcb-auto-no-effects"]
    assert rate["linucb-population-effects"] > rate["linucb-population"]
    assert rate["linucb-individual-effects"] > rate["linucb-individual"]
    assert rate["matrix-factorisation"] > rate["category-popularity"]
    assert all(row["se"] > 0 for row in written["results"])
    assert written["settings"]["arm_kind"] == "item"
    assert (written["settings"]["method"], written["settings"]["steps"]) == ("items", 8)
    used = written["results"][0]["diagnostics"]
    assert used["labels_per_user"] == N_LABELS
    assert used["taken"] == pytest.approx(8 / N_LABELS)
    assert max(rate.values()) * written["settings"]["logged_rate"] <= used["ceiling"] + 0.02


def test_steps_are_lowered_where_labels_are_few_and_the_output_says_so(lcb, world):
    words = ["--like", 5, "--steps", 20, "--seeds", 1, "--algorithms", "popularity"]
    told = " ".join(lcb("evaluate", world, "--arms", "items", "--workers", 1, *words).out.split())
    assert "8 steps instead of 20: a test user needs 3 labels for each step, and 300 users have 24" in told


def test_choices_say_their_bias(lcb, world):
    told = evaluate(lcb, world, "--reading", "choices", "--algorithms", "popularity,random", "--seeds", 1).out
    said = " ".join(told.split())
    assert "66 other items, all that somebody took, per user stand beside those taken, as labels 0" in said
    assert "popularity and item effects look better than they are" in said


def test_a_log_without_categories_has_factors(lcb, tmp_path):
    folder = write_world(tmp_path / "log", categories=False)
    written = json.loads(evaluate(lcb, folder, "--like", 5, "--features", "factors:2", "--seeds", 1, "--json", "-").out)
    rate = {row["algorithm"]: row["relative_ctr"] for row in written["results"]}
    assert "category-popularity" not in rate
    assert rate["lcb-auto"] > 1.02 * rate["random"]
    assert written["settings"]["features"] == "factors:2"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "queue"], "--method with --arms items, which is a method of its own"),
        (["--tune"], "--tune with --arms items"),
        (["--algorithms", "lcb-mean"], "lcb-mean does not choose among items; choose from lcb-auto"),
        (["--test-users", 301], "301 test users asked for, but only 300 have the 24 labels"),
    ],
)
def test_what_it_cannot_do_is_refused(lcb, world, words, told):
    outcome = lcb("evaluate", world, "--arms", "items", "--like", 5, "--steps", 8, "--workers", 1, *words)
    assert outcome.code != 0
    assert told in " ".join(outcome.err.split())
