"""Epoch-Greedy against its published pseudo-code, exact expectations and its rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multinomial

from lcb.bandits.bandit import choose_uniformly, serve, serve_step_by_step
from lcb.bandits.over_policies import _policy_set
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy, exploit_steps
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.policies import ClassPolicies
from support.explorer_problems import TWO, Cyclic, Fixed, check_every_distribution, runs


def published(contexts, rewards, uniforms, policies, n_exploit):
    """Algorithm 1 of the publication, samples kept in a list: the distribution of every step.

    `n_exploit(values, n_arms)` is s; `values[h]` are K r I(h(x) = a) of all samples.
    """
    samples, distributions, left = [], [], 0
    for context, reward, uniform in zip(contexts, rewards, uniforms, strict=True):
        n_arms = len(context)
        if left == 0:  # one step of exploration
            arm = int(uniform * n_arms)
            samples.append((context, arm, reward[arm]))
            distributions.append(np.full(n_arms, 1 / n_arms))
            values = [[len(x) * r * policies(x)[h, a] for x, a, r in samples] for h in range(policies.n_policies)]
            left = n_exploit(np.array(values), n_arms)
            continue
        totals = np.array([math.fsum(value) for value in values])
        best = np.flatnonzero(np.isclose(totals, totals.max(), rtol=0, atol=1e-12))
        distributions.append(np.mean([policies(context)[h] for h in best], axis=0))
        left -= 1
    return np.array(distributions)


def by_root(c):
    return lambda values, n_arms: max(1, int(c * math.sqrt(values.shape[1] / (n_arms * math.log(len(values))))))


def by_bound(c):
    def n_exploit(values, n_arms):
        n_policies, n = values.shape
        means = np.sort(values.mean(axis=1))
        lead, log_n = means[-1] - means[-2], math.log(n_policies)
        bernstein = n * lead**2 / (2 * (2 * n_arms + 2 * n_arms * lead / 3))
        threshold = math.sqrt(16 * n_arms * log_n / (3 * n))
        return max(1, int(c / min(1, threshold + threshold / (2 * log_n), n_policies * math.exp(-bernstein))))

    return n_exploit


@pytest.mark.parametrize(
    "settings, n_exploit",
    [
        ({"c": 1.0}, by_root(1.0)),
        ({"c": 7.0}, by_root(7.0)),
        ({"schedule": "bound"}, by_bound(1.0)),
        ({"schedule": "bound", "c": 4.0}, by_bound(4.0)),
    ],
)
def test_its_distributions_are_those_of_the_published_pseudo_code(settings, n_exploit):
    rng = np.random.default_rng(3)
    models = LatentModels(pi=np.full(4, 0.25), beta=np.vstack([np.eye(3), -np.ones(3)]), sigma2=np.ones(4))
    policies, n_steps = ClassPolicies(models), 400
    contexts, uniforms = rng.normal(size=(n_steps, 3, 3)), rng.random(n_steps)
    shares = np.array([policies(context)[1] * 0.9 for context in contexts]) + 0.1 * rng.random((n_steps, 3))
    expected = published(contexts, shares, uniforms, policies, n_exploit)
    bandit = EpochGreedy(policies, reward_range=(-1.0, 3.0), **settings)
    state = check_every_distribution(bandit, contexts, uniforms, shares, expected)
    assert state[1] < 0.45 * n_steps  # s has moved


def test_the_sums_are_unbiased_for_every_policy():
    """Over all arms an explored step can take, the sum moves by what the policy would have earned."""
    rng = np.random.default_rng(0)
    beta = rng.normal(size=(3, 2))
    bandit = EpochGreedy(ClassPolicies(LatentModels(pi=np.full(3, 1 / 3), beta=beta, sigma2=np.ones(3))))
    context, reward = rng.normal(size=(5, 2)), rng.random(5)
    moves = []
    for arm in range(5):
        decision = bandit.choose(bandit.start(), context, Fixed((arm + 0.5) / 5))
        assert decision.arm == arm
        assert decision.at_random
        moves.append(decision.propensity * bandit.update(bandit.start(), decision, reward[arm])[3:])
    np.testing.assert_allclose(np.sum(moves, axis=0), bandit.policies(context) @ reward, atol=1e-12)


def test_epochs_are_one_explored_step_and_s_others():
    bandit, state = EpochGreedy(TWO, c=3.0), EpochGreedy(TWO).start()
    rng, explored = np.random.default_rng(0), []
    for t in range(25):  # s = floor(3 sqrt(n / (2 ln 2))) = 2, 3, 4, 5, 5
        decision = bandit.choose(state, np.eye(2), rng)
        if decision.at_random:
            explored.append(t)
        state = bandit.update(bandit.count_decision(state, decision), decision, 1.0)
    assert explored == [0, 3, 7, 12, 18, 24]


def test_uniform_steps_from_outside_are_explored_steps():
    bandit = EpochGreedy(TWO, c=3.0)
    state, context = bandit.start(), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    for uniform in (0.1, 0.5):
        decision = choose_uniformly(bandit, context, uniform)
        state = bandit.update(bandit.count_decision(state, decision), decision, 0.5)
    np.testing.assert_allclose(state, [0, 2, 2, 1.5, 1.5])  # 0.5 / (1 / 3) for the policy whose arm it was
    assert not bandit.choose(state, context, Fixed(0.3)).at_random


def test_only_explored_steps_move_the_sums():
    bandit = EpochGreedy(TWO)
    state = np.array([0.0, 1.0, 1.0, 0.0, 2.0])
    decision = bandit.choose(state, np.eye(2), Fixed(0.3))
    assert (decision.arm, decision.at_random, decision.propensity) == (1, False, 1.0)
    np.testing.assert_array_equal(bandit.update(state, decision, 0.9), state)
    np.testing.assert_array_equal(bandit.count_decision(state, decision), [1.0, 1.0, 1.0, 0.0, 2.0])


def test_tied_policies_share_equally():
    three = ClassPolicies(LatentModels(pi=np.full(3, 1 / 3), beta=np.eye(3), sigma2=np.ones(3)))
    state = np.array([0.0, 1.0, 1.0, 2.0, 0.0, 2.0])
    context = np.vstack([np.eye(3), np.eye(3)[:1]])  # the first policy ties between two arms
    decision = EpochGreedy(three).choose(state, context, Fixed(0.3))
    np.testing.assert_allclose(decision.distribution, [0.25, 0, 0.5, 0.25])
    assert [EpochGreedy(three).choose(state, context, Fixed(u)).arm for u in (0.2, 0.3, 0.7, 0.8)] == [0, 2, 2, 3]


@pytest.mark.parametrize("gap", [0.1, 0.4, 0.9])
@pytest.mark.parametrize("n", [12, 60])
def test_the_bound_is_above_the_exact_loss_of_two_policies(n, gap):
    """Two arms, a policy for each, 0/1 rewards: all outcomes of n explored samples, by how often each of 4 came."""
    means = np.array([0.5 + gap / 2, 0.5 - gap / 2])
    chances = np.array([means[0], 1 - means[0], means[1], 1 - means[1]]) / 2
    counts = np.array([(i, j, k, n - i - j - k) for i in range(n + 1) for j in range(n + 1 - i)
                       for k in range(n + 1 - i - j)])  # fmt: skip
    p = multinomial.pmf(counts, n, chances)
    assert abs(p.sum() - 1) < 1e-9
    lead = 2 * (counts[:, 2] - counts[:, 0]) / n  # of the worse policy
    loss = gap * p[lead > 0].sum() + gap / 2 * p[lead == 0].sum()
    slack = 4 * math.sqrt(2 * math.log(2) / (3 * n)) * (1 + 1 / (2 * math.log(2)))
    assert loss <= slack
    for least in np.unique(lead[lead > 0]):
        s = exploit_steps(n, np.array([0.0, least * n]), 2, 1.0, True)
        assert p[lead >= least].sum() <= 1 / s


def test_regret_grows_as_two_thirds_of_a_power():
    regret = runs(EpochGreedy(TWO), 24, 2**14, gap=0.8)
    slopes = np.log2(regret[:, -1] / regret[:, 2**10 - 1]) / 4
    assert abs(slopes.mean() - 2 / 3) < 0.05 + 4.5 * slopes.std(ddof=1) / np.sqrt(24)


def test_regret_grows_as_a_logarithm_with_a_gap_and_the_bound():
    """16 times the decisions add a constant: as much between 2^10 and 2^14 as is explored in between."""
    regret = runs(EpochGreedy(TWO, "bound"), 24, 2**14, gap=0.8)
    slopes = np.log2(regret[:, -1] / regret[:, 2**10 - 1]) / 4
    assert slopes.mean() + 4.5 * slopes.std(ddof=1) / np.sqrt(24) < 0.25
    later = regret[:, [2**8 - 1, 2**11 - 1, 2**14 - 1]].mean(axis=0)
    assert later[2] - later[1] < 1.1 * (later[1] - later[0])


def test_one_policy_and_one_arm_simply_work(rng):
    one = ClassPolicies(LatentModels(pi=[1.0], beta=[[1.0, 2.0]], sigma2=[1.0]))
    for schedule in ("sqrt", "bound"):
        bandit, explored = EpochGreedy(one, schedule), 0
        state = bandit.start()
        for _ in range(50):
            decision = bandit.choose(state, np.array([[0.3, 0.1]]), rng)
            assert (decision.arm, decision.propensity) == (0, 1.0)
            explored += decision.at_random
            state = bandit.update(bandit.count_decision(state, decision), decision, 0.5)
        assert explored == {"sqrt": 14, "bound": 1}[schedule]  # sqrt: s = 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4
        assert bandit.note(20) is None


def test_a_clear_lead_does_not_overflow():
    assert exploit_steps(1e6, np.array([1e6, 0.0]), 2, 1.0, True) == 2.0**53
    assert exploit_steps(0, np.zeros(2), 2, 1.0, True) == 1


def test_the_note_says_for_how_long_every_other_decision_is_uniform(rng):
    five = ClassPolicies(LatentModels(pi=np.full(5, 0.2), beta=rng.normal(size=(5, 3)), sigma2=np.ones(5)))
    bandit = EpochGreedy(five)
    n = bandit.note(20).split("first ")[1].split()[0]
    explored = int(n) // 2
    assert exploit_steps(explored, np.zeros(5), 20, 1.0, False) == 1
    assert exploit_steps(explored + 1, np.zeros(5), 20, 1.0, False) == 2
    assert bandit.note(20) == f"at K 20, N 5 every other one of the first {n} decisions is uniform"
    by_its_bound = EpochGreedy(five, "bound").note(20)
    explored = int(by_its_bound.split("first ")[1].split()[0]) // 2
    assert exploit_steps(explored, np.zeros(5), 20, 1.0, True) == 1
    assert exploit_steps(explored + 1, np.zeros(5), 20, 1.0, True) == 2
    assert by_its_bound.endswith("is uniform, unless one policy leads clearly")
    assert EpochGreedy(five, c=100.0).note(20) is None
    assert EpochGreedy(five, "bound", c=2.0).note(20) is None


@pytest.mark.parametrize("numbers", [1, 30, 10**6])
def test_serving_in_parts_and_for_any_set_of_policies_changes_nothing(monkeypatch, numbers):
    monkeypatch.setattr(_policy_set, "_MOST_NUMBERS", numbers)
    rng = np.random.default_rng(1)
    contexts, rewards = rng.integers(0, 3, (4, 11, 3, 2)).astype(float), rng.random((4, 11, 3))
    bandit = EpochGreedy(Cyclic(2), c=2.0)
    states = np.tile(bandit.start(), (4, 1))
    served = serve(bandit, states, contexts, rewards, np.random.default_rng(2), n_uniform=3)
    slow = serve_step_by_step(bandit, states, contexts, rewards, np.random.default_rng(2), n_uniform=3)
    np.testing.assert_array_equal(served[1], slow[1])
    np.testing.assert_allclose(served[0], slow[0], atol=1e-12)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"c": 0.0}, "c=0.0"),
        ({"c": math.nan}, "c=nan"),
        ({"schedule": "log"}, "schedule='log'; there are: sqrt, bound"),
        ({"reward_range": (1.0, 0.0)}, "reward_range"),
        ({"reward_range": (0.0, math.inf)}, "reward_range"),
        ({"policies": Cyclic(0)}, "n_policies=0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        EpochGreedy(**{"policies": TWO, **settings})


def test_what_it_cannot_use_is_refused_with_what_to_do(rng):
    bandit = EpochGreedy(TWO, reward_range=(0.0, 2.0))
    decision = bandit.choose(bandit.start(), np.eye(2), rng)
    with pytest.raises(InputError, match=r"reward 2.5 is outside .* \[0, 2\] that EpochGreedy needs; declare"):
        bandit.update(bandit.start(), decision, 2.5)
    with pytest.raises(InputError, match="no arms"):
        bandit.choose(bandit.start(), np.empty((0, 2)), rng)
    with pytest.raises(InputError, match="choose_uniformly"):
        bandit.update(bandit.start(), Decision.uniform(np.eye(2), 0.3), 0.5)
    states = bandit.start()[None]
    with pytest.raises(InputError, match="reward 3 is outside"):
        serve(bandit, states, np.tile(np.eye(2), (1, 5, 1, 1)), np.full((1, 5, 2), 3.0), rng)
    with pytest.raises(InputError, match="no arms"):
        serve(bandit, states, np.empty((1, 5, 0, 2)), np.empty((1, 5, 0)), rng)
    with pytest.raises(InputError, match="NaN"):
        serve(bandit, states, np.full((1, 5, 2, 2), np.nan), np.full((1, 5, 2), 1.0), rng)
