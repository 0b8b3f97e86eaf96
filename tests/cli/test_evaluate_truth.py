"""`lcb evaluate` as a whole command, on logs whose truth is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.split import Plan, choose_sizes
from lcb.evaluate.worlds.logged import LoggedWorld
from support.truth import true_gain, write_folder

N_STEPS, N_ARMS = 8, 5
WORDS = ["--steps", N_STEPS, "--algorithms", "random,lcb-mean", "--seeds", 1, "--workers", 1, "--json", "-"]


@pytest.mark.parametrize(("n_labels", "n_classes"), [(N_STEPS, 2), (2 * N_STEPS * N_ARMS, 3)])
def test_the_answer_covers_the_truth_with_few_labels_and_with_many(lcb, tmp_path, n_labels, n_classes):
    world = LoggedWorld(n_categories=N_ARMS, n_classes=3, seed=11)
    log = world.write_log(500, n_labels, exactly=True)
    outcome = lcb("evaluate", write_folder(log, tmp_path / "log"), *WORDS)
    assert outcome.code == 0, outcome.err
    written = json.loads(outcome.out)
    assert written["settings"]["method"] == "filled"
    assert written["settings"]["classes"] == n_classes  # chosen on the training users; few labels show only two
    answer = written["answer"]
    assert answer["algorithm"] == "lcb-mean"  # the best, not the first
    source = open_source(log, "queue", "labels")
    plan = Plan(*choose_sizes(source.n_events, N_STEPS), N_STEPS, n_classes)
    truth = true_gain(world, source, plan, "lcb-mean")
    assert answer["low"] <= truth <= answer["high"]
    assert answer["high"] - answer["low"] < 80
    row = written["results"][1]
    assert row["diagnostics"]["labels_per_user_and_arm"] == pytest.approx(n_labels / N_ARMS)
    assert (row["diagnostics"]["withheld"] > 0.5) == (n_labels == N_STEPS)
    assert "labels per user and arm" in row["diagnostics"]["sentence"]


def test_a_queue_that_runs_out_gives_results_and_no_answer(lcb, tmp_path):
    log = LoggedWorld(n_categories=N_ARMS, n_classes=3, seed=11).write_log(300, N_STEPS, exactly=True)
    folder = write_folder(log, tmp_path / "log")
    words = ["--method", "queue", "--classes", 3, *WORDS]
    outcome = lcb("evaluate", folder, *words)
    assert outcome.code == 0
    written = json.loads(outcome.out)
    assert written["answer"] is None
    assert "had no label left" in written["why"]
    for row in written["results"]:
        numbers = [row[key] for key in ("relative_ctr", "se", "vs_population_percent", "vs_se")]
        assert np.isfinite(numbers).all()
    assert [row["algorithm"] for row in written["results"]] == ["random", "lcb-mean", "linucb-population"]
    assert "no answer: " in lcb("evaluate", folder, *words[:-2]).out


def test_a_replay_whose_log_ends_too_soon_gives_no_answer(lcb, tmp_path):
    log = LoggedWorld(n_categories=N_ARMS, n_classes=3, seed=11).write_log(300, N_STEPS, exactly=True)
    words = ["--method", "replay", "--classes", 3, *WORDS]
    written = json.loads(lcb("evaluate", write_folder(log, tmp_path / "log"), *words).out)
    assert written["answer"] is None
    assert "the log ended before it showed the arm chosen" in written["why"]
