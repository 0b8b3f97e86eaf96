"""Figures 3a to 3c on a small log, and the page made of all of them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.errors import InputError
from lcb.evaluate.algorithms.latent import build_relearning
from lcb.evaluate.tuning import tune_log as tune_log
from lcb.experiments import fig_1, fig_3a, fig_3b, fig_3c, real_data
from lcb.experiments.report import Section, render_page
from lcb.experiments.reproduce import reproduce

LIKES = np.array([[0.9, 0.2, 0.2, 0.3], [0.1, 0.8, 0.2, 0.3]])
NAMES = ("lcb-mean", "lcb", "lcb-gibbs", "club", "linucb-population")
NEWER = ("lcb-auto", "lcb-personal")


@pytest.fixture
def data(tmp_path, monkeypatch):
    rng, n_users, n = np.random.default_rng(0), 200, 12
    kind = rng.integers(0, 2, n_users)
    user, item = np.repeat(np.arange(n_users), n), rng.integers(0, 4, n_users * n)
    reward = (rng.random(len(user)) < LIKES[kind[user], item]).astype(float)
    folder = tmp_path / "log"
    folder.mkdir()
    table = {"user": user, "order": np.tile(np.arange(n), n_users), "item": item, "reward": reward}
    pq.write_table(pa.table(table), folder / "events.parquet")
    pq.write_table(pa.table({"item": range(4), "categories": [[0], [1], [2], [3]]}), folder / "items.parquet")
    (folder / "categories.json").write_text(json.dumps(list("abcd")))
    monkeypatch.setattr(tune_log, "MOST", 1)
    monkeypatch.setattr(tune_log.tune_on_training_users, "__kwdefaults__", {
        **tune_log.tune_on_training_users.__kwdefaults__, "most": 1, "n_workers": 1
    })  # fmt: skip
    for module in (real_data, fig_3a, fig_3b, fig_3c):
        monkeypatch.setattr(module, "N_STEPS", 6)
        for name, value in (("ALGORITHMS", NAMES), ("WITH_NEWER", (*NEWER, *NAMES)), ("N_CLASSES", 2)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(fig_3a, "FRACTIONS", (0.3, 1))
    monkeypatch.setattr(fig_3b, "CLASSES", (1, 2, 10, 15, 30))
    monkeypatch.setattr(fig_3b, "OURS", ("lcb-personal", *NAMES[:2]))  # lcb-gibbs is in 3a and 3c
    monkeypatch.setattr(fig_3b, "OTHERS", NAMES[3:])
    monkeypatch.setattr(fig_3c, "N_BLOCKS", 3)
    monkeypatch.setattr(fig_3c, "N_UNIFORM", 2)
    return real_data.Data(str(folder))


@pytest.mark.parametrize("module", [fig_3a, fig_3b, fig_3c])
def test_a_figure_leaves_its_picture_numbers_and_claims(module, data, tmp_path):
    name = module.__name__.rsplit(".", 1)[1].replace("_", "-")
    outcome = reproduce(name, module, tmp_path / "figures", f"lcb reproduce {name}", data=data, n_runs=2)
    section = Section.read(tmp_path / "figures", name)
    assert section.svg.startswith("<svg")
    assert section.claims == tuple(module.check_claims(outcome))
    assert section.about.startswith(("Algorithms train on", "The paper", "There are no past users"))
    assert "log" not in str(section.settings.get("data"))
    assert all(line for line in section.summary)


def test_more_classes_than_one_help(data, monkeypatch):
    monkeypatch.setattr(fig_3b, "OURS", ("lcb-mean", "lcb-personal"))
    monkeypatch.setattr(fig_3b, "CLASSES", (1, 2))
    result = fig_3b.run(data, n_runs=1)
    one, two = (real_data.compute_gain(result.outcomes[n], "lcb-mean", "linucb-population")[0] for n in (1, 2))
    assert two > one + 10
    one, two = (real_data.compute_gain(result.outcomes[n], "lcb-personal", "linucb-population")[0] for n in (1, 2))
    assert one != two
    assert [result.outcomes[n][1].settings["most_classes"] for n in (1, 2)] == [1, 2]
    same = [[o.relative_ctr for o in result.outcomes[n] if o.algorithm == "club"] for n in (1, 2)]
    assert same[0] == same[1]


def test_users_who_come_one_after_another_meet_learned_classes_after_the_first_block(data):
    result = fig_3c.run(data, n_runs=2)
    lines = (fig_3c.ALL_STEPS, *NAMES)
    assert {name: rate.shape for name, rate in result.rates.items()} == dict.fromkeys(lines, (2, 150))
    late = result.outcomes(slice(1, 3))
    assert [outcome.algorithm for outcome in late] == list(lines)
    ours, papers = (
        real_data.compute_gain(late, name, "linucb-population")[0] for name in (fig_3c.ALL_STEPS, "lcb-mean")
    )
    assert ours > papers + 5  # a third of the paper's steps are uniform here


def test_our_setting_has_no_uniform_steps_and_learns_clicks_from_all_of_them(data, monkeypatch):
    made = []

    def watched(task, *rest):
        made.append((task, build_relearning(task, *rest)))
        return made[-1][1]

    monkeypatch.setattr(fig_3c, "build_relearning", watched)
    source = data.open()
    fig_3c._play(fig_3c._Run(source, "one-hot", fig_3c.ALL_STEPS, {}, np.arange(60), 20, 0))
    task, latent = made[0]
    assert task.n_uniform_steps == 0
    assert [models.likelihood for models in latent.versions] == ["bernoulli", "bernoulli"]
    assert latent.stats.count.sum() == 60 * 6


def test_a_log_of_few_users_is_refused():
    class Small:
        n_events = np.full(79, 20)

    with pytest.raises(InputError, match="only 79 users have 20 labelled events"):
        real_data.split_sizes(Small())


def test_the_page_carries_its_pictures_and_says_what_is_missing(tmp_path):
    reproduce("fig-1", fig_1, tmp_path, "lcb reproduce fig-1", n_runs=1)
    section = Section.read(tmp_path, "fig-1")
    html = render_page([section], ["fig-3a"])
    assert "<svg" in html
    assert "lcb reproduce fig-3a" in html
    assert "http-equiv" not in html
    for word in ("src=", 'href="http', "@import", "url(http"):
        assert word not in html
    assert Section.read(tmp_path, "fig-2a") is None
    (tmp_path / "fig-1.json").write_text("{}")
    with pytest.raises(InputError, match="run it again"):
        Section.read(tmp_path, "fig-1")


def test_users_who_come_are_not_those_tuned_on(data, monkeypatch):
    tuned_on, came = [], []
    tune, play = real_data.tuned_settings, fig_3c._play

    def watched_tune(data, source, algorithms, plan, seeds, progress):
        tuned_on.extend(fig_3c.split_users(source, plan, seed).train for seed in seeds)
        return tune(data, source, algorithms, plan, seeds, progress)

    def watched_play(run):
        came.append(run.order)
        return play(run)

    monkeypatch.setattr(real_data, "tuned_settings", watched_tune)
    monkeypatch.setattr(fig_3c, "_play", watched_play)
    monkeypatch.setattr(fig_3c.parallel, "processes", lambda work, tasks, *rest: [work(task) for task in tasks])
    fig_3c.run(data, n_runs=1)
    assert len(tuned_on[0]) == 50
    assert not set(tuned_on[0]) & {int(user) for order in came for user in order}
