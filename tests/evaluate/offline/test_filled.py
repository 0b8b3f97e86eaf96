"""The filled queue, in worlds whose truth is known; benchmarks/evaluation_truth.py does the same in a hundred."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.evaluate.offline.evaluate_log import evaluate_log
from lcb.evaluate.offline.filled import evaluate_filled, prepare_filling
from lcb.evaluate.offline.label_use import LabelUse, combine_use, measure_use
from lcb.evaluate.offline.labels import read_labels
from lcb.evaluate.offline.log_sources import open_source
from lcb.evaluate.offline.outcomes import AlgorithmRewards, Evaluation
from lcb.evaluate.offline.queue import evaluate_queue
from lcb.evaluate.offline.split import Plan
from lcb.evaluate.worlds.logged import LOGGING, PEOPLE, LoggedWorld
from lcb.recommenders.individual import Individual
from support.logs import make_log
from support.truth import true_gain

PLAN = Plan(n_train_users=300, n_test_users=150, n_steps=8, n_classes=4)


def small_worlds():
    """Each kind of people twice; logging, categories per item and labels (1 to 30 times the steps) differ."""
    for i in range(10):
        world = LoggedWorld(PEOPLE[i % 5], LOGGING[i % 2], 1 + i % 3, n_categories=6, n_classes=4, seed=i)
        yield world, 8 * (1, 2, 4, 8, 30)[(3 * i) % 5]


def test_the_interval_covers_the_truth_in_nine_of_ten_small_worlds():
    covered = []
    for world, n_labels in small_worlds():
        source = open_source(world.write_log(460, n_labels, exactly=True), "filled", "labels")
        answer = evaluate_log(source, ["lcb-mean"], PLAN, n_seeds=1, n_workers=1).answer
        assert answer is not None
        assert answer.low < answer.percent < answer.high
        covered.append(answer.low <= true_gain(world, source, PLAN, "lcb-mean") <= answer.high)
    assert sum(covered) >= 9


def test_with_as_many_labels_as_steps_the_queue_finds_no_difference_and_says_so():
    """Everybody takes every label, so all algorithms are equal by construction; the truth is far from 0."""
    world = LoggedWorld(n_categories=6, n_classes=4, seed=3)
    log = world.write_log(460, PLAN.n_steps, exactly=True)
    found = {m: evaluate_log(open_source(log, m, "labels"), ["lcb-mean"], PLAN, n_seeds=1) for m in ("queue", "filled")}
    truth = true_gain(world, open_source(log, "queue", "labels"), PLAN, "lcb-mean")
    assert truth > 20
    rows = {method: one.to_json()["results"][0] for method, one in found.items()}
    assert rows["queue"]["vs_population_percent"] == pytest.approx(0)
    assert found["queue"].answer is None
    assert "an arm had no label left and was not offered" in found["queue"].why_no_answer
    answer = found["filled"].answer
    assert 0 < answer.low <= truth <= answer.high
    assert rows["filled"]["diagnostics"]["withheld"] > 0.5
    assert rows["filled"]["diagnostics"]["labels_per_user_and_arm"] == pytest.approx(8 / 6)


def test_where_labels_suffice_the_filled_queue_is_the_queue():
    log = LoggedWorld("unique", n_categories=4, seed=3).write_log(40, 600, exactly=True)
    labels, users, x = read_labels(log, "labels"), np.arange(40), np.eye(4)
    queue = evaluate_queue(Individual(LinUCB(4)), labels, users, x, 10, seed=0, rng=np.random.default_rng(0))
    filling = prepare_filling(labels, users, 10, 0)
    filled = evaluate_filled(Individual(LinUCB(4)), labels, filling, x, 10, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(filled.rewards, queue.rewards)
    assert not filled.is_drawn.any()


def test_labels_of_an_arm_come_first_each_once_and_only_then_draws():
    log = make_log([0] * 3 + [1] * 3, [0, 0, 0, 0, 1, 1], [[0], [1]], 2, reward=[1, 1, 0, 0, 1, 0])
    labels = read_labels(log, "labels")

    class Always(Individual):
        def choose(self, user, context, rng):
            return super().choose(user, context[:1], rng)

    filling = prepare_filling(labels, np.array([0, 1]), 6, 0)
    found = evaluate_filled(Always(LinUCB(2)), labels, filling, np.eye(2), 6, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(found.is_drawn, np.arange(6) >= np.array([[3], [1]]))
    assert sorted(found.rewards[0, :3]) == [0, 1, 1]
    assert found.rewards[1, 0] == 0
    assert set(found.rewards.ravel()) <= {0.0, 1.0}


def test_rewards_of_many_values_are_filled_with_the_right_mean_and_spread():
    rng, n_users = np.random.default_rng(0), 300
    mean = rng.uniform(2, 8, (n_users, 2))
    user, item = np.repeat(np.arange(n_users), 8), np.tile([0, 1], 4 * n_users)
    reward = np.clip(mean[user, item] + rng.standard_normal(len(user)), 0, 10)
    labels = read_labels(make_log(user, item, [[0], [1]], 2, reward=reward), "labels")
    filling = prepare_filling(labels, np.arange(n_users), 40, 0)
    drawn = np.array([filling.draw(labels, i, 40) for i in range(n_users)])  # (users, arms, 40)
    assert np.corrcoef(drawn.mean(axis=2).ravel(), mean.ravel())[0, 1] > 0.9
    assert drawn.mean() == pytest.approx(mean.mean(), abs=0.1)
    assert drawn.std(axis=2).mean() == pytest.approx(1, abs=0.15)
    assert drawn.min() >= labels.reward_range[0]


def use_labels(n_steps, withheld, labels_per_arm, support, favoured=0.0):
    return LabelUse(
        method="filled",
        n_steps=n_steps,
        withheld=withheld,
        labels_per_arm=labels_per_arm,
        support=support,
        favoured=favoured,
    )


def outcome(name, rate, withheld, labels_per_arm=5.0):
    use = use_labels(2000, withheld, labels_per_arm, 1.0)
    return AlgorithmRewards(name, {}, rate, np.array([0.5]), 0, 0, 0, diagnostics=use)


def evaluation(*outcomes):
    return Evaluation({"reward_range": [0.0, 1.0], "steps": 10}, list(outcomes))


def test_algorithms_that_never_differ_get_no_interval_of_width_0():
    rate = np.full((1, 200), 0.5)
    answer = evaluation(outcome("lcb", rate, 0.0), outcome("linucb-population", rate, 0.0)).answer
    assert answer.percent == 0
    assert answer.high - answer.low == pytest.approx(2 * 100 * 3 / 200 / 0.5)


def test_the_answer_is_about_the_best_algorithm_wherever_it_stands():
    rate = np.random.default_rng(0).random((1, 200))
    several = [outcome(name, f * rate, 0.2) for name, f in (("lcb", 1.1), ("lcb-mean", 1.3), ("linucb-population", 1))]
    answer = evaluation(*several).answer
    assert (answer.algorithm, answer.percent) == ("lcb-mean", pytest.approx(30))
    assert answer.describe().startswith("lcb-mean would have had 30.0 % (95 %: ")
    assert " more clicks than " in answer.describe()
    assert " more reward than " in answer.describe(are_clicks=False)


def test_drawn_rewards_are_no_observations():
    rng = np.random.default_rng(0)
    one, other = rng.random((2, 1, 200))
    few, many = (outcome("lcb", one, share).gain_over(outcome("b", other, share))[1] for share in (0.75, 0.0))
    assert few == pytest.approx(2 * many)


def test_too_few_labels_give_no_answer_and_say_why():
    rate = np.random.default_rng(0).random((1, 200))
    short = evaluation(outcome("lcb", 1.2 * rate, 0.96, 0.4), outcome("linucb-population", rate, 0.97, 0.4))
    assert short.answer is None
    assert "in 96 % of steps the first choice had no label left" in short.why_no_answer
    assert short.to_json()["results"][0]["vs_population_percent"] == pytest.approx(20)
    both = combine_use([use_labels(100, 0.2, 4.0, 0.5), use_labels(300, 0.4, 6.0, 0.7)])
    assert both == use_labels(400, pytest.approx(0.3), 5.0, pytest.approx(0.6))


def test_a_log_whose_labels_are_mostly_of_one_arm_gives_no_answer():
    enough = use_labels(2000, 0.2, 13.0, 0.8, 0.69)
    assert enough.shortfall is None
    assert "most labels of a user are of one arm" in replace(enough, favoured=0.71).shortfall
    assert "most labels of a user are of one arm" in replace(enough, favoured=0.71, withheld=0.02).shortfall
    assert "8 % of the pairs of user and arm" in replace(enough, support=0.08, withheld=0.02).shortfall
    for few in (replace(enough, favoured=0.71), replace(enough, support=0.08)):
        assert replace(few, withheld=0.009).shortfall is None  # labels sufficed
    assert replace(enough, favoured=0.71, withheld=0.04, method="queue").shortfall is None


def test_favour_is_zero_for_equal_shares_and_one_for_a_single_arm():
    users = np.arange(2)
    for count, favoured in (
        ([[5, 5, 5], [1, 1, 1]], 0.0),
        ([[9, 0, 0], [0, 2, 0]], 1.0),
        ([[4, 1, 1], [4, 1, 1]], 0.5),
    ):
        table = np.array(count, np.int32)
        user, arm = np.repeat(np.nonzero(table), table[np.nonzero(table)], axis=1)
        log = make_log(user, arm, [[i] for i in range(3)], 3, reward=np.arange(len(user)) % 2 == 0)
        use = measure_use("filled", read_labels(log, "labels"), users, 0.0, 5)
        assert use.favoured == pytest.approx(favoured)


def test_a_log_that_shows_users_only_what_they_like_gives_no_answer():
    """What is not shown is disliked, and the log cannot say so: the random policy would look far too good."""
    world = LoggedWorld(n_categories=12, n_classes=4, seed=0)
    rng = np.random.default_rng(0)
    rates = world.arm_rates(world.draw_users(460, rng))
    user = np.repeat(np.arange(460), 25)
    best = np.argsort(-rates, axis=1)[user, rng.integers(0, 2, len(user))]
    item = np.where(rng.random(len(user)) < 0.01, rng.integers(0, 12, len(user)), best)
    log = make_log(user, item, [[i] for i in range(12)], 12, reward=rng.random(len(user)) < rates[user, item])
    found = evaluate_log(open_source(log, "filled", "labels"), ["random"], PLAN, n_seeds=1, n_workers=1)
    truth = 100 * (rates.mean() / rates.max(axis=1).mean() - 1)
    assert found.to_json()["results"][0]["vs_population_percent"] > truth + 20
    assert found.answer is None
    assert "% of the pairs of user and arm have a label" in found.why_no_answer
