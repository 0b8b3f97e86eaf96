from __future__ import annotations

import json

import pytest

from lcb.evaluate.algorithms import ALGORITHMS

SMALL = ["--users", 20, "--steps", 3, "--arms", 5, "--runs", 2, "--workers", 1]


def test_what_tune_writes_simulate_reads(lcb, tmp_path):
    words = ["--algorithms", "lcb-gt,linucb-individual,random", "--png", "grid.png", "--json", "same.json"]
    outcome = lcb("tune", *SMALL, *words)
    assert outcome.code == 0, outcome.err
    for text in ("lcb-gt", "settings in tuned.json", "figure in grid.png", "as good"):
        assert text in outcome.out
    written = json.loads((tmp_path / "tuned.json").read_text())
    assert written == json.loads((tmp_path / "same.json").read_text())
    assert list(written) == ["settings", "chosen", "grid"]
    sizes = {"users": 20, "steps": 3, "arms": 5, "runs": 2, "seed": 0, "noise": pytest.approx(0.1)}
    assert sizes.items() <= written["settings"].items()
    assert list(written["chosen"]) == list(written["grid"]) == ["lcb-gt", "linucb-individual", "random"]
    for name, rows in written["grid"].items():
        best = min(rows, key=lambda row: row["regret_per_user"])
        assert best["settings"] == written["chosen"][name]
        assert all({"settings", "regret_per_user", "se"} <= row.keys() for row in rows)
    assert (tmp_path / "grid.png").read_bytes()[:4] == b"\x89PNG"
    words = ["--algorithms", "lcb-gt,random", "--settings", "tuned.json", "--users", 5, "--steps", 2, "--runs", 1]
    used = json.loads(lcb("simulate", *words, "--workers", 1, "--json", "-").out)["results"]
    assert [row["settings"] for row in used] == [written["chosen"]["lcb-gt"], {}]


def test_a_hand_written_file_of_settings_is_enough(lcb, tmp_path):
    (tmp_path / "mine.json").write_text('{"chosen": {"lcb-gt": {"eta": 3}}}')
    words = ["--algorithms", "lcb-gt", "--users", 5, "--steps", 2, "--runs", 1, "--workers", 1, "--json", "-"]
    used = json.loads(lcb("simulate", "--settings", "mine.json", *words).out)["results"]
    assert used[0]["settings"] == {"eta": 3.0, "uniform": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "mine.json could not be read"),
        ("{", "mine.json is not JSON"),
        ("\xff", "mine.json is not JSON"),
        ("3", "mine.json has no settings"),
        ('{"chosen": {"magic": {}}}', "mine.json: unknown algorithm 'magic'; use one of: lcb-auto, lcb,"),
        ('{"chosen": {"lcb": {"width": 1}}}', "mine.json: lcb has no setting 'width'; it has eta, uniform"),
        ('{"chosen": {"lcb": {"eta": "much"}}}', "mine.json: lcb has eta 'much'; give a value such as 1.0"),
    ],
)
def test_bad_files_of_settings_are_one_line_and_exit_2(lcb, tmp_path, text, message):
    if text is not None:
        (tmp_path / "mine.json").write_bytes(text.encode("latin-1"))
    outcome = lcb("simulate", "--settings", "mine.json", "--users", 5, "--runs", 1)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_setting_that_the_algorithm_refuses_is_said_with_its_name(lcb, tmp_path):
    (tmp_path / "mine.json").write_text('{"chosen": {"lcb-gt": {"uniform": 7}}}')
    words = ["--algorithms", "lcb-gt", "--users", 5, "--steps", 2, "--runs", 1, "--workers", 1]
    outcome = lcb("simulate", "--settings", "mine.json", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("lcb: lcb-gt: uniform=7")


def test_all_algorithms_that_need_nothing_special_are_tuned_by_default(lcb, monkeypatch):
    asked = []

    def run(world, algorithms, **sizes):
        asked.append(tuple(algorithms))
        raise KeyboardInterrupt

    monkeypatch.setattr("lcb.evaluate.tuning.tune_simulation.tune", run)
    for words in ([], ["--algorithms", "all"], ["--algorithms", "lcb,random"]):
        assert lcb("tune", *words).code == 130
    everything = tuple(name for name, algorithm in ALGORITHMS.items() if not algorithm.needs)
    assert asked == [everything, everything, ("lcb", "random")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithms", "magic"], "unknown algorithm 'magic'"),
        (["--algorithms", "lcb,"], "empty name"),
        (["--out", "nowhere/tuned.json"], "nowhere"),
        (["--out", "same.json", "--json", "./same.json"], "same.json is also"),
        (["--out", "both.png", "--png", "both.png"], "both.png is also both.png"),
        (["--models", "classes.csv", "--out", "classes.csv"], "classes.csv is also classes.csv"),
        (["--png", "grid.pdf"], "grid.pdf"),
        (["--noise", "0"], "--noise 0"),
        (["--runs", "0"], "'--runs'"),
        (["--most", "0"], "'--most'"),
    ],
)
def test_bad_options_are_one_line_exit_2_and_nothing_written(lcb, tmp_path, words, message):
    (tmp_path / "classes.csv").write_text("1,0\n0,1\n")
    outcome = lcb("tune", *SMALL[:2], "--workers", 1, "--algorithms", "random", "--runs", 1, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["classes.csv"]
    assert (tmp_path / "classes.csv").read_text() == "1,0\n0,1\n"


def test_simulate_does_not_write_over_its_settings(lcb, tmp_path):
    (tmp_path / "mine.json").write_text('{"chosen": {}}')
    outcome = lcb("simulate", "--settings", "mine.json", "--json", "mine.json")
    assert outcome.code == 2
    assert (tmp_path / "mine.json").read_text() == '{"chosen": {}}'


def test_a_tuning_cut_short_leaves_the_old_file(lcb, tmp_path, monkeypatch):
    def interrupt(*args, **sizes):
        raise KeyboardInterrupt

    monkeypatch.setattr("lcb.evaluate.tuning.tune_simulation.play_run", interrupt)
    (tmp_path / "tuned.json").write_text("old")
    assert lcb("tune", *SMALL, "--algorithms", "random").code == 130
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("tuned.json", "old")]


def test_what_was_refused_and_what_lies_at_an_end_is_said(lcb, monkeypatch):
    from dataclasses import replace

    monkeypatch.setitem(
        ALGORITHMS, "lcb-gt", replace(ALGORITHMS["lcb-gt"], grid={"eta": (1.0,), "uniform": (0.0, 7.0)})
    )
    monkeypatch.setitem(
        ALGORITHMS,
        "linucb-individual",
        replace(ALGORITHMS["linucb-individual"], grid={"width": (9.0, 8.0), "ridge": (1.0,)}),
    )
    out = lcb("tune", *SMALL, "--algorithms", "lcb-gt,linucb-individual").out
    assert "1 of 2 settings were refused: lcb-gt: uniform=7" in out
    assert "linucb-individual width" in out
