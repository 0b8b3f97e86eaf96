from __future__ import annotations

import json

import numpy as np
import pytest

import lcb as library
from conftest import largest_error
from lcb.evaluate.worlds.paper import paper_classes
from support.in_process import InProcess


def test_a_log_becomes_classes_that_can_be_shown(lcb, events, tmp_path):
    learned = lcb("learn", events, "--classes", 5, "--out", "models")
    assert learned.code == 0
    assert "5 classes from 4,000 events of 200 users" in learned.out
    shown = lcb("show", "models", "--json", "-")
    written = json.loads(shown.out)
    assert written.keys() >= {"pi", "beta", "sigma2", "features"}
    assert largest_error(np.array(written["beta"]), paper_classes().beta) < 0.08
    assert sum(written["pi"]) == pytest.approx(1)
    table = lcb("show", "models", "--png", "classes.png")
    assert table.code == 0
    assert "share" in table.out
    assert (tmp_path / "classes.png").read_bytes()[:4] == b"\x89PNG"


def test_without_a_number_of_classes_one_is_chosen_and_said(lcb, events):
    learned = lcb("learn", events, "--learner", "em", "--out", "models", "--json", "-")
    summary = json.loads(learned.out)
    assert summary["classes"] == 5
    assert summary["held_out"]["5"]["mean"] > summary["held_out"]["1"]["mean"]
    chosen, scores, classes, _ = lcb("learn", events, "--out", "models").out.splitlines()
    assert chosen.startswith("chosen: 5 point classes (Gaussian) with bonus 0.5:")
    assert scores.startswith("log density of held-out users' later rewards:")
    assert classes.startswith("5 classes from 4,000 events")
    assert library.load_models("models").provenance["bonus"] == 0.5


def test_learning_into_a_folder_of_models_replaces_them(lcb, events):
    lcb("learn", events, "--classes", 2, "--out", "models")
    assert lcb("learn", events, "--classes", 3, "--out", "models").code == 0
    assert library.load_models("models").n_classes == 3


def test_columns_name_the_features_and_user_columns_are_crossed(lcb, clicks):
    assert lcb("learn", clicks, "--columns", "sport,arts", "--classes", 2, "--out", "plain").code == 0
    assert library.load_models("plain").features == ("sport", "arts")
    crossed = ["--columns", "sport,arts", "--user-columns", "age", "--classes", 2, "--out", "crossed"]
    assert lcb("learn", clicks, *crossed).code == 0
    assert library.load_models("crossed").features == ("sport", "arts", "sport*age", "arts*age")


def test_the_same_seed_learns_the_same_models(lcb, events):
    for out in ("one", "two"):
        lcb("learn", events, "--classes", 4, "--seed", 3, "--out", out)
    np.testing.assert_array_equal(library.load_models("one").beta, library.load_models("two").beta)


def test_a_learner_that_did_not_settle_says_so(lcb, clicks):
    learned = lcb("learn", clicks, "--columns", "sport,arts", "--classes", 6, "--max-steps", 2, "--out", "models")
    assert learned.code == 0
    assert "warning: EM on clicks stopped at 2 steps" in learned.err


BAD = {
    "user,reward,a\nx,1,abc\n": "clicks.csv row 1",
    "user,reward,a\nx,1,0.5\ny,nan,0.5\n": "clicks.csv row 2",
    "user,a\nx,1\n": "reward",
    "reward,a\n1,1\n": "user",
    "user,reward,b\nx,1,1\n": "column",
    "user,reward,a\n": "clicks.csv",
    "": "clicks.csv",
    "user,reward,a\nx,1,0.5\n": "n_classes=2, but only 1 user to learn from",
    "user,reward,a\nx,7,0.5\ny,1,0.5\n": r"outside the declared range",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_tables_are_one_line_exit_2_and_nothing_written(lcb, tmp_path, text):
    (tmp_path / "clicks.csv").write_text(text)
    outcome = lcb("learn", "clicks.csv", "--columns", "a", "--classes", 2, "--reward-range", "0,1", "--out", "models")
    assert outcome.code == 2
    assert BAD[text] in outcome.err
    assert outcome.err.startswith("lcb: ")
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.csv", "--columns", "a", "--out", "models"], "missing.csv"),
        (["clicks.csv", "--out", "models"], "--columns"),
        (["clicks.csv", "--columns", "sport,,arts", "--out", "models"], "empty name"),
        (["clicks.csv", "--columns", "sport,nope", "--out", "models"], "nope"),
        (["clicks.csv", "--columns", "sport", "--reward-range", "0", "--out", "models"], "two numbers"),
        (["clicks.csv", "--columns", "sport", "--reward-range", "1,0", "--out", "models"], "smaller"),
        (["clicks.csv", "--columns", "sport", "--variance", "none", "--out", "models"], "'none' is not one of"),
        (["clicks.csv", "--columns", "sport", "--out", "clicks.csv"], "is a file"),
        (["clicks.csv", "--columns", "sport", "--out", "."], "no models"),
        (["clicks.csv", "--columns", "sport", "--out", "models", "--json", "nowhere/x.json"], "nowhere"),
    ],
)
def test_bad_options_are_one_line_exit_2_and_nothing_written(lcb, clicks, tmp_path, words, message):
    before = sorted(path.name for path in tmp_path.iterdir())
    outcome = lcb("learn", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_damaged_folder_is_refused(lcb, events, tmp_path):
    lcb("learn", events, "--classes", 2, "--out", "models")
    tensors = next((tmp_path / "models").glob("*.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    outcome = lcb("show", "models")
    assert outcome.code == 2
    assert "damaged" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_missing_folder_is_refused(lcb):
    outcome = lcb("show", "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_an_interrupted_learning_leaves_nothing(lcb, events, tmp_path, monkeypatch):
    from lcb.learners.em import gaussian as em

    def interrupt(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(em, "_climb", interrupt)
    before = sorted(tmp_path.iterdir())
    outcome = lcb("learn", events, "--classes", 2, "--out", "models")
    assert outcome.code == 130
    assert sorted(tmp_path.iterdir()) == before


# What is written must not be what is read


@pytest.mark.parametrize(
    "target", ["clicks.csv", "./clicks.csv", "link.csv", "twin.csv", "old/manifest.json", "old/new.json"]
)
def test_learn_does_not_write_over_its_input_or_into_its_models(lcb, clicks, tmp_path, target):
    (tmp_path / "link.csv").symlink_to(clicks)
    (tmp_path / "twin.csv").hardlink_to(clicks)
    library.save_models(paper_classes(), tmp_path / "old")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = lcb("learn", clicks, "--columns", "sport", "--classes", 2, "--out", "old", "--json", target)
    assert outcome.code == 2
    assert outcome.err.startswith(f"lcb: --json {target} ")
    assert outcome.err.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "models/manifest.json"],
        ["--json", "models/new.json"],
        ["--json", "link/new.json"],
        ["--png", "models/new.png"],
        ["--json", "both.json", "--png", "both.json"],
    ],
)
def test_show_does_not_write_into_the_models_it_shows_nor_two_things_into_one_file(lcb, tmp_path, words):
    library.save_models(paper_classes(), tmp_path / "models")
    (tmp_path / "link").symlink_to("models")
    before = sorted(tmp_path.rglob("*"))
    outcome = lcb("show", "models", *words)
    assert outcome.code == 2
    assert outcome.err.startswith(f"lcb: {words[-2]} {words[-1]} ")
    assert outcome.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    library.load_models("models")


def test_an_unknown_suffix_of_a_picture_is_refused_before_anything_is_written(lcb, tmp_path):
    library.save_models(paper_classes(), tmp_path / "models")
    outcome = lcb("show", "models", "--png", "classes.pdf", "--json", "classes.json")
    assert outcome.code == 2
    assert "classes.pdf ends in .pdf" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


ODD_NAMES = ("[/x]", "[bold]", "[red]a[/red]", ":smile:", "a\x1b[31mb", "\ud800")


@pytest.mark.parametrize("n", [1, 20])  # as columns, and as each class's largest weights
def test_features_are_shown_by_their_names_whatever_these_are(lcb, tmp_path, n):
    names = (*ODD_NAMES, *(f"feature number {i}" for i in range(n)))
    beta = np.linspace(2, 1, len(names))[None]
    library.save_models(library.LatentModels([1.0], beta, [0.01], names), tmp_path / "models")
    outcome = lcb("show", "models")
    assert outcome.code == 0, outcome.err
    shown = " ".join(outcome.out.split())
    for name in ("[/x]", "[bold]", "[red]a[/red]", ":smile:", r"a\x1b[31mb", r"\ud800"):
        assert name in shown
    assert json.loads(lcb("show", "models", "--json", "-").out)["features"] == list(names)


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_features_are_drawn_whatever_their_names_are(lcb, tmp_path, suffix):
    beta = np.ones((1, len(ODD_NAMES)))
    library.save_models(library.LatentModels([1.0], beta, [0.01], ODD_NAMES), tmp_path / "models")
    outcome = lcb("show", "models", "--png", f"classes.{suffix}")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / f"classes.{suffix}").stat().st_size > 0


def test_the_help_of_show_names_every_form_of_picture(lcb):
    assert ".png, .svg, .html or .json" in " ".join(lcb("show", "--help").out.split())


@pytest.fixture
def tastes(tmp_path):
    """Clicks of two kinds of people on three fixed arms."""
    rng = np.random.default_rng(0)
    lines = ["user,reward,a,b,c"]
    for u in range(150):
        liked = (0.8, 0.1, 0.1) if u % 2 else (0.1, 0.1, 0.8)
        for arm in rng.integers(3, size=20):
            cells = ["1" if arm == j else "0" for j in range(3)]
            lines.append(f"u{u},{int(rng.random() < liked[arm])},{','.join(cells)}")
    path = tmp_path / "tastes.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_two_valued_rewards_are_learned_as_clicks_and_the_output_says_so(lcb, tastes):
    learned = lcb("learn", tastes, "--columns", "a,b,c", "--out", "models")
    assert learned.code == 0
    first, second, *_ = learned.out.splitlines()
    assert first.startswith("chosen: 2 point classes (Bernoulli) with bonus")
    assert second.startswith("reward per step of held-out users:")
    models = library.load_models("models")
    assert (models.likelihood, models.levels, models.n_classes) == ("bernoulli", (0.0, 1.0), 2)


@pytest.mark.parametrize("learner", ["em", "gibbs", "blocked", "spectral"])
def test_every_learner_finds_the_classes_of_the_log(lcb, events, learner):
    words = {"gibbs": ["--sweeps", 60], "blocked": ["--sweeps", 60], "spectral": ["--classes", 5, "--polish"]}
    learned = lcb("learn", events, "--learner", learner, *words.get(learner, []), "--out", "models")
    assert learned.code == 0, learned.err
    models = library.load_models("models")
    assert models.provenance["learner"] == learner
    assert largest_error(models.beta, paper_classes().beta) < 0.12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--learner", "em", "--sweeps", "50"], "--sweeps is an option of gibbs, blocked and mixture, not of em"),
        (["--learner", "gibbs", "--polish"], "--polish is an option of spectral"),
        (["--learner", "spectral", "--threads", "1"], "--threads"),
        (["--learner", "gibbs", "--likelihood", "bernoulli"], "use em"),
        (["--likelihood", "bernoulli", "--variance", "shared"], "leave it out"),
        (["--learner", "spectral", "--classes", "4"], "4"),
        (["--learner", "spectral", "--classes", "2", "--form", "pooled"], "cannot tell classes apart"),
    ],
)
def test_options_a_learner_does_not_have_are_refused(lcb, tastes, tmp_path, words, message):
    outcome = lcb("learn", tastes, "--columns", "a,b,c", *words, "--out", "models")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "models").exists()


def test_learners_are_compared_in_a_table_and_a_picture(lcb, tastes, tmp_path, monkeypatch):
    monkeypatch.setattr("lcb.evaluate.compare_learners.get_context", InProcess)
    words = ["--columns", "a,b,c", "--classes", 2, "--png", "learners.png", "--json", "learners.json"]
    outcome = lcb("compare-learners", tastes, *words)
    assert outcome.code == 0, outcome.err
    for name in ("em-clicks", "gibbs", "blocked", "spectral-grouped"):
        assert name in outcome.out
    rows = {row["learner"]: row for row in json.loads((tmp_path / "learners.json").read_text())["results"]}
    assert rows["em-clicks"]["classes"] == 2
    assert rows["em-clicks"]["behind_best"] < 1
    assert "cannot tell classes apart" in rows["spectral-pooled"]["note"]
    assert (tmp_path / "learners.png").read_bytes()[:4] == b"\x89PNG"


def test_a_sampler_draws_its_traces(lcb, events, tmp_path):
    words = ["--learner", "gibbs", "--sweeps", 20, "--chains", 1, "--out", "models"]
    assert lcb("learn", events, *words, "--traces", "traces.png").code == 0
    assert (tmp_path / "traces.png").read_bytes()[:4] == b"\x89PNG"
    refused = lcb("learn", events, "--out", "other", "--traces", "traces.png")
    assert refused.code == 2
    assert "--traces is an option of gibbs and blocked" in refused.err


def test_show_tells_classes_apart_where_rewards_have_an_offset(lcb, tmp_path):
    beta = 1000 + np.array([[0.1, 0.5, 0.2], [0.3, 0.1, 0.4]])
    library.save_models(library.LatentModels([0.3, 0.7], beta, [0.1, 0.1], ("a", "b", "c")), tmp_path / "models")
    lines = lcb("show", "models").out.splitlines()
    shown = [line.split() for line in lines if "%" in line]
    assert [row[1] for row in shown] == ["70.0%", "30.0%"]
    np.testing.assert_allclose([[float(cell) for cell in row[3:]] for row in shown], beta[::-1], atol=0.001)
    assert len({tuple(row[3:]) for row in shown}) == 2
    assert "differ little" in lines[-1] + lines[-2]
