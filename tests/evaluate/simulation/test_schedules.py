"""The theorems' schedules as played: both phases, against Algorithm 1 played whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.uniform import Uniform
from lcb.errors import InputError
from lcb.evaluate.simulation import schedules
from lcb.evaluate.simulation.schedules import BANDITS, ScheduleRun, play_schedules
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.models import Fit
from lcb.recommenders.latent import Latent

WORLD = SimulatedWorld(equal_classes(np.eye(4)[:3]), n_arms=6)
SMALL = ScheduleRun(WORLD, n_steps=16, users=(1, 5, 9), seed=1, run=0)
REGRET, ERROR, PHASE_1 = 0, 1, 2


def test_regret_adds_up_over_users():
    measured = play_schedules(SMALL)
    assert measured.shape == (len(BANDITS), 3, 3)
    assert (np.diff(measured[:, REGRET], axis=1) > 0).all()
    assert (np.diff(measured[:, ERROR], axis=1) >= 0).all()
    assert (measured[:, PHASE_1] == measured[:, PHASE_1, :1]).all()
    assert (measured[:, ERROR] <= measured[:, REGRET]).all()


def test_a_run_is_a_function_of_its_seed():
    np.testing.assert_array_equal(play_schedules(SMALL), play_schedules(SMALL))
    assert (play_schedules(replace(SMALL, run=1)) != play_schedules(SMALL)).any()
    assert (play_schedules(replace(SMALL, seed=2)) != play_schedules(SMALL)).any()


def test_users_drawn_in_smaller_blocks_are_served_alike(monkeypatch):
    whole = play_schedules(SMALL)
    monkeypatch.setattr(schedules, "_AT_ONCE", 16)
    in_parts = play_schedules(SMALL)
    assert whole.shape == in_parts.shape
    assert np.isfinite(in_parts).all()
    assert (in_parts[:, REGRET] > 0).all()


@pytest.mark.parametrize(
    ("bandit", "n_steps", "tau", "n_warmup_users"),
    [("exp4p", 16, 4, 30), ("exp3", 2000, 45, 45), ("epoch-greedy", 16, 3, 256), ("epoch-greedy", 101, 3, 10_000)],
)
def test_a_bandit_is_played_as_its_theorem_sets(bandit, n_steps, tau, n_warmup_users):
    plan = replace(SMALL, n_steps=n_steps).schedule(bandit)
    assert (plan.n_uniform_steps, plan.n_warmup_users, plan.bandit) == (tau, n_warmup_users, bandit)


def test_a_phase_1_cut_short_says_so():
    assert replace(SMALL, n_steps=200).schedule("epoch-greedy").applied == (
        "J = 10000 users, the most that are run (L^2 would be 40000)"
    )


def test_algorithm_1_is_set_up_as_the_schedule_says():
    rng = np.random.default_rng(0)
    for bandit in BANDITS:
        plan = SMALL.schedule(bandit)
        recommender = schedules._build_phase_2(SMALL, bandit, plan, WORLD.models, lambda *_: WORLD.models, rng)
        kept = (recommender.n_uniform_steps, recommender.train_on, recommender.schedule.retrain_every)
        assert kept == (plan.n_uniform_steps, "uniform", SMALL.retrain_every)
        made = recommender.make_bandit(WORLD.models)
        assert made.reward_range == WORLD.reward_range
        assert made.policies.models is WORLD.models
        if bandit == "epoch-greedy":
            assert made.schedule == "bound"  # the one whose regret is logarithmic where there is a gap
        else:
            assert made.horizon == SMALL.n_steps


def test_phase_2_learns_from_the_uniform_steps_of_both_phases(monkeypatch):
    learned_from = []

    def fit(stats, n_classes, *, start, **settings):
        learned_from.append((stats.n_users, set(stats.count), start))
        return Fit(WORLD.models, np.zeros(1), True)

    monkeypatch.setattr(schedules.em, "fit", fit)
    play_schedules(replace(SMALL, users=(120,)))
    theorem_1, theorem_2 = learned_from[:2]
    assert (theorem_1, theorem_2) == ((30, {4}, None), (256, {3}, None))
    later = [(n_users, counts) for n_users, counts, start in learned_from[2:] if start is WORLD.models]
    assert sorted(later) == [(80, {4}), (80, {4}), (130, {4}), (130, {4}), (306, {3}), (356, {3})]


def test_phase_1_costs_what_it_costs_in_algorithm_1():
    """J users through `Latent` itself, beside the sample that stands for them: means within 4.5 sd."""
    plan = SMALL.schedule("exp4p")
    rng = np.random.default_rng(5)
    recommender = Latent(
        4, lambda models: Uniform(), lambda *_: WORLD.models, rng=rng, warmup_bandit=LinUCB(4, SMALL.warmup_width),
        **{**plan.settings(), "n_warmup_users": 400},
    )  # fmt: skip
    users = WORLD.draw(400, 16, rng)
    whole = users.regret(recommender.serve(range(400), users.contexts, users.rewards, rng))
    sampled = np.array(
        [play_schedules(replace(SMALL, run=run))[0, PHASE_1, 0] / plan.n_warmup_users for run in range(20)]
    )
    sd = (whole.var(ddof=1) / 400 + sampled.var(ddof=1) / 20) ** 0.5
    assert abs(whole.mean() - sampled.mean()) < 4.5 * sd


def test_exp4p_before_its_theory_begins_is_the_uniform_policy():
    """20 steps with 20 arms and 5 classes, K ln N = 32; the mean of 400 users within 4.5 sd."""
    world = SimulatedWorld(paper_classes(), n_arms=20)
    regret = play_schedules(ScheduleRun(world, 20, (400,), seed=0, run=0))[0, REGRET, 0] / 400
    users = world.draw(400, 20, np.random.default_rng(9))
    uniform = (users.means.max(axis=2) - users.means.mean(axis=2)).sum(axis=1)
    assert abs(regret - uniform.mean()) < 4.5 * (0.35 * 20**0.5) * (1 / 400) ** 0.5 * 2**0.5


def test_the_models_error_is_the_best_learned_policys_regret():
    rng = np.random.default_rng(2)
    learned = replace(WORLD.models, beta=WORLD.models.beta + 0.3 * rng.standard_normal((3, 4)))
    recommender = Latent(4, lambda models: Uniform(), rng=rng, models=learned, retrain_every=None)
    users = WORLD.draw(3, 5, rng)
    recommender.serve(range(3), users.contexts, users.rewards, rng)
    by_hand = []
    for u in range(3):
        lost = []
        for beta in learned.beta:
            taken = [int(np.argmax(context @ beta)) for context in users.contexts[u]]
            lost.append(sum(users.means[u, t].max() - users.means[u, t, arm] for t, arm in enumerate(taken)))
        by_hand.append(min(lost))
    np.testing.assert_allclose(schedules._compute_models_error(recommender, range(3), users), by_hand)


def test_more_of_phase_1_makes_better_models():
    few, many = (play_schedules(replace(SMALL, users=(60,), needed_per_class=n))[0, ERROR, 0] for n in (2, 200))
    assert many < few / 3


def test_spectral_experts_learns_from_phase_1_alone():
    task = replace(SMALL, learner="spectral", users=(120,), needed_per_class=100)
    measured = play_schedules(task)
    assert np.isfinite(measured).all()
    assert measured[0, ERROR, 0] < 0.2 * measured[0, REGRET, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learner": "magic"}, "learner='magic'"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"users": ()}, r"users=\(\)"),
        ({"users": (3, 0)}, "users="),
    ],
)
def test_a_play_of_nothing_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        replace(SMALL, **settings)
