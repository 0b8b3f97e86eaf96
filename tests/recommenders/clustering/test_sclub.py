from __future__ import annotations

import numpy as np
import pytest

from conftest import stats_of
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.recommenders.clustering.sclub import Sclub
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.stats import UserStats

N, T, K, D = 9, 14, 5, 3
FIXED = {"width": 0.3, "ridge": 0.7}


def f(count):
    return np.sqrt((1 + np.log(1 + count)) / (1 + count))


class Published:
    """The publication's pseudo-code, line by line; users are numbers, those of `past` (gram, moment, count) first."""

    def __init__(self, n, threshold, frequency, past=None):
        self.gram, self.moment, self.count = np.zeros((n, D, D)), np.zeros((n, D)), np.zeros(n)
        self.threshold, self.frequency, self.n_past = threshold, frequency, 0
        if past is not None:
            self.n_past = past.n_users
            self.gram[: self.n_past], self.moment[: self.n_past] = past.gram, past.moment
            self.count[: self.n_past] = past.count
        self.clusters = {0: set(range(n))}
        self.tau, self.s, self.checked = int(self.count.sum()), 1, set()
        self.n_splits, self.n_merges = 0, 0
        self.write_down()
        for i in range(self.n_past):
            self.settle(i)
        self.next_phase()

    def matrix(self, users):
        return FIXED["ridge"] * np.eye(D) + self.gram[sorted(users)].sum(axis=0)

    def theta(self, users):
        return np.linalg.solve(self.matrix(users), self.moment[sorted(users)].sum(axis=0))

    def total(self, users):
        return self.count[sorted(users)].sum()

    def write_down(self):
        self.pivot = {j: (self.theta(users), self.total(users)) for j, users in self.clusters.items()}

    def next_phase(self):
        due = self.tau >= 2 ** (self.s + 1) - 2  # rounds of phases 1 .. s
        while self.tau >= 2 ** (self.s + 1) - 2:
            self.s += 1
        if due:
            self.checked = set(range(self.n_past))
            self.write_down()

    def cluster_of(self, i):
        return next(users for users in self.clusters.values() if i in users)

    def choose(self, i, context):
        users = self.cluster_of(i)
        inverse, theta = np.linalg.inv(self.matrix(users)), self.theta(users)
        return int(np.argmax([theta @ x + FIXED["width"] * np.sqrt(x @ inverse @ x) for x in context]))

    def update(self, i, x, reward):
        self.gram[i] += np.outer(x, x)
        self.moment[i] += reward * x
        self.count[i] += 1
        self.tau += 1
        self.settle(i)
        self.next_phase()

    def settle(self, i):
        j = next(j for j, users in self.clusters.items() if i in users)
        if len(self.clusters[j]) > 1 and (self.is_far(i, j) or self.is_rare_or_frequent(i, j)):
            self.clusters[j].remove(i)
            new = min(set(range(len(self.count))) - set(self.clusters))
            self.clusters[new], self.pivot[new] = {i}, (self.theta({i}), self.count[i])
            self.n_splits += 1
        self.checked.add(i)
        pair = self.pair_to_merge()
        while pair:
            first, second = pair
            self.clusters[first] |= self.clusters.pop(second)
            self.n_merges += 1
            pair = self.pair_to_merge()

    def is_far(self, i, j):
        theta, count = self.pivot[j]
        return np.linalg.norm(self.theta({i}) - theta) > self.threshold * (f(self.count[i]) + f(count))

    def is_rare_or_frequent(self, i, j):
        apart = [abs(self.count[i] - self.count[u]) / self.tau for u in self.clusters[j]]
        return max(apart) > 2 * self.frequency * f(self.tau)

    def pair_to_merge(self):
        checked = sorted(j for j, users in self.clusters.items() if users <= self.checked)
        for first in checked:
            for second in checked:
                a, b = self.clusters[first], self.clusters[second]
                near = np.linalg.norm(self.theta(a) - self.theta(b))
                p = abs(self.total(a) / len(a) - self.total(b) / len(b)) / self.tau
                if (
                    first < second
                    and near < self.threshold / 2 * (f(self.total(a)) + f(self.total(b)))
                    and p < self.frequency * f(self.tau)
                ):
                    return first, second
        return None


def some_users(seed, n=N, n_steps=T):
    """Two kinds of users; arms of different lengths, so that no choice is a tie."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-0.7, 0.7, (n, n_steps, K, D))
    beta = rng.choice([-1, 1], (2, D))[rng.integers(0, 2, n)]
    return contexts, np.einsum("utkd,ud->utk", contexts, beta) + 0.1 * rng.standard_normal((n, n_steps, K))


def agrees(sclub, naive, users):
    return all(set(sclub.cluster_of(u)) == naive.cluster_of(u) for u in users)


SETTINGS = [(0.3, 1.4), (0.6, 1.4), (0.6, 0.1), (1.0, 0.02), (1.5, 0.3)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold,frequency", SETTINGS)
def test_choices_and_clusters_are_those_of_the_published_pseudo_code(threshold, frequency, seed):
    contexts, rewards = some_users(seed)
    rng = np.random.default_rng(seed)
    for order in (
        [(i, t) for i in range(N) for t in range(T)],
        [(int(i), t) for t in range(T) for i in rng.permutation(N)],
    ):
        sclub, naive = (
            Sclub(D, N, threshold=threshold, frequency=frequency, **FIXED),
            Published(N, threshold, frequency),
        )
        for i in range(N):
            sclub.start(i)
        for i, t in order:
            decision = sclub.choose(i, contexts[i, t], rng)
            assert decision.arm == naive.choose(i, contexts[i, t])
            sclub.update(i, decision, rewards[i, t, decision.arm])
            naive.update(i, decision.x, rewards[i, t, decision.arm])
            assert agrees(sclub, naive, range(N))
        assert naive.n_splits > 0
        for j, users in naive.clusters.items():
            np.testing.assert_allclose(sclub._clusters.theta[j], naive.theta(users), atol=1e-10)
            assert sclub._clusters.n_rewards[j] == naive.total(users)


def test_the_pseudo_code_was_seen_to_split_to_merge_and_to_merge_by_time_alone():
    """Some pairs are kept apart by frequency until enough rounds have passed for them."""
    n_merges, by_time = 0, 0
    for seed in range(4):
        for threshold, frequency in SETTINGS:
            contexts, rewards = some_users(seed)
            naive = Published(N, threshold, frequency)
            for t in range(T):
                for i in range(N):
                    before = {j: (frozenset(users), naive.total(users)) for j, users in naive.clusters.items()}
                    arm, merges = naive.choose(i, contexts[i, t]), naive.n_merges
                    naive.update(i, contexts[i, t, arm], rewards[i, t, arm])
                    n_merges += naive.n_merges - merges
                    own = naive.cluster_of(i)
                    merged = [j for j in before if j not in naive.clusters]
                    by_time += any(i not in before[j][0] and not before[j][0] <= own for j in merged)
    assert n_merges > 20
    assert by_time > 0


@pytest.mark.parametrize("threshold,frequency", SETTINGS)
def test_serving_whole_users_leaves_the_same_clusters(threshold, frequency):
    contexts, rewards = some_users(5)
    sclub, naive = Sclub(D, N, threshold=threshold, frequency=frequency, **FIXED), Published(N, threshold, frequency)
    for part in (slice(0, 5), slice(5, T)):
        arms = sclub.serve(range(N), contexts[:, part], rewards[:, part], np.random.default_rng(0))
        for i in range(N):
            for t in range(arms.shape[1]):
                context, reward = contexts[i, part][t], rewards[i, part][t]
                assert arms[i, t] == naive.choose(i, context)
                naive.update(i, context[arms[i, t]], reward[arms[i, t]])
        assert agrees(sclub, naive, range(N))


def test_with_huge_thresholds_it_is_population_linucb():
    contexts, rewards = some_users(1, n=30)
    sclub, linucb = Sclub(D, 30, threshold=1e9, frequency=1e9, **FIXED), Pooled(LinUCB(D, **FIXED))
    arms, wanted = (r.serve(range(30), contexts, rewards, np.random.default_rng(0)) for r in (sclub, linucb))
    np.testing.assert_array_equal(arms, wanted)
    assert sclub.cluster_of(3) == list(range(30))


def test_with_threshold_zero_it_is_individual_linucb():
    contexts, rewards = some_users(2, n=30)
    sclub, linucb = Sclub(D, 30, threshold=0.0, **FIXED), Individual(LinUCB(D, **FIXED))
    rng = np.random.default_rng(0)
    for t in range(5):
        for u in range(30):
            decision, wanted = sclub.choose(u, contexts[u, t], rng), linucb.choose(u, contexts[u, t], rng)
            assert decision.arm == wanted.arm
            for recommender in (sclub, linucb):
                recommender.update(u, decision, rewards[u, t, decision.arm])
    assert [sclub.cluster_of(u) for u in range(30)] == [[u] for u in range(30)]


def test_a_user_who_comes_far_more_often_than_another_is_set_apart():
    """After n rewards of ann's alone the frequencies are 1 and 0; 2 * .55 F(n) is 1.01 for n = 1, .92 for n = 2."""
    sclub, rng = Sclub(1, 2, threshold=1e9, frequency=0.55), np.random.default_rng(0)
    for user in ("ann", "bob"):
        sclub.start(user)
    for cluster in (["ann", "bob"], ["ann"]):
        sclub.update("ann", sclub.choose("ann", np.ones((1, 1)), rng), 0.5)
        assert sclub.cluster_of("ann") == cluster


def test_rewards_in_any_order_leave_the_same_clusters():
    contexts, rewards = some_users(3)
    found = []
    for order in (range(3 * N), np.random.default_rng(0).permutation(3 * N)):
        sclub, rng = Sclub(D, N, threshold=0.5, **FIXED), np.random.default_rng(0)
        opened = [(i, t, sclub.choose(i, contexts[i, t], rng)) for t in range(3) for i in range(N)]
        for k in order:
            i, t, decision = opened[k]
            sclub.update(i, decision, rewards[i, t, decision.arm])
        found.append([sclub.cluster_of(i) for i in range(N)])
    assert found[0] == found[1]
    assert 1 < len({tuple(users) for users in found[0]}) < N


@pytest.mark.parametrize("threshold", [0.8, 1.1])
def test_past_users_are_set_apart_before_the_first_new_one_comes_and_new_ones_join_them(threshold):
    classes = equal_classes(np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, -1.0]]))
    past, new = stats_of(classes, 20, 12, seed=1)[0], range(20, 20 + N)
    sclub, naive = Sclub(D, N, threshold=threshold, history=past, **FIXED), Published(20 + N, threshold, 2**0.5, past)
    for u in new:
        sclub.start(u)
    assert agrees(sclub, naive, range(20 + N))
    assert len(naive.clusters) > 1
    users = SimulatedWorld(classes, n_arms=K).draw(N, 40, np.random.default_rng(2))
    contexts = users.contexts * np.random.default_rng(3).uniform(0.5, 1, (N, 40, K, 1))  # no ties
    arms = sclub.serve(new, contexts, users.rewards, np.random.default_rng(0))
    for i in range(N):
        for t in range(40):
            assert arms[i, t] == naive.choose(20 + i, contexts[i, t])
            naive.update(20 + i, contexts[i, t, arms[i, t]], users.rewards[i, t, arms[i, t]])
    assert agrees(sclub, naive, range(20 + N))
    assert len({j for j, members in naive.clusters.items() if min(members) < 20 <= max(members)}) > 1


def test_of_several_pairs_the_first_by_number_is_merged():
    from lcb.recommenders.clustering._sclub_numba import _find_pair

    clusters = Sclub(1, 3)._clusters
    for part in (clusters.size, clusters.n_checked, clusters.n_rewards):
        part[:] = 1
    clusters.n_ids[0] = 3
    for changed, pair in (([2, 1], (0, 1)), ([2], (0, 2)), ([1, 2], (0, 1)), ([0], (0, 1))):
        assert _find_pair(np.array(changed), 1.0, clusters, 1.0) == pair
    clusters.n_checked[0] = 0
    assert _find_pair(np.array([2]), 1.0, clusters, 1.0) == (1, 2)
    assert _find_pair(np.array([0]), 1.0, clusters, 1.0) == (-1, -1)


def test_past_users_may_be_nameless():
    past = stats_of(paper_classes(n_classes=2, n_features=D), 20, 12, seed=1)[0]
    sclub = Sclub(D, 2, threshold=1e9, frequency=1e9, history=UserStats(past.packed, D))
    sclub.start(0)
    assert sclub.cluster_of(0) == [0]
    assert sclub._clusters.sums[0] == pytest.approx(past.packed[:-2].sum(axis=1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_users": 0}, "n_users=0"),
        ({"threshold": -1.0}, "threshold=-1.0"),
        ({"frequency": np.nan}, "frequency=nan"),
        ({"width": -1.0}, "width=-1.0"),
        ({"ridge": -1.0}, "ridge=-1.0"),
        ({"history": UserStats.from_rows([0], [[1.0]], [1.0])}, "history has 1 features, the context 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Sclub(**{"n_features": D, "n_users": 5, **settings})


def test_strangers_and_broken_rewards_are_refused():
    sclub, rng = Sclub(2, 1), np.random.default_rng(0)
    decision = sclub.choose("ann", np.eye(2), rng)
    with pytest.raises(InputError, match="n_users=1"):
        sclub.choose("bob", np.eye(2), rng)
    with pytest.raises(InputError, match="'bob' has not started"):
        sclub.update("bob", decision, 1.0)
    with pytest.raises(InputError, match="reward is inf"):
        sclub.update("ann", decision, np.inf)
