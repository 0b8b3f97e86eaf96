"""The bounds against the paper's formulas worked out by hand, and the schedules' numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.recommenders.latent import Latent
from lcb.theory import (
    TABLE_1,
    Sizes,
    schedule_1,
    schedule_2,
    smallest_gap,
    theorem_1,
    theorem_1_margin,
    theorem_2,
)

# J = 4, U = 12, S = 100, T = 1200, L = 100, K = 7, N = 3, d = 5, C = 11, gap = 1/2;  U~ = 16, T~ = 1300
SIZES = Sizes(
    n_users=12, n_steps=1200, n_warmup_users=4, n_warmup_steps=100, longest=100, n_arms=7, n_classes=3, n_features=5,
    gap=0.5, n_contexts=11,
)  # fmt: skip
ROW = {bound.algorithm: bound for bound in TABLE_1}
BY_HAND = {
    "Population EXP4.P": (1300 * 7 * 1.0986122887) ** 0.5,
    "Individual EXP4.P": (16 * 1300 * 7 * 1.0986122887) ** 0.5,
    "Population LinUCB": 5 * (1300 * 7.1708884785) ** 0.5,
    "Individual LinUCB": 5 * (16 * 1300 * 7.1708884785) ** 0.5,
    "EXP4.P enum-policies": (16 * 1300 * 7 * 11 * 1.9459101491) ** 0.5,
    "LCB (Theorem 1)": (12 * 1200 * 3 * 1.0986122887) ** 0.5,
    "CLUB": 3 + 16 * 15**0.5 + 16 * 5 / 0.25 * 7.1708884785 + 5 * 3 * 1300**0.5,
    "LCB (Theorem 2)": 3 * 10_000 + 5 * 100 * 10 + 12 * 7 / 0.25 * (1.0986122887 + 7.0909098221),
}  # ln 3 = 1.0986..., ln 7 = 1.9459..., ln 1301 = 7.1708..., ln 1201 = 7.0909...


def doubled(sizes: Sizes, *names: str) -> Sizes:
    return replace(sizes, **{name: 2 * getattr(sizes, name) for name in names})


def test_the_table_has_the_papers_eight_rows_in_the_papers_order():
    assert [bound.algorithm for bound in TABLE_1] == list(BY_HAND)
    assert [bound.type for bound in TABLE_1] == ["problem-independent"] * 6 + ["problem-dependent"] * 2
    true, given, average = (
        "true policy of each user",
        "best policy in pre-defined policy set",
        "best average policy of all users",
    )
    assert [bound.against for bound in TABLE_1] == [given, given, average, true, true, true, true, true]


@pytest.mark.parametrize("algorithm", BY_HAND)
def test_a_row_is_the_papers_formula(algorithm):
    assert ROW[algorithm].growth(SIZES) == pytest.approx(BY_HAND[algorithm], rel=1e-9)


@pytest.mark.parametrize("algorithm", BY_HAND)
def test_the_printed_formula_is_the_one_computed(algorithm):
    text = ROW[algorithm].formula
    for ours, pythons in (
        ("min{K,N}", "min(K,N)"), ("ln(1+T~)", "ln(1+TT)"), ("ln(T~+1)", "ln(TT+1)"), ("U~", "UU"), ("T~", "TT"),
        ("ln N", "ln(N)"), ("ln K", "ln(K)"), ("^", "**"),
    ):  # fmt: skip
        text = text.replace(ours, pythons)
    text = text.replace(" + ", "+").replace(" ", "*")
    letters = {
        "J": 4, "U": 12, "S": 100, "T": 1200, "L": 100, "K": 7, "N": 3, "d": 5, "C": 11, "gap": 0.5,
        "UU": 16, "TT": 1300, "sqrt": math.sqrt, "ln": math.log, "min": min,
    }  # fmt: skip
    assert eval(text, letters) == pytest.approx(BY_HAND[algorithm], rel=1e-9)


@pytest.mark.parametrize("algorithm", BY_HAND)
def test_no_bound_falls_as_a_problem_grows(algorithm):
    growth = ROW[algorithm].growth
    longer = replace(SIZES, longest=400)
    for names in (["n_users"], ["n_users", "n_steps"], ["n_warmup_users", "n_warmup_steps"], ["n_arms"], ["n_classes"],
                  ["n_features"], ["n_contexts"]):  # fmt: skip
        assert growth(doubled(longer, *names)) >= growth(longer)
    assert growth(replace(SIZES, gap=0.25)) >= growth(SIZES)
    dependent = growth(replace(SIZES, gap=0.25)) > growth(SIZES)
    assert dependent == (ROW[algorithm].type == "problem-dependent")


def test_at_fixed_steps_per_user_the_regret_of_lcb_is_linear_in_users_and_a_square_root_in_steps():
    sizes = Sizes.of_equal_users(n_users=100, steps_per_user=400, n_arms=4, n_classes=3, n_features=2, gap=1.0)
    for bound in (ROW["LCB (Theorem 1)"].growth, lambda sizes: theorem_1(sizes, "exp4p").phase_2):
        assert bound(doubled(sizes, "n_users", "n_steps")) == pytest.approx(2 * bound(sizes))
        assert bound(doubled(sizes, "n_steps", "longest")) == pytest.approx(2**0.5 * bound(sizes))


def test_the_least_of_arms_and_classes_counts_in_theorem_1():
    growth = ROW["LCB (Theorem 1)"].growth
    assert growth(replace(SIZES, n_arms=2)) == pytest.approx(math.sqrt(12 * 1200 * 2 * math.log(3)))
    assert growth(replace(SIZES, n_arms=70)) == growth(SIZES)


def test_one_class_or_one_arm_leaves_nothing_to_learn():
    one_class = replace(SIZES, n_classes=1, gap=math.inf)
    assert ROW["LCB (Theorem 1)"].growth(one_class) == ROW["Population EXP4.P"].growth(one_class) == 0
    assert ROW["CLUB"].growth(one_class) == pytest.approx(1 + 16 * 5**0.5 + 5 * 1300**0.5)
    for contexts in (11, math.inf):
        assert ROW["EXP4.P enum-policies"].growth(replace(SIZES, n_arms=1, n_contexts=contexts)) == 0


def test_contexts_without_end_make_enumeration_hopeless():
    assert ROW["EXP4.P enum-policies"].growth(replace(SIZES, n_contexts=math.inf)) == math.inf


def test_theorem_1_phase_by_phase():
    root = 20.0  # sqrt(J S)
    phase_1 = root + 5 * root * math.sqrt(math.log(101))
    assert theorem_1(SIZES, "exp4p").phase_1 == theorem_1(SIZES, "exp3").phase_1 == pytest.approx(phase_1)
    assert theorem_1(SIZES, "exp4p").phase_2 == pytest.approx(120 * (3 + math.sqrt(7 * math.log(3))))
    assert theorem_1(SIZES, "exp3").phase_2 == pytest.approx(120 * (3 + math.sqrt(3 * math.log(3))))
    assert theorem_1(SIZES, "exp3").total == pytest.approx(phase_1 + 120 * (3 + math.sqrt(3 * math.log(3))))


def test_theorem_2_has_the_logarithm_that_the_table_drops():
    phases = theorem_2(SIZES)
    assert phases.phase_1 == pytest.approx(30_000 + 5 * 100 * 10 * math.sqrt(math.log(101)))
    table = ROW["LCB (Theorem 2)"].growth(SIZES)
    assert phases.total - table == pytest.approx(5000 * (math.sqrt(math.log(101)) - 1))
    assert any("ln(L+1)" in note for note in ROW["LCB (Theorem 2)"].notes)


def test_the_tables_footnote_is_told():
    assert any("O(T~)" in note for note in ROW["Population LinUCB"].notes)


def test_the_condition_of_theorem_1():
    # U T = 14,400, J S = 400, d^2 = 25: d^2/K = 25/7 for EXP4.P, d^2/N = 25/3 for EXP3
    assert theorem_1_margin(SIZES, "exp4p") == pytest.approx(14_400 * 7 / (25 * 400))
    assert theorem_1_margin(SIZES, "exp3") == pytest.approx(14_400 * 3 / (25 * 400))
    assert theorem_1_margin(replace(SIZES, n_features=1), "exp4p") == 36  # the largest of 1 and 1/7
    assert theorem_1_margin(replace(SIZES, n_warmup_users=0, n_warmup_steps=0)) == math.inf


def test_steps_are_totals_and_the_longest_user_is_any_user():
    sizes = Sizes.of_equal_users(n_users=950, steps_per_user=20, n_arms=20, n_classes=5, n_features=10, gap=1.0)
    assert (sizes.n_steps, sizes.n_warmup_steps, sizes.longest) == (19_000, 1000, 20)
    assert (sizes.all_users, sizes.all_steps) == (1000, 20_000)
    assert sizes.to_json()["n_contexts"] is None
    assert sizes.to_json()["n_users"] == 950


@pytest.mark.parametrize("name", ["n_users", "n_steps", "longest", "n_arms", "n_classes", "n_features", "n_contexts"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_size_below_1_is_refused(name, value):
    with pytest.raises(InputError, match=rf"{name}=.*; it must be at least 1"):
        replace(SIZES, **{name: value})


@pytest.mark.parametrize("name", ["n_warmup_users", "n_warmup_steps"])
def test_phase_1_may_be_empty_but_not_less(name):
    with pytest.raises(InputError, match=f"{name}=-1 .*at least 0"):
        replace(SIZES, **{name: -1})
    assert theorem_1(replace(SIZES, n_warmup_users=0, n_warmup_steps=0)).phase_1 == 0


@pytest.mark.parametrize("gap", [0.0, -0.5, math.nan])
def test_a_gap_must_be_above_0(gap):
    with pytest.raises(InputError, match=r"gap=.*; it must be at least 1e-09"):
        replace(SIZES, gap=gap)


def test_only_contexts_and_the_gap_can_be_infinite():
    with pytest.raises(InputError, match=r"n_steps=inf \(T\)"):
        replace(SIZES, n_steps=math.inf)


@pytest.mark.parametrize(("name", "value"), [("n_steps", 1201), ("n_warmup_steps", 401)])
def test_users_cannot_have_more_steps_than_the_longest_allows(name, value):
    with pytest.raises(InputError, match=f"{name}={value} of .* at most longest=100 each"):
        replace(SIZES, **{name: value})


def test_a_bandit_of_neither_theorem_is_refused():
    for call in (theorem_1, theorem_1_margin):
        with pytest.raises(InputError, match="bandit='ucb'"):
            call(SIZES, "ucb")
    with pytest.raises(InputError, match="bandit='epoch-greedy'"):
        schedule_1(20, bandit="epoch-greedy")


@pytest.mark.parametrize(
    ("n_steps", "longest", "needed", "tau", "n_warmup_users"),
    [
        (1, 1, 1, 1, 1),
        (16, 16, 1, 4, 4),
        (17, 17, 1, 5, 5),
        (20, 100, 3, 5, 10),
        (20, 100, 11, 5, 11),
        (10**16, 10**16, 1, 10**8, 10**8),
    ],
)
def test_theorem_1_sets_square_roots_rounded_up(n_steps, longest, needed, tau, n_warmup_users):
    plan = schedule_1(n_steps, longest, needed, "exp3")
    assert (plan.n_uniform_steps, plan.n_warmup_users, plan.bandit) == (tau, n_warmup_users, "exp3")


def test_theorem_2_sets_3_steps_and_the_square_of_the_longest():
    plan = schedule_2(7)
    assert (plan.n_uniform_steps, plan.n_warmup_users, plan.bandit) == (3, 49, "epoch-greedy")
    assert schedule_2(7, 50).n_warmup_users == 50


def test_a_schedule_says_which_length_of_phase_1_applied():
    assert schedule_1(100, None, 50).applied == "J = 50 users, as the learner needs (sqrt(L) would be 10)"
    assert schedule_1(100, None, 10).applied == "J = sqrt(L) = 10 users (the learner needs 10)"
    assert schedule_2(4, 50).applied == "J = 50 users, as the learner needs (L^2 would be 16)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedule_1(0), "n_steps=0"),
        (lambda: schedule_1(30, 20), "n_steps=30, longest=20"),
        (lambda: schedule_1(20, None, 0), "n_needed_by_learner=0"),
        (lambda: schedule_2(0), "longest=0"),
        (lambda: schedule_2(3, -1), "n_needed_by_learner=-1"),
    ],
)
def test_a_schedule_of_nothing_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("plan", [schedule_1(16, None, 2), schedule_2(2)])
def test_algorithm_1_keeps_the_schedule(plan):
    """J users with a LinUCB each, the uniform steps alone learned from."""
    learned_from = []
    models = LatentModels(pi=[1.0], beta=[[1.0, 0.0]], sigma2=[1.0])

    class Any:
        def start(self):
            return np.zeros(1)

        def choose(self, state, context, rng):
            raise AssertionError("phase 2 has begun")

        update = choose

    def learn(stats, rng, last):
        learned_from.append(stats)
        return models

    rng = np.random.default_rng(0)
    recommender = Latent(2, lambda models: Any(), learn, rng=rng, **plan.settings())
    for user in range(plan.n_warmup_users):
        at_random = []
        for _ in range(plan.n_uniform_steps + 2):
            decision = recommender.choose(user, rng.standard_normal((3, 2)), rng)
            at_random.append(decision.at_random)
            recommender.update(user, decision, 1.0)
        assert at_random == [True] * plan.n_uniform_steps + [False] * 2
    recommender.start("the next")
    assert learned_from[0].n_users == plan.n_warmup_users
    assert set(learned_from[0].count) == {plan.n_uniform_steps}
    assert len(recommender.warmup.states) == plan.n_warmup_users


def test_the_gap_is_between_the_two_nearest_classes():
    models = LatentModels(pi=np.full(3, 1 / 3), beta=[[0.0, 0.0], [3.0, 4.0], [3.0, 3.0]], sigma2=np.ones(3))
    assert smallest_gap(models) == 1.0
    assert smallest_gap(LatentModels(pi=[1.0], beta=[[1.0]], sigma2=[1.0])) == math.inf
