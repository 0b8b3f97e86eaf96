from __future__ import annotations

import os

import numpy as np
import pytest

from conftest import rows_of
from lcb.errors import InputError
from lcb.evaluate import compare_learners as module
from lcb.evaluate.compare_learners import Contender, compare_learners, measure_gaps
from lcb.evaluate.worlds.paper import equal_classes
from lcb.event_log import EventLog
from support.in_process import InProcess, report_process


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(module, "get_context", InProcess)


def test_every_learner_has_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(module, "list_contenders", lambda _: [Contender("a", "em"), Contender("b", "em")])
    monkeypatch.setattr(module, "run_contender", report_process)
    log = EventLog.from_rows(range(10), np.ones((10, 1)), np.arange(10.0))
    processes = [outcome.note for outcome in compare_learners(log)]
    assert len({*processes, str(os.getpid())}) == 3


@pytest.mark.usefixtures("in_process")
def test_learners_are_scored_on_users_they_have_not_seen():
    true = equal_classes(np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9]]), noise=0.1)
    user, x, reward, _ = rows_of(true, 120, 10, seed=0)
    outcomes = compare_learners(EventLog.from_rows(user, x, reward), 2)
    by_name = {outcome.name: outcome for outcome in outcomes}
    assert "em-clicks" not in by_name
    for name in ("em", "gibbs", "blocked", "spectral-grouped"):
        assert by_name[name].n_classes == 2
        assert len(by_name[name].scores) == 36
        assert by_name[name].seconds > 0
    assert by_name["em"].score > 5  # log density of ten rewards with noise .1 is about 8.8
    gaps = measure_gaps(outcomes)
    assert min(gap for gap, _ in gaps.values()) == 0
    assert outcomes[0].score == max(outcome.score for outcome in outcomes if len(outcome.scores))


@pytest.mark.usefixtures("in_process")
def test_a_learner_that_does_not_apply_says_why():
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(60), 8), rng.dirichlet(np.ones(3), 480)
    reward = (rng.random(480) < x[:, 0] * (user % 2) + x[:, 1] * (1 - user % 2)).astype(float)
    outcomes = {outcome.name: outcome for outcome in compare_learners(EventLog.from_rows(user, x, reward), 2)}
    assert "cannot tell classes apart" in outcomes["spectral-pooled"].note
    assert len(outcomes["spectral-pooled"].scores) == 0
    assert len(outcomes["em-clicks"].scores) == 18


def test_too_few_users_are_refused():
    log = EventLog.from_rows(range(5), np.ones((5, 1)), np.arange(5.0))
    with pytest.raises(InputError, match="only 5 users"):
        compare_learners(log)


def test_models_of_any_learner_are_scored_as_clicks_on_clicks():
    from lcb.evaluate.compare_learners import _set_likelihood

    true = equal_classes(np.array([[0.5]]), noise=0.1)
    log = EventLog.from_rows([0, 0, 1], np.ones((3, 1)), [0, 1, 1])
    assert _set_likelihood(true, log).levels == (0.0, 1.0)
    np.testing.assert_allclose(_set_likelihood(true, log).user_scores(log), np.log([0.25, 0.5]))
