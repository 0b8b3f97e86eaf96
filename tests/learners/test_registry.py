"""A learner is known everywhere once it is in the table of learners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lcb
from lcb.cli.app import run
from lcb.errors import InputError
from lcb.evaluate.compare_learners import list_contenders, run_contender
from lcb.learners import registry
from lcb.learners.likelihood import choose_for_range
from lcb.learners.registry import LEARNERS, format_table, get_learner
from lcb.serve.config.settings import Learning

ROOT = Path(__file__).parents[2]
LOG = lcb.EventLog.from_rows(np.arange(60) // 3, np.ones((60, 1)), np.tile([0.0, 1.0, 0.0], 20))


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(registry.LEARNERS, "toy", "support.toy_learner")


@pytest.mark.usefixtures("toy")
def test_a_registered_learner_is_fitted_by_name():
    found = lcb.fit(LOG, rng=np.random.default_rng(0), learner="toy", tol=0.25)
    assert found.models.provenance["learner"] == "toy"
    assert found.models.provenance["tol"] == found.trace[0] == 0.25
    assert found.models.beta.item() == pytest.approx(1 / 3, abs=0.01)
    with pytest.raises(InputError, match="learner toy models Gaussian rewards only"):
        lcb.fit(LOG, rng=np.random.default_rng(0), learner="toy", likelihood="bernoulli")


@pytest.mark.usefixtures("toy")
def test_a_registered_learner_runs_from_the_command_line(tmp_path, capsys):
    events, models = tmp_path / "events.csv", tmp_path / "models"
    events.write_text("user,reward,a\n" + "".join(f"{i // 3},{i % 2},1\n" for i in range(60)))
    assert run(["learn", str(events), "--columns", "a", "--learner", "toy", "--tol", "0.5", "--out", str(models)]) == 0
    assert lcb.load_models(models).provenance["learner"] == "toy"
    assert "learned by toy" in capsys.readouterr().out
    with pytest.raises(InputError, match="--starts is an option of em, spectral and personal, not of toy"):
        run(["learn", str(events), "--columns", "a", "--learner", "toy", "--starts", "2", "--out", str(models)])


def test_a_registered_learner_is_in_the_help():
    code = (
        "from lcb.learners.registry import LEARNERS; LEARNERS['toy'] = 'support.toy_learner'\n"
        "from lcb.cli.app import run; run(['learn', '--help']); run(['serve', '--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "<em|gibbs|blocked|spectral|personal|mixture|toy>" in shown
    assert "em, gibbs, blocked, spectral, personal, mixture, toy" in " ".join(shown.split())


@pytest.mark.usefixtures("toy")
def test_a_registered_learner_is_compared_with_the_others():
    contenders = {one.name: one for one in list_contenders(two_valued=True)}
    assert contenders["toy"].learner == "toy"
    outcome = run_contender(contenders["toy"], LOG, LOG, None, seed=0)
    assert outcome.n_classes == 1
    assert np.isfinite(outcome.score)


@pytest.mark.usefixtures("toy")
def test_a_registered_learner_can_be_set_in_the_service():
    assert Learning(learner="toy").learner == "toy"
    assert choose_for_range(LOG, get_learner("toy"), (0.0, 1.0)) == "gaussian"


@pytest.mark.usefixtures("toy")
def test_a_registered_learner_is_in_the_table_of_the_docs():
    assert "| `toy` | one regression for all | statistics | sampled | Gaussian | `tol=0.5` |" in format_table()


def test_the_docs_have_the_table_of_learners():
    assert format_table() in (ROOT / "docs/learners/index.md").read_text()


@pytest.mark.filterwarnings("ignore::lcb.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_what_a_learner_says_of_itself_is_true(name):
    learner = get_learner(name)
    x, rng = np.random.default_rng(1).normal(size=(600, 2)), np.random.default_rng(0)
    user, reward = np.arange(600) // 6, x[:, 0] * (np.arange(600) // 6 % 2) + x[:, 1]
    log = lcb.EventLog.from_rows(user, x, reward + 0.1 * rng.normal(size=600))
    few = {key: value for key, value in {"n_sweeps": 20, "n_chains": 1}.items() if key in learner.settings}
    found = learner.fit(log, 2, rng=rng, **few)
    assert found.models.n_classes == 2
    if learner.start:
        start = found.models if learner.start == "models" else found.models.posterior(log.stats).argmax(axis=1)
        assert learner.fit(log, 2, rng=rng, start=start, **few).models.n_classes == 2
    if learner.finds_n_classes:
        assert learner.fit(log, None, rng=rng, **few).models.n_classes >= 1
    if learner.needs_rows:
        with pytest.raises(InputError, match=f"{name} learns from rows"):
            lcb.fit(log.stats, 2, rng=rng, learner=name)
    if learner.fit_clicks:
        assert learner.fit_clicks(LOG, 1, rng=rng).models.likelihood == "bernoulli"


def test_a_learner_that_is_not_there_is_refused_with_those_that_are():
    message = "unknown learner 'magic'; the learners are {}em, gibbs, blocked, spectral, personal, mixture"
    with pytest.raises(InputError, match=message.format("")):
        lcb.fit(LOG, rng=np.random.default_rng(0), learner="magic")
    with pytest.raises(InputError, match=message.format("auto, ")):
        Learning(learner="magic")
