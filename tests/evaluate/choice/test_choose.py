"""The choice of classes in worlds whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.evaluate.algorithms import ALGORITHMS, Task
from lcb.evaluate.choice.candidates import Classes
from lcb.evaluate.choice.choose import choose, draw_names, learn_chosen, pick_simplest
from lcb.evaluate.simulation.simulate import simulate
from lcb.evaluate.worlds.logged import serve_live
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.event_log import EventLog

N_ARMS = 8


def clicks(rates, n_labels, rng):
    """A log of users who clicked each arm at these rates, (users, arms), with `n_labels` labels per arm."""
    shown = np.full(rates.shape, n_labels)
    clicked = rng.binomial(shown, rates)
    return EventLog.from_counts(np.eye(rates.shape[1]), clicked, shown - clicked)


def planted(n_classes, n_users, rng):
    classes = np.clip(rng.permuted(np.tile(np.linspace(0.05, 0.9, N_ARMS), (n_classes, 1)), axis=1), 0, 1)
    return classes[rng.integers(0, n_classes, n_users)]


@pytest.mark.parametrize("n_classes", [1, 4])
def test_planted_point_classes_come_out_as_so_many_point_classes(n_classes):
    rng = np.random.default_rng(5)
    choice = choose(clicks(planted(n_classes, 300, rng), 6, rng), rng=rng)
    assert (choice.classes.personal, choice.classes.n_classes) == (False, n_classes)
    assert len(choice.why) == 2
    assert choice.why[0].startswith(f"chosen: {choice.classes} with bonus")


def test_where_everybody_differs_personal_classes_are_chosen_and_serve_better():
    rng = np.random.default_rng(6)
    log = clicks(rng.beta(0.7, 0.7, (300, 8)), 8, rng)
    choice = choose(log, rng=rng)
    assert choice.classes.personal
    point = [score for name, score in choice.scores.items() if "point" in name]
    assert max(choice.scores.values()) > 1.01 * max(point)


def test_what_is_given_is_not_searched():
    rng = np.random.default_rng(7)
    log = clicks(planted(3, 200, rng), 4, rng)
    choice, shares = choose(log, rng=rng, n_classes=2, likelihood="gaussian"), []
    assert choice.classes == Classes(False, 2, "gaussian")
    assert {name.split(",")[0] for name in choice.scores} == {"2 point classes (Gaussian)"}
    both = choose(log, rng=rng, n_classes=2, progress=lambda what, done, total: shares.append((what, done / total)))
    assert all(name.startswith("2 ") for name in both.scores)
    assert {what for what, _ in shares} == {"percent of serving held-out users"}
    begin = [share for _, share in shares if share <= 0.8]
    assert begin == [0, 0.07, 0.14, 0.4, 0.47, 0.54, 0.8]  # personal classes take longest
    assert [share for _, share in shares][-5:] == [0.84, 0.88, 0.92, 0.96, 1]  # further orders of the labels


def test_numbers_with_features_of_their_own_are_chosen_by_later_rewards():
    rng = np.random.default_rng(8)
    user, x = np.repeat(np.arange(200), 12), rng.normal(size=(2400, 3))
    beta = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])[rng.integers(0, 3, 200)]
    same = EventLog.from_rows(user, x, (beta[user] * x).sum(axis=1) + 0.3 * rng.normal(size=2400))
    chosen = choose(same, rng=rng)
    assert chosen.classes == Classes(False, 3)
    assert chosen.bonus == 0.5
    own = beta + 0.5 * rng.normal(size=beta.shape)
    differ = EventLog.from_rows(user, x, (own[user] * x).sum(axis=1) + 0.3 * rng.normal(size=2400))
    assert choose(differ, rng=rng).classes.personal


def test_ratings_and_many_arms_are_served_too():
    rng = np.random.default_rng(5)
    stars = rng.permuted(np.tile([1.5, 2.0, 2.5, 3.0, 3.5, 4.0], (3, 1)), axis=1)[rng.integers(0, 3, 300)]
    user, arm = np.repeat(np.arange(300), 24), np.tile(np.repeat(np.arange(6), 4), 300)
    reward = np.clip(np.round(stars[user, arm] + 0.7 * rng.normal(size=len(user))), 1, 5)
    rated = choose(EventLog.from_rows(user, np.eye(6)[arm], reward), rng=rng)
    assert rated.classes == Classes(False, 3)
    assert rated.why[1].startswith("reward per step of held-out users: 3.")
    x = np.eye(3)[np.arange(300) % 3] + 0.001 * rng.normal(size=(300, 3))  # items of three kinds
    liked = np.array([[0.8, 0.2, 0.1], [0.1, 0.2, 0.8]])[rng.integers(0, 2, 300)]
    item = rng.integers(0, 300, len(user))
    clicked = (rng.random(len(user)) < liked[user, item % 3]).astype(float)
    items = choose(EventLog.from_rows(user, x[item], clicked), rng=rng)
    assert items.why[1].startswith("reward per step of held-out users")
    assert items.classes.n_classes == 2


def test_the_models_keep_the_bonus_and_few_users_are_said_to_be_few():
    rng = np.random.default_rng(9)
    log = clicks(planted(2, 200, rng), 4, rng)
    choice = choose(log, rng=rng, n_classes=2)
    found = learn_chosen(log, choice, rng=rng)
    assert found.models.provenance["bonus"] == choice.bonus
    assert found.why == choice.why
    few = choose(log.take(np.arange(12)), rng=rng, n_classes=1)
    assert "12 users are too few to try candidates on" in few.why[0]


def test_the_simplest_within_one_standard_error_wins():
    noise, other_noise = np.random.default_rng(0).normal(size=400), np.tile([1.0, -1.0], 200)
    simple, other, best = Classes(False, 5), Classes(False, 9), Classes(True, 1)
    scores = {
        (best, 0.5): noise,
        (best, 1.0): noise + 1e-9,
        (other, 0.5): noise - 0.04 + other_noise,  # one standard error is 0.05
        (simple, 0.0): noise - 0.3 + other_noise,
    }
    chosen, top = pick_simplest(scores)
    assert (chosen, top) == ((other, 0.5), (best, 1.0))
    del scores[other, 0.5]
    assert pick_simplest(scores)[0] == (best, 1.0)


def test_a_difference_in_one_user_alone_is_not_held_against_the_simplest():
    rng = np.random.default_rng(0)
    for user in range(100):
        score = rng.binomial(20, 0.7, 150) / 20
        better = score.copy()
        better[user] += 0.05
        assert pick_simplest({(Classes(False, 2), 0.0): score, (Classes(True, 1), 0.0): better})[0][0].n_classes == 2


def test_at_most_so_many_users_are_tried_able_ones_first():
    rng = np.random.default_rng(1)
    log = clicks(planted(2, 600, rng), 4, rng)
    able = np.arange(600) < 250
    choice = choose(log, rng=rng, n_classes=2, likelihood="bernoulli", able=able)
    assert "on 250 users" in choice.why[1]
    rows = EventLog.from_rows(np.arange(6000), np.ones((6000, 1)), rng.random(6000))
    assert len(draw_names(rows, rng)) == 5000


def test_lcb_auto_learns_the_choice_from_past_users_and_says_why():
    rng = np.random.default_rng(2)
    history = clicks(planted(3, 200, rng), 5, rng)
    task = Task(N_ARMS, N_ARMS, 10, 50, 30, (0.0, 1.0), history=history, two_valued=True)
    recommender = ALGORITHMS["lcb-auto"].build_for(task, rng, {})
    (models,) = recommender.versions
    assert models.n_classes == 3
    assert recommender.make_bandit(models).bonus == models.provenance["bonus"]
    assert recommender.why[0].startswith("chosen: 3 point classes")


def test_lcb_auto_keeps_a_number_of_classes_that_was_asked_for():
    rng = np.random.default_rng(2)
    history = clicks(planted(3, 200, rng), 5, rng)
    task = Task(N_ARMS, N_ARMS, 10, 50, 2, (0.0, 1.0), history=history, two_valued=True, fixes_classes=True)
    assert ALGORITHMS["lcb-auto"].build_for(task, rng, {}).versions[0].n_classes == 2


def test_where_arms_come_again_lcb_auto_tries_what_its_own_choices_do_not_show():
    """All users are alike; the LinUCB that serves the first users stays with an arm that was lucky."""
    rates = np.tile(np.linspace(0.3, 0.55, 6), (300, 1))
    task = Task(6, 6, 20, 300, 30, (0.0, 1.0), n_warmup_users=20, retrain_every=20, two_valued=True)
    reached = {}
    for name in ("lcb-auto", "linucb-population"):
        recommenders = [ALGORITHMS[name].build_for(task, np.random.default_rng(seed), {}) for seed in range(8)]
        taken = [serve_live(one, np.eye(6), rates, 20, np.random.default_rng(i)) for i, one in enumerate(recommenders)]
        reached[name] = np.array(taken)[:, 200:].mean(axis=1)
    assert reached["linucb-population"].mean() < 0.45
    assert reached["lcb-auto"].mean() > 0.53
    assert (reached["lcb-auto"] > reached["linucb-population"] - 0.01).all()


def test_in_a_simulation_lcb_auto_finds_the_classes_as_users_come():
    names = ["lcb-auto", "lcb-mean", "linucb-population"]
    found = simulate(SimulatedWorld(paper_classes()), names, n_users=150, n_runs=1, n_workers=1)
    late = {result.algorithm: result.last_quarter.mean() for result in found.results}
    assert late["lcb-auto"] < 1.3 * late["lcb-mean"] < late["linucb-population"]


def show_what_they_like(classes, n_users, uniform, rng):
    """The log of a recommender that shows users their best arm, but for a share of uniform decisions."""
    rates = classes[rng.integers(0, len(classes), n_users)]
    arm = np.where(
        rng.random((n_users, 40)) < uniform, rng.integers(0, 6, (n_users, 40)), rates.argmax(axis=1)[:, None]
    )
    shown = np.stack([np.bincount(row, minlength=6) for row in arm])
    clicked = rng.binomial(shown, rates)
    return EventLog.from_counts(np.eye(6), clicked, shown - clicked)


@pytest.mark.parametrize(("uniform", "warned"), [(0.1, True), (1.0, False)])
def test_where_users_were_shown_what_they_like_a_line_says_that_the_reward_is_too_high(
    uniform: float, warned: bool
) -> None:
    rng = np.random.default_rng(3)
    classes = rng.permuted(np.tile(np.linspace(0.1, 0.7, 6), (2, 1)), axis=1)
    choice = choose(show_what_they_like(classes, 60, uniform, rng), rng=rng, n_classes=2)
    assert any("this reward is too high" in line for line in choice.why) == warned


def test_from_a_log_that_shows_users_what_they_like_a_mixture_is_learned_and_serves_newcomers_better_than_one_arm():
    """Candidates that serve held-out users from such labels all seem good: one class, and so one arm, was chosen."""
    rng = np.random.default_rng(3)
    classes = np.array([[0.7, 0.2, 0.1, 0.4, 0.3, 0.2], [0.1, 0.2, 0.7, 0.3, 0.4, 0.2]])
    log = show_what_they_like(classes, 200, 0.1, rng)
    task = Task(6, 6, 20, 200, 30, (0.0, 1.0), history=log, two_valued=True)
    recommender = ALGORITHMS["lcb-auto"].build_for(task, rng, {})
    assert recommender.why[0].startswith("chosen: a mixture with bonus 0.5: most labels of a user are of one arm")
    assert "log with a larger uniform share" in recommender.why[1]
    assert len(recommender.why) == 2
    newcomers = classes[rng.integers(0, 2, 200)]
    assert (
        serve_live(recommender, np.eye(6), newcomers, 20, rng).mean() > 0.55
    )  # 0.4 by one arm, 0.61 by the true classes
    assert choose(show_what_they_like(classes, 200, 1.0, rng), rng=rng).classes == Classes(False, 2, "bernoulli")
