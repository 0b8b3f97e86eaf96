"""ILOVETOCONBANDITS against its published pseudo-code, its optimisation problem, and its rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcb.bandits.bandit import choose_uniformly, count_decision, serve, serve_step_by_step
from lcb.bandits.over_policies import _policy_set
from lcb.bandits.over_policies._iltcb_numba import break_ties, descend
from lcb.bandits.over_policies.iltcb import ILTCB, WEIGHTS
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import ClassPolicies, Greedy, Softmax
from support.explorer_problems import TWO, Cyclic, Fixed, check_every_distribution, runs


def published_descent(advice, b, n_arms, mu, start=0.0):
    """Algorithm 2, every policy a distribution: `advice` (contexts, N, K).  Returns Q and the number of steps."""
    q, steps = np.zeros(len(b)) + start, 0
    while True:
        if q @ (2 * n_arms + b) > 2 * n_arms:
            q = q * (2 * n_arms / (q @ (2 * n_arms + b)))
        smoothed = mu + (1 - n_arms * mu) * np.einsum("h,ihk->ik", q, advice)
        v = (advice / smoothed[:, None]).sum(axis=2).mean(axis=0)
        s = (advice**2 / smoothed[:, None] ** 2).sum(axis=2).mean(axis=0)
        d = v - (2 * n_arms + b)
        if d.max() <= 1e-10 * n_arms:
            return q, steps
        h = int(np.flatnonzero(d >= (1 - 1e-9) * d.max())[0])
        q[h] += (v[h] + d[h]) / (2 * (1 - n_arms * mu) * s[h])
        steps += 1


def solves_op(q, advice, b, n_arms, mu, slack=1e-8):
    """Both constraints of (OP), on Q as a distribution over policies that may sum to less than 1."""
    smoothed = mu + (1 - n_arms * mu) * np.einsum("h,ihk->ik", q, advice)
    v = (advice / smoothed[:, None]).sum(axis=2).mean(axis=0)
    return (
        (q >= 0).all()
        and q.sum() <= 1 + slack
        and q @ b <= 2 * n_arms + slack
        and (v <= 2 * n_arms + b + slack * n_arms).all()
    )


def published(contexts, rewards, uniforms, policies, delta, ends, fixed_mu=None):
    """Algorithm 1 with the whole history in a list: the distribution of every step."""
    n, n_arms, history, distributions = policies.n_policies, len(contexts[0]), [], []
    weights, mu = np.full(n, 1 / n), fixed_mu or 1 / (2 * n_arms)
    for t, (context, reward) in enumerate(zip(contexts, rewards, strict=True), start=1):
        p = mu + (1 - n_arms * mu) * weights @ policies(context)
        distributions.append(p)
        arm = int(np.searchsorted(np.cumsum(p), uniforms[t - 1] * p.sum(), side="right"))
        history.append((policies(context), arm, reward[arm], p[arm]))
        if not ends(t):
            continue
        mu = fixed_mu or min(1 / (2 * n_arms), math.sqrt(math.log(16 * t**2 * n / delta) / (n_arms * t)))
        estimates = np.array([sum(r * xi[h, a] / p_a for xi, a, r, p_a in history) / t for h in range(n)])
        b = (estimates.max() - estimates) / (100 * mu)
        q, steps = published_descent(np.array([xi for xi, _, _, _ in history]), b, n_arms, mu)
        assert steps <= 4 * math.log(1 / (n_arms * mu)) / mu  # Theorem 3
        best = np.isclose(estimates, estimates.max(), rtol=0, atol=1e-12)
        weights = q + (1 - q.sum()) * best / best.sum()
    return np.array(distributions)


@pytest.mark.parametrize(
    "settings, ends",
    [
        ({}, lambda t: t & (t - 1) == 0),
        ({"delta": 0.9}, lambda t: t & (t - 1) == 0),
        ({"mu": 0.02}, lambda t: t & (t - 1) == 0),
        ({"mu": 0.002, "epoch": 50}, lambda t: t % 50 == 0),
    ],
)
def test_its_distributions_are_those_of_the_published_pseudo_code(settings, ends):
    rng, n_steps = np.random.default_rng(5), 600
    models = LatentModels(pi=np.full(3, 1 / 3), beta=rng.normal(size=(3, 3)), sigma2=np.ones(3))
    policies = ClassPolicies(models)
    contexts, uniforms = rng.normal(size=(n_steps, 2, 3)), rng.random(n_steps)
    shares = np.array([policies(context)[1] * 0.8 for context in contexts]) + 0.2 * rng.random((n_steps, 2))
    expected = published(
        contexts, shares, uniforms, policies, settings.get("delta", 0.05), ends, settings.get("mu")
    )  # fmt: skip
    bandit = ILTCB(policies, n_kept=n_steps, reward_range=(-1.0, 3.0), **settings)
    state = check_every_distribution(bandit, contexts, uniforms, shares, expected)
    assert state[3] < 1 / 4  # mu has left its cap, 1 / (2 K), and the descent has run
    assert np.count_nonzero(bandit.weights(state)) > 1


def ties(rng, n_policies, n_arms):
    """Greedy policies that tie often."""
    return Greedy()(rng.integers(0, 3, (n_policies, n_arms)).astype(float))


@given(
    seed=st.integers(0, 2**32 - 1),
    n_policies=st.integers(1, 7),
    n_arms=st.integers(1, 6),
    n_contexts=st.integers(1, 9),
    log_mu=st.floats(-9, 0),
    share=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
)
def test_the_descent_solves_the_optimisation_problem_as_published(seed, n_policies, n_arms, n_contexts, log_mu, share):
    """From 0, where it is as fast as Theorem 3 says, and from other weights, which (OP) may have to scale down."""
    rng, mu = np.random.default_rng(seed), math.exp(log_mu) / n_arms
    codes = np.empty((n_contexts, n_policies))
    advice = np.array([break_ties(ties(rng, n_policies, n_arms), codes[i]).copy() for i in range(n_contexts)])
    b = rng.exponential(size=n_policies) * rng.choice([0.1, 1.0, 30.0])
    b -= b.min()
    start = share * rng.dirichlet(np.ones(n_policies))
    q = start.copy()
    descend(codes, b, n_arms, mu, q)
    assert solves_op(q, advice, b, n_arms, mu)
    naive, steps = published_descent(advice, b, n_arms, mu, start)
    np.testing.assert_allclose(q, naive, atol=1e-12)
    assert share or steps <= 4 * math.log(1 / (n_arms * mu)) / mu


def test_the_weights_played_solve_the_optimisation_problem():
    """After a run with forced uniform steps, too."""
    rng = np.random.default_rng(2)
    policies = ClassPolicies(LatentModels(pi=np.full(4, 0.25), beta=rng.normal(size=(4, 3)), sigma2=np.ones(4)))
    bandit, advice, sums, n_arms = ILTCB(policies, mu=0.004), [], np.zeros(4), 5
    state = bandit.start()
    for t in range(64):
        context = rng.normal(size=(n_arms, 3))
        if t % 9 == 4:
            decision = choose_uniformly(bandit, context, rng.random())
        else:
            decision = bandit.choose(state, context, rng)
        state, reward = bandit.count_decision(state, decision), rng.random()
        state = bandit.update(state, decision, reward)
        advice.append(policies(context))
        sums += policies(context)[:, decision.arm] * reward / decision.propensity
    b = (sums.max() - sums) / 64 / (100 * 0.004)
    weights = bandit.weights(state)
    assert abs(weights.sum() - 1) < 1e-12
    assert solves_op(weights, np.array(advice), b, n_arms, 0.004)


def test_at_the_cap_half_is_uniform_and_half_is_the_best_policy(rng):
    bandit = ILTCB(TWO)
    state, context = bandit.start(), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(bandit.choose(state, context, rng).distribution, [0.375, 0.375, 0.125, 0.125])
    decision = bandit.choose(state, context, Fixed(0.4))
    assert decision.arm == 1
    state = bandit.update(bandit.count_decision(state, decision), decision, 1.0)
    np.testing.assert_array_equal(bandit.weights(state), [0, 1])
    np.testing.assert_allclose(bandit.choose(state, context, rng).distribution, [0.125, 0.625, 0.125, 0.125])


def test_the_estimates_are_unbiased_for_every_policy(rng):
    policies = ClassPolicies(LatentModels(pi=np.full(3, 1 / 3), beta=rng.normal(size=(3, 2)), sigma2=np.ones(3)))
    bandit = ILTCB(policies, mu=0.03)
    state = bandit.start()
    for context in rng.normal(size=(8, 5, 2)):
        decision = bandit.choose(state, context, rng)
        state = bandit.update(bandit.count_decision(state, decision), decision, rng.random())
    context, reward = rng.normal(size=(5, 2)), rng.random(5)
    p = bandit.choose(state, context, rng).distribution
    moves = np.zeros(3)
    for arm in range(5):
        decision = bandit.choose(state, context, Fixed(p[:arm].sum() + p[arm] / 2))
        assert decision.arm == arm
        moves += p[arm] * (bandit.update(state, decision, reward[arm]) - state)[WEIGHTS + 3 : WEIGHTS + 6]
    np.testing.assert_allclose(moves, policies(context) @ reward, atol=1e-12)


def test_weights_of_an_epoch_stay_until_its_end(rng):
    bandit = ILTCB(TWO, mu=0.01, epoch=4)
    state, seen = bandit.start(), []
    for _ in range(12):
        seen.append(bandit.weights(state))
        decision = bandit.choose(state, np.eye(2), rng)
        state = bandit.update(bandit.count_decision(state, decision), decision, float(decision.arm == 0))
    assert [i for i in range(1, 12) if (seen[i] != seen[i - 1]).any()] == [4, 8]


def test_a_reward_that_comes_late_counts_from_the_next_epoch_on(rng):
    """An epoch's weights are made of the rewards that had come; b averages over those, not over decisions."""
    bandit = ILTCB(TWO, mu=0.2, epoch=2)
    state, decisions = bandit.start(), []
    for arm in (0, 1):
        decisions.append(bandit.choose(state, np.eye(2), Fixed(0.25 + arm / 2)))
        state = bandit.count_decision(state, decisions[-1])
    np.testing.assert_array_equal(bandit.weights(state), [0.5, 0.5])  # no reward: both are best
    state = bandit.update(state, decisions[1], 0.75)  # b = 1.5 / 1 / (100 * 0.2), as in the docstring's example
    np.testing.assert_allclose(bandit.weights(state), [0.1975, 0.8025])
    state = bandit.update(state, decisions[0], 0.75)
    q = 6 / 30
    np.testing.assert_allclose(bandit.weights(state), [q + 0.3, q + 0.3])


def test_only_the_last_contexts_are_kept():
    bandit = ILTCB(Cyclic(2), mu=0.1, n_kept=3)
    state = bandit.start()
    for n_arms in (3, 1, 2, 1, 2):  # with one arm both policies agree
        decision = bandit.choose(state, np.zeros((n_arms, 1)), Fixed(0.2))
        state = bandit.update(bandit.count_decision(state, decision), decision, 0.5)
    assert state[0] == 5
    assert state[2] == 3  # arms at most
    np.testing.assert_array_equal(state[WEIGHTS + 4 :].reshape(3, 2), [[0, 0], [0, 1], [0, 1]])


def test_contexts_of_many_sizes_are_served(rng):
    bandit = ILTCB(Cyclic(3), epoch=1)
    state = bandit.start()
    for n_arms in (1, 7, 2, 30, 3):
        decision = bandit.choose(state, np.zeros((n_arms, 1)), rng)
        assert decision.distribution.min() >= 1 / (2 * 30) - 1e-12
        assert abs(decision.distribution.sum() - 1) < 1e-12
        state = bandit.update(count_decision(bandit, state, decision), decision, 0.5)


def codes_of(xi):
    codes = np.empty(len(xi))
    return break_ties(np.ascontiguousarray(xi, float), codes), codes


def test_policies_that_take_the_same_arm_agree():
    xi = np.eye(4)[[2, 0, 2, 3, 0]]
    out, codes = codes_of(xi)
    np.testing.assert_array_equal(out, xi)
    np.testing.assert_array_equal(codes, [0, 1, 0, 3, 1])


def test_arms_that_the_same_policies_want_are_one_choice_and_share_equally():
    third = 1 / 3
    out, codes = codes_of([[third, third, 0, 0, third], [0, 0, 1, 0, 0], [third, third, 0, 0, third]])
    np.testing.assert_allclose(out, [[third, third, 0, 0, third], [0, 0, 1, 0, 0], [third, third, 0, 0, third]])
    np.testing.assert_array_equal(codes, [0 + 3 * 2, 1, 0 + 3 * 2])


def test_a_tie_between_choices_goes_to_the_one_most_policies_want():
    half, third = 1 / 2, 1 / 3
    out, codes = codes_of([[third, third, third], [0, half, half], [0, 0, 1]])
    np.testing.assert_array_equal(out, [[0, 0, 1], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(codes, [0, 0, 0])
    out, codes = codes_of([[half, 0, 0, half], [half, half, 0, 0], [0, 0, half, half], [0, half, half, 0]])
    np.testing.assert_array_equal(out, np.eye(4)[[0, 0, 3, 1]])  # two each: that of the first policies
    np.testing.assert_array_equal(codes, [0, 0, 2, 3])


@given(seed=st.integers(0, 2**32 - 1))
def test_settling_ties_does_not_depend_on_the_names_of_arms(seed):
    rng = np.random.default_rng(seed)
    xi, order = ties(rng, 5, 6), rng.permutation(6)
    out, codes = codes_of(xi)
    renamed, same_codes = codes_of(xi[:, order])
    np.testing.assert_array_equal(renamed, out[:, order])
    np.testing.assert_array_equal(same_codes, codes)
    assert ((out > 0) <= (xi > 0)).all()
    np.testing.assert_allclose(out.sum(axis=1), 1)


def test_regret_grows_slower_than_decisions():
    """At 10 arms uniform steps give way first; the interval of the slope over 16 seeds ends below 0.8."""
    regret = runs(ILTCB(TWO), 16, 2**14, gap=0.8, n_arms=10)
    slopes = np.log2(regret[:, -1] / regret[:, 2**11 - 1]) / 3
    assert 0.5 < slopes.mean() < slopes.mean() + 4.5 * slopes.std(ddof=1) / 4 < 0.8


def test_regret_grows_as_a_square_root():
    """With estimates that are true, a decision's expected regret falls as mu: as sqrt(ln t / t)."""
    gap, bandit, losses, mus = 0.4, ILTCB(TWO), [], []
    for log_t in (32, 40, 48):
        t = 2**log_t
        state = bandit.start()
        state[:5] = t, 0, 2, 0.5, t
        state[WEIGHTS + 2 : WEIGHTS + 4] = 0.7 * t, (0.7 - gap) * t
        state[WEIGHTS + 4 :] = np.tile([0, 1], bandit.n_kept)
        losses.append(gap * bandit.choose(state, np.eye(2), Fixed(0.5)).distribution[1])
        mus.append(math.sqrt(math.log(16 * t**2 * 2 / 0.05) / (2 * t)))
    slopes = np.diff(np.log2(losses)) / 8
    np.testing.assert_allclose(slopes, -0.5, atol=0.06)
    np.testing.assert_allclose(np.diff(np.log2(losses))[1], np.diff(np.log2(mus))[1], atol=0.02)


def test_one_policy_and_one_arm_simply_work(rng):
    one = ClassPolicies(LatentModels(pi=[1.0], beta=[[1.0, 2.0]], sigma2=[1.0]))
    for settings in ({}, {"mu": 0.01}, {"mu": 1.0}, {"epoch": 1, "n_kept": 1}):
        bandit = ILTCB(one, **settings)
        state = bandit.start()
        for context in (np.array([[0.3, 0.1]]), np.eye(2), np.array([[0.3, 0.1]])):
            decision = bandit.choose(state, context, rng)
            assert abs(decision.distribution.sum() - 1) < 1e-12
            state = bandit.update(bandit.count_decision(state, decision), decision, 0.5)
        assert decision.propensity == pytest.approx(1)
        np.testing.assert_allclose(bandit.weights(state), [1])


def test_a_mu_of_one_over_the_arms_or_more_is_uniform(rng):
    for mu in (0.25, 0.7):
        bandit = ILTCB(TWO, mu=mu, epoch=1)
        state, context = bandit.start(), rng.normal(size=(4, 2))
        for _ in range(3):
            decision = bandit.choose(state, context, rng)
            np.testing.assert_allclose(decision.distribution, 0.25)
            state = bandit.update(bandit.count_decision(state, decision), decision, 1.0)
        assert bandit.note(4) == f"at K 4 mu={mu:g} makes 100% of the decisions uniform"


def test_the_note_says_for_how_long_half_is_uniform(rng):
    five = ClassPolicies(LatentModels(pi=np.full(5, 0.2), beta=rng.normal(size=(5, 3)), sigma2=np.ones(5)))
    assert ILTCB(five).note(20) == (
        "at K 20, N 5 the theory's mu makes half of the first 2048 decisions uniform and gives the other half "
        "to the best policy so far"
    )
    for t, capped in ((1024, True), (2048, False)):
        mu = math.sqrt(math.log(16 * t**2 * 5 / 0.05) / (20 * t))
        assert (mu >= 1 / 40) == capped
    assert "half of the first 1800 decisions" in ILTCB(five, epoch=100).note(20)
    assert ILTCB(five).note(1) is None
    assert ILTCB(five, mu=0.03).note(20) == "at K 20 mu=0.03 makes 60% of the decisions uniform"
    assert ILTCB(five, mu=0.001).note(20) is None


@pytest.mark.parametrize("numbers", [1, 30, 10**6])
def test_serving_in_parts_and_for_any_set_of_policies_changes_nothing(monkeypatch, numbers):
    monkeypatch.setattr(_policy_set, "_MOST_NUMBERS", numbers)
    rng = np.random.default_rng(1)
    contexts, rewards = rng.integers(0, 3, (4, 11, 3, 2)).astype(float), rng.random((4, 11, 3))
    bandit = ILTCB(Cyclic(2), mu=0.05, epoch=2, n_kept=4)
    states = np.tile(bandit.start(), (4, 1))
    served = serve(bandit, states, contexts, rewards, np.random.default_rng(2), n_uniform=3)
    slow = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(2), n_uniform=3)
    np.testing.assert_array_equal(served[1], slow[1])
    np.testing.assert_allclose(served[0], slow[0], atol=1e-12)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"delta": 0.0}, "delta=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"mu": 0.0}, "mu=0.0"),
        ({"mu": 1.5}, "mu=1.5"),
        ({"mu": math.nan}, "mu=nan"),
        ({"epoch": 0}, "epoch=0"),
        ({"n_kept": 0}, "n_kept=0"),
        ({"reward_range": (1.0, 1.0)}, "reward_range"),
        ({"policies": Cyclic(0)}, "n_policies=0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        ILTCB(**{"policies": TWO, **settings})


def test_what_it_cannot_use_is_refused_with_what_to_do(rng):
    bandit = ILTCB(TWO, reward_range=(0.0, 2.0))
    decision = bandit.choose(bandit.start(), np.eye(2), rng)
    with pytest.raises(InputError, match=r"reward -1 is outside .* \[0, 2\] that ILTCB needs; declare the range"):
        bandit.update(bandit.start(), decision, -1.0)
    with pytest.raises(InputError, match="no arms"):
        bandit.choose(bandit.start(), np.empty((0, 2)), rng)
    for use in (bandit.count_decision, lambda state, decision: bandit.update(state, decision, 0.5)):
        with pytest.raises(InputError, match="choose_uniformly"):
            use(bandit.start(), Decision.uniform(np.eye(2), 0.3))
    with pytest.raises(InputError, match="reward 3 is outside"):
        serve(bandit, bandit.start()[None], np.tile(np.eye(2), (1, 5, 1, 1)), np.full((1, 5, 2), 3.0), rng)


def test_policies_that_spread_are_refused(rng):
    bandit = ILTCB(ClassPolicies(TWO.models, Softmax(0.5)))
    contexts, rewards = np.tile(np.eye(2), (1, 5, 1, 1)), np.full((1, 5, 2), 0.5)
    for use in (
        lambda: bandit.choose(bandit.start(), np.eye(2), rng),
        lambda: choose_uniformly(bandit, np.eye(2), 0.3),
        lambda: serve(bandit, bandit.start()[None], contexts, rewards, rng),
        lambda: serve(bandit, bandit.start()[None], contexts, rewards, rng, n_uniform=2),
    ):
        with pytest.raises(InputError, match=r"unequal probabilities, .* Greedy"):
            use()
