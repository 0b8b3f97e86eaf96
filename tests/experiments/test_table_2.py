"""The user study with simulated visitors."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from lcb.bandits.uniform import Uniform
from lcb.demo.readers import NewsFront, draw_articles
from lcb.evaluate.two_groups import Group
from lcb.experiments import table_2, user_study
from lcb.experiments.report import Section, render_page
from lcb.experiments.reproduce import reproduce
from lcb.recommenders.pooled import Pooled

SMALL = {
    "N_PAST": 300, "N_OFFERED": 20, "N_ARTICLES": 40, "N_FEW": 5, "N_MANY": 60, "N_STUDIES": 30, "N_TUNING_SEEDS": 1,
    "N_TUNING": 60,
}  # fmt: skip
PAPERS = ("linucb-population", "linucb-at-once", "lcb", "lcb-mean")  # the newer ones have a test of their own


@pytest.fixture
def small(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(user_study, name, value)
    grids = {name: {key: values[:2] for key, values in user_study.GRIDS[name].items()} for name in PAPERS}
    monkeypatch.setattr(user_study, "GRIDS", grids)


class Watched(Pooled):
    """Random; notes whom it meets."""

    def __init__(self):
        super().__init__(Uniform())
        self.met = []

    def serve(self, users, contexts, rewards, rng, n_uniform_steps=0):
        self.met.append(contexts)
        return super().serve(users, contexts, rewards, rng, n_uniform_steps)


def of(lcb, linucb, lcb_few=None, linucb_few=None):
    """A result with these rates, the same of all else."""
    many = {"linucb-population": np.array(linucb), "lcb": np.array(lcb), "linucb-at-once": np.array(linucb)}
    few = {"linucb-population": np.array(linucb_few), "lcb": np.array(lcb_few)} if lcb_few else {}
    return table_2.Table2({}, {}, few, many)


def test_what_the_experiment_leaves_is_a_section_of_the_report(small, tmp_path):
    outcome = reproduce("table-2", table_2, tmp_path, "lcb reproduce table-2", n_runs=2, n_workers=1)
    told = json.loads((tmp_path / "table-2.json").read_text())
    assert [study["study"] for study in told["result"]["studies"]] == [
        "the paper, 5 visitors each", "simulated, 5 visitors each", "simulated, 60 visitors each",
    ]  # fmt: skip
    assert told["result"]["studies"][0]["difference"]["mean"] == pytest.approx(0.184)
    assert told["result"]["repeated"]["n_studies"] == 30
    assert {name: rates.shape for name, rates in outcome.few.items()} == dict.fromkeys(user_study.GRIDS, (2, 15, 5))
    assert {name: rates.shape for name, rates in outcome.many.items()} == dict.fromkeys(user_study.GRIDS, (2, 60))
    section = Section.read(tmp_path, "table-2")
    assert "The user study, with simulated visitors" in render_page([section], [])
    text = "\n".join(table_2.summarise(outcome))
    assert "0.196 ± 0.096" in text
    assert "0.380 ± 0.076" in text
    assert section.claims == tuple(table_2.check_claims(outcome))


def test_the_same_seed_gives_the_same_study(small):
    one, two = (table_2.run(n_runs=1, seed=3, n_workers=1) for _ in range(2))
    assert one.tuned == two.tuned
    for name in user_study.GRIDS:
        np.testing.assert_array_equal(one.many[name], two.many[name])
        np.testing.assert_array_equal(one.few[name], two.few[name])


def test_lcb_is_ahead_of_one_linucb_for_all(small, monkeypatch):
    monkeypatch.setattr(user_study, "N_PAST", 2000)
    result = table_2.run(n_runs=1, n_workers=1)
    assert table_2.summarize_repeats(result).ahead > 0.8
    assert table_2._compare(table_2._group_by_seed(result)[0])["low"] > 0


def test_no_visitor_meets_two_recommenders_and_each_has_its_share():
    rng = np.random.default_rng(0)
    watched = {name: Watched() for name in ("a", "b", "c")}
    rates = user_study.run_study(NewsFront(draw_articles(30, rng), 5), watched, 50, rng)
    met = {name: np.concatenate(one.met).reshape(50, -1) for name, one in watched.items()}
    assert {name: rate.shape for name, rate in rates.items()} == dict.fromkeys("abc", (50,))
    assert len(np.unique(np.concatenate(list(met.values())), axis=0)) == 150


def test_rates_are_the_clicks_of_what_was_chosen():
    rng = np.random.default_rng(0)
    users = NewsFront(draw_articles(30, rng), 5).draw(4, user_study.N_STEPS, rng)

    class First(Watched):
        def serve(self, users, contexts, rewards, rng, n_uniform_steps=0):
            self.met.append(contexts)
            return np.tile(np.arange(rewards.shape[1]) % 2, (len(rewards), 1))

    in_order = user_study.measure_click_rates("linucb-population", First(), users, rng)
    steps = np.arange(user_study.N_STEPS)
    np.testing.assert_allclose(in_order, users.rewards[:, steps, steps % 2].mean(axis=1))
    at_once = First()
    rates = user_study.measure_click_rates("linucb-at-once", at_once, users, rng)
    np.testing.assert_array_equal(at_once.met[0], users.contexts.swapaxes(0, 1))  # the first step of all, then ...
    np.testing.assert_allclose(rates, [users.rewards[i, :, i % 2].mean() for i in range(4)])


def test_tuned_settings_are_those_of_most_clicks(small, monkeypatch):
    def tried(seed):
        totals = {(n, name): np.zeros(4) for n in (5, 60) for name in user_study.GRIDS}
        totals[5, "lcb"] = np.array([1.0, 2.0, 5.0, 5.0])
        totals[60, "lcb"] = np.array([0.0, 9.0, 1.0, 1.0])
        return totals

    monkeypatch.setattr(user_study, "_count_clicks", tried)
    tuned = user_study.tune_recommenders(0, n_workers=1)
    assert tuned[5]["lcb"] == {"eta": 0.25, "uniform": 0.0}  # of equals the first
    assert tuned[60]["lcb"] == {"eta": 1.0, "uniform": 0.01}
    assert tuned[60]["linucb-population"] == {"width": 0.25, "ridge": 1.0}
    assert tuned[60]["lcb-mean"] == {}


def test_both_recommenders_have_as_many_settings_to_try():
    sizes = {name: len(user_study.list_combinations(name)) for name in user_study.GRIDS}
    assert sizes["lcb"] == sizes["linucb-population"] == sizes["linucb-at-once"] == 21


def test_population_linucb_goes_on_learning_and_lcb_keeps_its_classes(small):
    world, trained, rng = user_study.prepare((0, 0))
    made = {name: trained(name, user_study.list_combinations(name)[0]) for name in user_study.GRIDS}
    before = made["linucb-population"].state.copy()
    user_study.run_study(world, made, 5, rng)
    assert not np.array_equal(made["linucb-population"].state, before)
    assert len(made["lcb"].versions) == len(made["lcb-mean"].versions) == 1
    assert made["lcb"].n_users == 5


def test_population_linucb_has_learned_from_the_log_that_taught_the_classes(small):
    _, trained, _ = user_study.prepare((0, 0))
    rng = np.random.default_rng((0, 0))  # the same articles and past readers again
    total = user_study.draw_past_log(NewsFront(draw_articles(40, rng), 20), 300, rng).stats.total
    assert total.count[0] == 300 * user_study.N_STEPS
    theta = np.linalg.solve(total.gram[0] + 10 * np.eye(21), total.moment[0])
    for name in ("linucb-population", "linucb-at-once"):
        recommender = trained(name, {"width": 0.5, "ridge": 10.0})
        np.testing.assert_allclose(recommender.bandit.theta(recommender.state), theta)


def test_every_recommender_serves_classes_of_its_own_kind():
    rng = np.random.default_rng(0)
    world = NewsFront(draw_articles(20, rng), 10)
    log = user_study.draw_past_log(world, 60, rng)
    models = user_study.learn_classes(log, rng)
    assert set(user_study.GRIDS) - set(models) == {"linucb-population", "linucb-at-once"}
    assert {name for name, own in models.items() if own.personal} >= {"lcb-personal", "mixed-model"}
    assert (models["lcb-personal"].n_classes, models["mixed-model"].n_classes) == (10, 1)
    assert models["lcb-bonus"] is models["lcb"]
    build = partial(user_study._build_recommender, models, log.stats.total, rng)
    made = {name: build(name, user_study.list_combinations(name)[-1]) for name in user_study.GRIDS}
    rates = user_study.run_study(world, made, 2, rng)
    assert {name: rate.shape for name, rate in rates.items()} == dict.fromkeys(user_study.GRIDS, (2,))
    bonus = {name: made[name].make_bandit(models[name]).bonus for name in models if name != "lcb"}
    assert bonus == {
        "lcb-mean": 0.0, "lcb-auto": models["lcb-auto"].provenance["bonus"], "lcb-bonus": 1.0, "lcb-personal": 1.0,
        "mixed-model": 1.0,
    }  # fmt: skip


def test_repeated_studies_are_counted():
    ours = [[[0.5, 0.6], [0.9, 0.1], [0.2, 0.2], [0.1, 0.1]]]
    other = [[[0.1, 0.2], [0.1, 0.1], [0.3, 0.3], [0.1, 0.1]]]
    shown = table_2.summarize_repeats(of([[0.0]], [[0.0]], ours, other))
    # differences +0.4 (v = 0.0025 twice, df 2, half 4.303 x 0.0707 = 0.304), +0.4 (df 1, half 5.1), -0.1 and 0 for sure
    assert (shown.n_studies, shown.ahead, shown.told_apart, shown.misled) == (4, 0.5, 0.25, 0.25)
    assert shown.covered == 0.5  # of the mean 0.175: the first two
    assert -0.1 < shown.low < 0
    assert shown.high == pytest.approx(0.4)


def test_a_claim_holds_by_direction_with_every_seed_and_by_size_on_average():
    few = [[[0.5, 0.6]], [[0.5, 0.6]]]
    far = of([[0.6, 0.5, 0.6], [0.6, 0.5, 0.4]], [[0.1, 0.2, 0.1], [0.1, 0.1, 0.2]], few, [[[0.1, 0.2]]] * 2)
    above, share, share_of_few, ahead = table_2.check_claims(far)
    assert all(claim.holds for claim in (above, share, share_of_few, ahead))
    assert above.ours.endswith("with 2 of 2 seeds")
    assert share.ours == "+300 % ± 49 %"  # 17/4 and 15/4: a standard error of 25 %
    assert share.paper == "+94 %"
    near = of([[0.6, 0.5, 0.6], [0.6, 0.5, 0.1]], [[0.4, 0.3, 0.4], [0.3, 0.4, 0.4]], few, [[[0.8, 0.9]]] * 2)
    assert [claim.holds for claim in table_2.check_claims(near)] == [False, False, False, False]
    assert table_2.check_claims(near)[0].ours.endswith("with 1 of 2 seeds")


def test_the_papers_study_of_five_excludes_no_difference():
    low = table_2._compare(table_2.PAPER)["low"]
    assert low == pytest.approx(0.057, abs=5e-4)
    assert table_2.PAPER["lcb"] == Group(5, 0.380, 0.076)
