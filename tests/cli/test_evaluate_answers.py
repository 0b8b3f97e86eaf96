"""The answer of an evaluation: what its interval covers with few users, and when there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lcb.evaluate.offline.outcomes import POPULATION, AlgorithmRewards, Evaluation
from lcb.evaluate.offline.support import measure_support


def evaluate(one, other):
    """Return the evaluation of two algorithms with these mean rewards of users."""
    about = {"reward_range": [0.0, 1.0], "steps": 20}
    named = (("lcb-mean", one), (POPULATION, other))
    return Evaluation(about, [AlgorithmRewards(name, {}, rate[None], np.ones(1), 0, 0, 0) for name, rate in named])


@pytest.mark.parametrize("n_users", [5, 10, 40])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 1.0])  # of the users with whom the algorithms differ
def test_intervals_of_few_users_cover_the_true_gain(n_users, share):
    rng, covered, n = np.random.default_rng(0), 0, 300
    for _ in range(n):
        other = rng.beta(8, 12, n_users)
        one = other + (rng.random(n_users) < share) * rng.normal(0.2, 0.1, n_users)
        answer = evaluate(one, other).answer
        assert answer.low < answer.high
        covered += answer.low <= 100 * share * 0.2 / 0.4 <= answer.high
    assert covered >= 0.9 * n


def test_without_a_difference_three_users_may_still_differ_in_every_step():
    rate = np.full(50, 0.5)
    answer = evaluate(rate, rate).answer
    assert (answer.low, answer.high) == pytest.approx((-12.0, 12.0))  # 3 of 50 users, by 1 of 0.5


def test_a_single_user_and_a_population_without_rewards_have_no_answer():
    found = evaluate(np.array([0.5]), np.array([0.4]))
    assert (found.answer, found.to_json()["results"][0]["vs_se"]) == (None, None)
    assert "a single test user" in found.why_no_answer
    found = evaluate(np.full(20, 0.5), np.zeros(20))
    assert (found.answer, found.to_json()["results"][0]["vs_population_percent"]) == (None, None)
    assert "had a mean reward of 0" in found.why_no_answer
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_without_a_supporting_event_there_are_results_and_no_answer(lcb, tmp_path, method):
    rng = np.random.default_rng(0)
    (tmp_path / "log.csv").write_text(
        "user,item,reward,propensity,kind\n"
        + "".join(f"u{i % 40},a,{int(rng.random() < 0.5)},1,x\n" for i in range(400))
        + "".join(f"v{i % 9},b,{int(rng.random() < 0.9)},1,y\n" for i in range(18))  # only few events: never tested
    )
    words = ("--user", "user", "--item", "item", "--reward", "reward", "--propensity", "propensity")
    assert lcb("import", "log.csv", *words, "--item-categories", "kind", "--out", "log").code == 0
    plan = ("--steps", 5, "--seeds", 1, "--classes", 1, "--algorithms", "lcb-mean,random", "--json", "-")
    outcome = lcb("evaluate", "log", "--method", method, *plan)
    assert outcome.code == 0, outcome.err
    written = json.loads(outcome.out)
    assert written["answer"] is None
    assert written["why"]
    assert [row["algorithm"] for row in written["results"]] == ["lcb-mean", "random", POPULATION]


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_an_estimate_at_logged_moments_does_not_promise_what_serving_would_bring(method):
    rate = np.random.default_rng(0).random(200)
    served = evaluate(1.2 * rate, rate)
    logged = Evaluation({**served.settings, "method": method}, served.outcomes)
    assert logged.answer == served.answer
    told = logged.describe()
    assert told.startswith("at the logged moments, after learning from the logged choices, lcb-mean would have chosen")
    assert "would learn from its own choices when it serves is not in this estimate" in told
    assert "would have had" not in told
    assert logged.to_json()["caveat"] in told
    assert set(logged.to_json()["answer"]) == {"algorithm", "percent", "low", "high"}
    assert "caveat" not in served.to_json()
    assert "clicked 20.0 % (95 %: " in told
    fewer = Evaluation({**served.settings, "method": method}, evaluate(0.8 * rate, rate).outcomes)
    assert "less often" in fewer.describe()


def test_a_mean_weight_is_not_called_a_share_of_choices():
    rng = np.random.default_rng(0)
    found = measure_support(rng.exponential(0.98, 400), np.arange(400))
    assert found.shortfall is None
    assert "% of what it would choose" not in found.describe("lcb")
    assert f"mean weight {found.mean_weight:.3f}" in found.describe("lcb")
    exact = measure_support(rng.exponential(1.0, 400), np.arange(400), np.zeros(400))
    assert "the log supports 100.0 % of what it would choose" in exact.describe("lcb")


def test_weights_of_one_user_that_never_reach_1_are_no_support():
    alone = measure_support(np.full(40, 0.336), np.zeros(40, int), missing=np.zeros(40))
    assert "hardly ever shows part of what it would choose (mean weight 0.336; it must be 1)" in alone.shortfall


def test_a_log_of_one_item_has_nothing_to_choose_between(lcb, tmp_path):
    rows = "".join(f"u{u},a,{(u + t) % 2},x|y\n" for u in range(20) for t in range(6))
    (tmp_path / "one.csv").write_text("user,item,reward,topics\n" + rows)
    assert lcb("import", "one.csv", "--item-categories", "topics", "--out", "log").code == 0
    outcome = lcb("evaluate", "log", "--steps", 2, "--seeds", 1)
    assert outcome.code == 2
    assert "every event of this log is of the same item" in outcome.err
