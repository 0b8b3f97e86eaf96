from __future__ import annotations

import json

import pytest


def test_simulate_writes_the_promised_json(lcb, tmp_path):
    outcome = lcb(
        "simulate", "--algorithms", "lcb,linucb-population,random", "--users", 60, "--steps", 5, "--arms", 7,
        "--noise", 0.2, "--runs", 2, "--seed", 3, "--workers", 1, "--json", "out.json",
    )  # fmt: skip
    assert outcome.code == 0
    assert "linucb-population" in outcome.out
    written = json.loads((tmp_path / "out.json").read_text())
    settings = {"users": 60, "steps": 5, "arms": 7, "noise": 0.2, "runs": 2, "seed": 3}
    assert {key: pytest.approx(value) for key, value in settings.items()}.items() <= written["settings"].items()
    assert [row["algorithm"] for row in written["results"]] == ["lcb", "linucb-population", "random"]


def test_all_means_all_that_need_nothing_this_world_lacks(lcb):
    words = ["--algorithms", "all", "--users", 2, "--steps", 4, "--runs", 1, "--workers", 1, "--json", "-"]
    names = [row["algorithm"] for row in json.loads(lcb("simulate", *words).out)["results"]]
    assert {"lcb", "random", "lcb-exp4p", "exp4p-population"} <= set(names)
    assert "exp4p-enum" not in names


def test_a_csv_gives_the_true_classes(lcb, tmp_path):
    (tmp_path / "classes.csv").write_text("1,0,0\n0,1,0\n")
    words = ["--algorithms", "lcb-gt", "--users", 20, "--steps", 3, "--runs", 1, "--workers", 1, "--json", "-"]
    settings = json.loads(lcb("simulate", "--models", "classes.csv", *words).out)["settings"]
    assert (settings["classes"], settings["features"], settings["noise"]) == (2, 3, pytest.approx(0.1))


def test_a_folder_of_models_gives_the_true_classes_with_their_own_noise(lcb, events):
    lcb("learn", events, "--classes", 3, "--out", "models")
    words = ["--algorithms", "lcb-gt", "--users", 20, "--steps", 3, "--runs", 1, "--workers", 1, "--json", "-"]
    own = json.loads(lcb("simulate", "--models", "models", *words).out)["settings"]
    assert own["classes"] == 3
    assert own["noise"] != pytest.approx(0.1, abs=1e-6)
    given = json.loads(lcb("simulate", "--models", "models", "--noise", "0.5", *words).out)["settings"]
    assert given["noise"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithms", "magic"], "unknown algorithm 'magic'"),
        (["--users", "0"], "'--users'"),
        (["--noise", "0"], "--noise 0"),
        (["--noise", "nan"], "--noise nan"),
        (["--models", "nowhere.csv"], "nowhere.csv"),
        (["--models", "header.csv"], "header.csv row 1 column 1 is 'a'"),
        (["--models", "ragged.csv"], "ragged.csv row 2 has 1 weights"),
        (["--models", "empty.csv"], "empty.csv is empty"),
        (["--json", "nowhere/x.json"], "nowhere"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(lcb, tmp_path, words, message):
    (tmp_path / "header.csv").write_text("a,b\n1,2\n")
    (tmp_path / "ragged.csv").write_text("1,2\n1\n")
    (tmp_path / "empty.csv").write_text("")
    outcome = lcb("simulate", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_figure_1_is_drawn(lcb, tmp_path):
    outcome = lcb("reproduce", "fig-1", "--out", "figures", "--json", "fig-1.json")
    assert outcome.code == 0
    assert (tmp_path / "figures" / "fig-1.png").read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads((tmp_path / "fig-1.json").read_text())["beta"]) == 5


@pytest.mark.parametrize("figure", ["fig-2a", "fig-2b"])
def test_figures_2_are_drawn_from_a_run(lcb, tmp_path, monkeypatch, figure):
    from lcb.experiments import fig_2a, fig_2b

    monkeypatch.setattr(fig_2a, "N_USERS", 120)
    monkeypatch.setattr(fig_2b, "N_USERS", 60)
    monkeypatch.setattr(fig_2b, "STEPS", (3, 6))
    outcome = lcb("reproduce", figure, "--runs", 1, "--json", "out.json")
    assert outcome.code == 0
    assert "figure in figures" in outcome.out
    assert (tmp_path / "figures" / f"{figure}.png").stat().st_size > 10_000
    json.loads((tmp_path / "out.json").read_text())


def test_an_unknown_figure_is_refused(lcb):
    assert lcb("reproduce", "fig-9").code == 2


def test_the_demo_tells_its_story(lcb, tmp_path, monkeypatch):
    monkeypatch.setattr("lcb.demo.story.N_PAST", 200)
    outcome = lcb("demo", "--readers", 200, "--out", "demo")
    assert outcome.code == 0
    assert "a new reader, of the kind" in outcome.out
    assert "against linucb-population" in outcome.out
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert made == {"classes.png", "new-reader.png", "clicks.png", "models"}


@pytest.mark.parametrize("target", ["classes.csv", "link.csv"])
def test_simulate_does_not_write_over_its_classes(lcb, tmp_path, target):
    (tmp_path / "classes.csv").write_text("1,0\n0,1\n")
    (tmp_path / "link.csv").symlink_to("classes.csv")
    outcome = lcb("simulate", "--models", "classes.csv", "--json", target)
    assert outcome.code == 2
    assert outcome.err.startswith(f"lcb: --json {target} ")
    assert (tmp_path / "classes.csv").read_text() == "1,0\n0,1\n"


@pytest.mark.parametrize("words", [["reproduce", "fig-1"], ["demo", "--readers", "200"]])
def test_a_folder_that_cannot_be_written_is_refused_before_the_run(lcb, tmp_path, monkeypatch, words):
    def refuse(**settings):
        raise PermissionError(13, "Permission denied")

    def run(*args, **settings):
        raise AssertionError("the run has begun")

    monkeypatch.setattr("lcb.storage.files.TemporaryFile", refuse)
    monkeypatch.setattr("lcb.experiments.fig_1.run", run)
    monkeypatch.setattr("lcb.demo.story.build_world", run)
    outcome = lcb(*words, "--out", "a/b")
    assert outcome.code == 2
    assert "a/b" in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["reproduce", "fig-1"], ["demo"]])
def test_a_run_cut_short_leaves_no_empty_folder(lcb, tmp_path, monkeypatch, words):
    def interrupt(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("lcb.experiments.fig_1.run", interrupt)
    monkeypatch.setattr("lcb.demo.story.build_world", interrupt)
    outcome = lcb(*words, "--out", "a/b")
    assert outcome.code == 130
    assert outcome.err == "lcb: interrupted; nothing half-written is left behind\n"
    assert list(tmp_path.iterdir()) == []


def test_the_demo_does_not_replace_what_is_not_models(lcb, tmp_path, monkeypatch):
    monkeypatch.setattr("lcb.demo.story.build_world", None)
    (tmp_path / "demo" / "models").mkdir(parents=True)
    (tmp_path / "demo" / "models" / "diary.txt").touch()
    outcome = lcb("demo")
    assert outcome.code == 2
    assert "diary.txt" in outcome.err


def test_a_figure_and_its_numbers_are_not_one_file(lcb, tmp_path):
    (tmp_path / "figures").mkdir()
    outcome = lcb("reproduce", "fig-1", "--json", "figures/fig-1.png")
    assert outcome.code == 2
    assert outcome.err.startswith("lcb: --json figures/fig-1.png ")
    assert list((tmp_path / "figures").iterdir()) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_names_files_whatever_their_names_are(monkeypatch, capsys, terminal):
    from lcb import progress

    monkeypatch.setattr(progress, "_PLAIN_EVERY", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar() as report:
        report("reading [/x].csv", 1, None)
    assert "[/x].csv" in capsys.readouterr().err


def test_a_bandit_that_is_uniform_by_its_theory_says_so(lcb):
    words = ["--algorithms", "lcb-exp4p-theory,random", "--users", 4, "--runs", 1, "--workers", 1]
    assert "lcb-exp4p-theory: " in lcb("simulate", *words).out
    rows = json.loads(lcb("simulate", *words, "--json", "-").out)["results"]
    assert "uniform" in rows[0]["note"]
    assert rows[1]["note"] is None


def test_arms_without_features_have_a_world_of_their_own(lcb, tmp_path):
    (tmp_path / "means.csv").write_text("0.9,0.1,0.5\n0.2,0.8,0.5\n")
    words = ["--models", "means.csv", "--users", 30, "--steps", 8, "--runs", 1, "--workers", 1, "--json", "-"]
    names = "ucb-individual,maillard-mannor,umucb,tucb,factorised"
    outcome = lcb("simulate", "--fixed-arms", "--algorithms", names, *words)
    assert [row["algorithm"] for row in json.loads(outcome.out)["results"]] == names.split(",")
    refused = lcb("simulate", "--algorithms", "tucb", *words)
    assert refused.code == 2
    assert "--fixed-arms" in refused.err


def test_no_algorithms_at_all_are_refused(lcb):
    assert "--algorithms is empty" in lcb("simulate", "--algorithms", "").err


def test_all_maps_from_contexts_are_counted_at_the_steps_asked(lcb):
    assert "20^20" in lcb("simulate", "--algorithms", "exp4p-enum", "--users", 5, "--runs", 1, "--workers", 1).err


@pytest.mark.parametrize("words", [["--gap", "1e-200"], ["--users", "9" * 180], ["--features", "²"]])
def test_sizes_beyond_reason_are_refused_in_one_line(lcb, words):
    outcome = lcb("reproduce", "table-1", *words)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
