"""`lcb report`: one page about a log whose classes are known; and the way from there to a service."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest

from lcb.errors import ConvergenceWarning
from lcb.evaluate.offline import evaluate_log
from lcb.reports import findings

TOPICS = ("sport", "opera", "comets")
LIKES = np.array([[0.9, 0.1, 0.2], [0.1, 0.8, 0.2]])


@pytest.fixture
def visits(tmp_path):
    """Readers of two kinds, 60 and 40 percent; stories with a topic and a headline."""
    rng = np.random.default_rng(0)
    kind = (np.arange(150) >= 90).astype(int)
    rows = ["visitor,article,topic,headline,clicked"]
    for user in range(150):
        for story in rng.integers(0, 9, 9 + user % 5):
            clicked = int(rng.random() < LIKES[kind[user], story % 3])
            rows.append(f"v{user},s{story},{TOPICS[story % 3]},Story <{story}>,{clicked}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(rows))
    return path


WORDS = ("--user", "visitor", "--item", "article", "--reward", "clicked", "--item-categories", "topic")


def test_the_page_says_who_would_gain_and_loads_nothing(lcb, visits, tmp_path):
    page = tmp_path / "page.html"
    outcome = lcb("report", visits, *WORDS, "--seeds", 1, "--workers", 1, "--out", page, "--json", "found.json")
    assert outcome.code == 0, outcome.err
    assert "more clicks than one model for all users" in outcome.out
    html = page.read_text()
    for title in ("What is in the log", "Who would gain", "How much, and how sure", "What the log cannot say"):
        assert f"<h2>{title}</h2>" in html
    assert html.count("<svg") == 3
    assert not re.search(r'(src|href)="?(https?:)?//', html)
    assert "nan" not in html
    assert f"lcb import {visits} --user visitor" in html
    assert "lcb serve --models models --items log" in html
    found = json.loads((tmp_path / "found.json").read_text())
    assert [one["name"].split(",")[0] for one in found["classes"]] == ["more sport", "more opera"]
    assert found["best_for_everybody"] == "sport"
    assert found["classes"][0]["gain"] == 0
    assert abs(found["classes"][1]["gain"] - 0.7) < 0.15
    assert found["evaluation"]["answer"]["percent"] > 5
    assert any("no propensities" in line for line in found["limits"])


def test_rewards_are_means_of_what_was_shown_where_weights_would_be_negative(lcb, tmp_path):
    rng = np.random.default_rng(0)
    topics = ("sport", "sport|dull", "opera", "opera|dull")  # nothing is dull alone: its weight is below 0
    likes = np.array([[0.9, 0.3, 0.4, 0.1], [0.3, 0.1, 0.8, 0.3]])
    rows = ["user,item,topic,reward"]
    for user in range(200):
        for story in rng.integers(0, 4, 12):
            rows.append(f"u{user},s{story},{topics[story]},{int(rng.random() < likes[int(user >= 120), story])}")
    (tmp_path / "log.csv").write_text("\n".join(rows))
    words = ("--item-categories", "topic", "--seeds", 1, "--workers", 1, "--out", "page.html", "--json", "found.json")
    assert lcb("report", tmp_path / "log.csv", *words).code == 0
    found = json.loads((tmp_path / "found.json").read_text())
    rewards = found["mean_rewards"]
    own = dict(zip(rewards["arms"], np.array(rewards["classes"]).T, strict=True))
    mean = likes.reshape(2, 2, 2).mean(axis=2)  # of both topics, dull or not
    assert own["sport"] == pytest.approx(mean[:, 0], abs=0.1)
    assert own["opera"] == pytest.approx(mean[:, 1], abs=0.1)
    assert own["dull"] == pytest.approx(likes[:, [1, 3]].mean(axis=1), abs=0.1)
    assert found["best_for_everybody"] == "sport"
    assert "expected reward" not in (tmp_path / "page.html").read_text().lower()


def test_a_log_without_an_answer_gets_a_page_that_says_so(lcb, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"u{i},{'ab'[rng.integers(2)]},{rng.integers(2)}" for i in range(60)]
    (tmp_path / "short.csv").write_text("\n".join(["user,item,reward", *rows]))
    outcome = lcb("report", tmp_path / "short.csv", "--workers", 1, "--out", tmp_path / "page.html")
    assert outcome.code == 0, outcome.err
    html = (tmp_path / "page.html").read_text()
    assert "cannot tell how much" in html
    assert "no user has the 3 labelled events that a test needs" in html


def test_a_page_is_not_written_over_the_log(lcb, visits):
    assert "ends in .html" in lcb("report", visits, "--out", "page.pdf").err
    assert "has no column user" in lcb("report", visits, "--out", "page.html").err


def test_import_learn_and_the_catalogue_fit_by_construction(lcb, visits, tmp_path):
    from lcb.cli.catalogue import read_catalogue
    from lcb.storage.logs.log import open_log
    from lcb.storage.models.folder import load_feature_map

    log, models = tmp_path / "log", tmp_path / "models"
    assert lcb("import", visits, *WORDS, "--title", "headline", "--out", log).code == 0
    assert open_log(log).titles.to_pylist()[:2] == ["Story <0>", "Story <1>"]
    assert lcb("learn", log, "--classes", 2, "--learner", "em", "--out", models).code == 0
    assert "sport" in lcb("show", models).out
    body, categories = read_catalogue(str(log), str(models))
    items = json.loads(body)["items"]
    assert {item["id"] for item in items} == {f"s{i}" for i in range(9)}
    assert set(categories) == set(TOPICS)
    features = load_feature_map(models)
    for item in items:
        assert item["title"] == f"Story <{item['id'][1:]}>"
        assert features.of_names(item["categories"]).shape == (3,)


def test_the_gain_is_estimated_over_items_where_they_have_numbers_of_their_own(lcb, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["user,item,reward,section,taste"]
    taste = rng.choice([-1.0, 1.0], 30)
    for user in range(60):
        for item in rng.permutation(30)[:15].tolist():
            clicked = int(rng.random() < 0.5 + 0.45 * taste[item] * (1 if user % 2 else -1))
            lines.append(f"u{user},i{item},{clicked},{'ab'[item % 2]},{taste[item]}")
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    words = ("--item-categories", "section", "--item-features", "taste", "--out", "log")
    assert lcb("import", "visits.csv", *words).code == 0
    outcome = lcb("report", "log", "--seeds", 1, "--workers", 1, "--json", "found.json")
    assert outcome.code == 0, outcome.err
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["evaluation"]["settings"]["method"] == "items"
    assert found["evaluation"]["answer"]["algorithm"] == "lcb-auto"
    assert any("1 number of their own" in line for line in found["limits"])


def test_warnings_are_told_in_words_and_bad_rows_name_the_command_that_skips_them(lcb, visits, tmp_path, monkeypatch):
    def warn_first(function, message):
        def run(*args, **settings):
            warnings.warn(message, ConvergenceWarning, stacklevel=1)
            return function(*args, **settings)

        return run

    monkeypatch.setattr(findings, "learn_chosen", warn_first(findings.learn_chosen, "classes stopped early"))
    prepare = warn_first(evaluate_log.prepare_training, "an algorithm stopped early")
    monkeypatch.setattr(evaluate_log, "prepare_training", prepare)
    words = (*WORDS, "--seeds", 1, "--workers", 1, "--out", tmp_path / "page.html")
    outcome = lcb("report", visits, *words)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("warning: classes stopped early\n") == 1
    assert "ConvergenceWarning" not in outcome.err
    visits.write_text(visits.read_text() + "\nv1,s1,sport,Story,maybe")
    outcome = lcb("report", visits, *words)
    assert outcome.code != 0
    assert "leave them out with lcb import --on-error skip" in " ".join(outcome.err.split())
