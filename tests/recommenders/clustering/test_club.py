from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from conftest import stats_of
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.recommenders.clustering._graph import build_sparse_graph
from lcb.recommenders.clustering.club import MOST_COMPLETE, Club
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import serve_step_by_step
from lcb.stats import UserStats

N, T, K, D = 12, 6, 5, 3


def published(order, contexts, rewards, *, edges, threshold, width, ridge, one_hop=False, past=None):
    """The publication's pseudo-code, line by line; users are numbers, those of `past` (gram, moment, count) first."""
    n, d = contexts.shape[0], contexts.shape[-1]
    identity, edges = ridge * np.eye(d), set(edges)
    matrix, b, count = [identity.copy() for _ in range(n)], [np.zeros(d) for _ in range(n)], [0] * n
    for i, (gram, moment, n_rewards) in enumerate(zip(*past, strict=True) if past else ()):
        matrix[i], b[i], count[i] = identity + gram, moment, n_rewards
    arms, start = {}, sum(count)
    for t, (i, step) in enumerate(order, start=1 + int(start)):
        w = [np.linalg.inv(m) @ v for m, v in zip(matrix, b, strict=True)]
        cluster = {i} | {u for u in range(n) if (i, u) in edges} if one_hop else reached_from(i, n, edges)
        inverse = np.linalg.inv(identity + sum(matrix[u] - identity for u in cluster))
        w_bar, context = inverse @ sum(b[u] for u in cluster), contexts[i, step]
        bound = [w_bar @ x + width * np.sqrt(x @ inverse @ x * np.log(t + 1)) for x in context]
        arm = arms[i, step] = int(np.argmax(bound))
        far = {u for u in range(n) if (i, u) in edges and too_far(w, count, threshold, i, u)}
        matrix[i] = matrix[i] + np.outer(context[arm], context[arm])
        b[i] = b[i] + rewards[i, step, arm] * context[arm]
        count[i] += 1
        edges -= {(i, u) for u in far} | {(u, i) for u in far}
    return arms, edges


def reached_from(i, n, edges):
    seen, waiting = {i}, [i]
    while waiting:
        at = waiting.pop()
        new = {u for u in range(n) if (at, u) in edges} - seen
        seen |= new
        waiting += new
    return seen


def too_far(w, count, threshold, i, u):
    cb = [threshold * np.sqrt((1 + np.log(1 + count[v])) / (1 + count[v])) for v in (i, u)]
    return np.linalg.norm(w[i] - w[u]) > sum(cb)


def all_pairs(n):
    return {(i, u) for i in range(n) for u in range(n) if i != u}


def edges_of(club, n=N):
    return {(i, u) for i in range(n) for u in club.neighbours_of(i)}


def some_users(seed, n=N, n_steps=T):
    """Two kinds of users; arms of different lengths, so that no choice is a tie."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-0.7, 0.7, (n, n_steps, K, D))
    beta = rng.choice([-1, 1], (2, D))[rng.integers(0, 2, n)]
    return contexts, np.einsum("utkd,ud->utk", contexts, beta) + 0.1 * rng.standard_normal((n, n_steps, K))


def started(**settings):
    """A club whose user i has place i."""
    club = Club(D, N, width=0.3, ridge=0.7, **settings)
    for i in range(N):
        club.start(i)
    return club


GRAPHS = {
    "complete": lambda seed: {},
    "sparse": lambda seed: {"graph": "sparse", "degree": 3.0, "rng": np.random.default_rng(seed)},
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("one_hop", [False, True], ids=["component", "one hop"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_choices_and_graph_are_those_of_the_published_pseudo_code(graph, one_hop, threshold, seed):
    contexts, rewards = some_users(seed)
    settings = {"threshold": threshold, "one_hop": one_hop}
    club = started(**settings, **GRAPHS[graph](seed))
    order = [(i, t) for i in range(N) for t in range(T)]
    wanted, edges = published(order, contexts, rewards, edges=edges_of(club), width=0.3, ridge=0.7, **settings)
    arms = club.serve(range(N), contexts, rewards, np.random.default_rng(0))
    assert {key: arms[key] for key in order} == wanted
    assert edges_of(club) == edges

    club, rng = started(**settings, **GRAPHS[graph](seed)), np.random.default_rng(seed)
    order = [(int(i), t) for t in range(T) for i in rng.permutation(N)]  # users interleaved
    wanted, edges = published(order, contexts, rewards, edges=edges_of(club), width=0.3, ridge=0.7, **settings)
    for i, t in order:
        decision = club.choose(i, contexts[i, t], rng)
        assert decision.arm == wanted[i, t]
        club.update(i, decision, rewards[i, t, decision.arm])
    assert edges_of(club) == edges
    if not one_hop:
        assert all(set(club.cluster_of(i)) == reached_from(i, N, edges) for i in range(N))


def test_a_complete_start_graph_joins_all():
    assert edges_of(started()) == all_pairs(N)


@pytest.mark.parametrize("one_hop", [False, True])
def test_with_a_huge_threshold_it_is_population_linucb_of_the_same_bonus(one_hop):
    contexts, rewards = some_users(1, n=40)
    club = Club(D, 40, threshold=1e9, width=0.3, ridge=0.7, log_bonus=False, one_hop=one_hop)
    linucb = Pooled(LinUCB(D, width=0.3, ridge=0.7))
    arms, wanted = (r.serve(range(40), contexts, rewards, np.random.default_rng(0)) for r in (club, linucb))
    np.testing.assert_array_equal(arms, wanted)
    assert club.cluster_of(7) == (list(range(40)) if not one_hop else [7, *reversed([u for u in range(40) if u != 7])])


@pytest.mark.parametrize("one_hop", [False, True])
def test_with_threshold_zero_it_is_individual_linucb_of_the_same_bonus(one_hop):
    contexts, rewards = some_users(2, n=40)
    club = Club(D, 40, threshold=0, width=0.3, ridge=0.7, log_bonus=False, one_hop=one_hop)
    linucb = Individual(LinUCB(D, width=0.3, ridge=0.7))
    arms, wanted = (r.serve(range(40), contexts, rewards, np.random.default_rng(0)) for r in (club, linucb))
    np.testing.assert_array_equal(arms, wanted)
    assert [club.cluster_of(u) for u in range(40)] == [[u] for u in range(40)]


def test_rewards_in_any_order_leave_the_same_graph():
    contexts, rewards = some_users(3)
    graphs = []
    for order in (range(3 * N), np.random.default_rng(0).permutation(3 * N)):
        club, rng = started(threshold=0.4), np.random.default_rng(0)
        opened = [(i, t, club.choose(i, contexts[i, t], rng)) for t in range(3) for i in range(N)]
        for k in order:
            i, t, decision = opened[k]
            club.update(i, decision, rewards[i, t, decision.arm])
        for i in range(N):
            club.choose(i, contexts[i, 3], rng)
        graphs.append(edges_of(club))
    assert graphs[0] == graphs[1]
    assert 0 < len(graphs[0]) < N * (N - 1)


@pytest.mark.parametrize("one_hop", [False, True])
def test_a_late_reward_of_a_neighbour_counts_in_the_very_next_decision(one_hop):
    club, rng, context = Club(2, 2, one_hop=one_hop, width=0.0), np.random.default_rng(0), np.eye(2)
    opened = club.choose("bob", context, rng)
    assert club.choose("ann", context, rng).propensity == 0.5  # nothing known
    club.update("bob", opened, 1.0)
    assert club.choose("ann", context, rng).distribution[opened.arm] == 1.0


def test_the_bonus_grows_with_the_logarithm_of_the_round_if_asked():
    """After one reward 1 for (1, 0) theta is (.5, 0): .5 + .707 w for arm 0, .9 w for arm 1, equal at w = 2.59."""
    context = np.array([[1.0, 0.0], [0.0, 0.9]])
    for width, log_bonus, arm in [(2.5, False, 0), (2.7, False, 1), (2.5, True, 1), (2.45, True, 0)]:  # sqrt(ln 3) 1.05
        club, rng = Club(2, 1, width=width, log_bonus=log_bonus), np.random.default_rng(0)
        club.update("ann", club.choose("ann", context[:1], rng), 1.0)
        assert club.choose("ann", context, rng).arm == arm


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("threshold", [0.25, 0.4, 0.5, 0.6])
def test_components_and_their_sums_are_those_of_the_graph_that_is_left(graph, threshold):
    n, rng = 150, np.random.default_rng(4)
    contexts, rewards = some_users(5, n=n, n_steps=10)
    settings = {"graph": "sparse", "degree": 6.0, "rng": rng} if graph == "sparse" else {}
    club = Club(D, n, threshold=threshold, **settings)
    for i in range(n):
        club.start(i)
    sizes = []
    for half in (slice(0, 5), slice(5, 10)):
        club.serve(range(n), contexts[:, half], rewards[:, half], rng)
        rows, columns = np.array(sorted(edges_of(club, n)) or np.empty((0, 2), int)).T
        n_found, label = connected_components(coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n)))
        for h in range(n_found):
            members = np.flatnonzero(label == h)
            assert club.cluster_of(members[0].item()) == members.tolist()
            sums = club._components.sums[club._components.label[members[0]]]
            np.testing.assert_allclose(sums, club._users.stats[members].sum(axis=0), atol=1e-10)
        sizes.append(n_found)
    assert sizes[0] <= sizes[1]


def test_a_path_that_is_cut_in_the_middle_falls_in_two():
    """The search from both ends, on a graph where nothing is close: 0 - 1 - ... - 9, cut between 3 and 4."""
    from lcb.recommenders.clustering._club_numba import cut
    from lcb.recommenders.clustering._graph_numba import split

    club = Club(1, 10, graph="sparse", degree=0.0, rng=np.random.default_rng(0))
    ends = np.array([1, *[x for i in range(1, 9) for x in (i - 1, i + 1)], 8], np.int32)
    live = np.array([1, *[2] * 8, 1])
    graph = club._graph._replace(others=ends, live=live, starts=np.cumsum(live) - live)
    for name, start in (("near", 3), ("far", 4)):
        fresh = graph._replace(others=ends.copy(), live=live.copy())
        stats = np.arange(10.0)[:, None] * np.ones(2)
        parts = club._components._replace(label=np.zeros(10, np.int64), n=np.array([1, 0]), marks=np.zeros(10, int))
        parts.sums[:] = 0
        parts.sums[0] = stats.sum(axis=0)
        cut(fresh, 3, 4)
        split(fresh, start, np.array([7 - start]), parts, stats)
        assert len(set(parts.label[:4])) == len(set(parts.label[4:])) == 1, name
        assert parts.label[0] != parts.label[9]
        assert parts.sums[parts.label[0], 0] == 0 + 1 + 2 + 3
        assert parts.sums[parts.label[9], 0] == 45 - 6


def test_every_pair_of_a_sparse_start_graph_is_as_likely():  # 4.5 sd; 6 pairs of 4 users, and the size of a large graph
    rng, n_drawn, p = np.random.default_rng(0), 3000, 0.4
    joined = np.zeros((4, 4))
    for _ in range(n_drawn):
        joined += matrix_of(build_sparse_graph(4, 3 * p, rng))
    frequency = joined[np.triu_indices(4, 1)] / n_drawn
    assert np.abs(frequency - p).max() < 4.5 * np.sqrt(p * (1 - p) / n_drawn)
    n, degree = 5000, 25.0
    graph = build_sparse_graph(n, degree, rng)
    expected = n * (n - 1) / 2 * degree / (n - 1)
    assert abs(graph.live.sum() / 2 - expected) < 4.5 * np.sqrt(expected)
    assert graph.live.std() == pytest.approx(np.sqrt(degree), rel=0.05)


def matrix_of(graph):
    n = len(graph.live)
    matrix = np.zeros((n, n))
    for i in range(n):
        np.add.at(matrix[i], graph.others[graph.starts[i] : graph.starts[i] + graph.live[i]], 1)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert matrix.max(initial=0) <= 1
    assert np.diag(matrix).sum() == 0
    return matrix


def test_a_sparse_graph_may_be_empty_or_full():
    rng = np.random.default_rng(0)
    assert matrix_of(build_sparse_graph(7, 0.0, rng)).sum() == 0
    assert matrix_of(build_sparse_graph(7, 6.0, rng)).sum() == 42
    assert matrix_of(build_sparse_graph(1, 0.0, rng)).sum() == 0


def test_a_sparse_start_graph_has_three_ln_n_neighbours_unless_asked():
    club = Club(1, 2000, graph="sparse", rng=np.random.default_rng(0))
    assert club._graph.live.mean() == pytest.approx(3 * np.log(2000), rel=0.05)


@pytest.fixture
def past():
    return stats_of(paper_classes(n_classes=2, n_features=D), 9, 7, seed=1)[0]


@pytest.mark.parametrize("one_hop", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_past_users_are_in_the_graph_with_the_edges_among_them_tested(past, graph, one_hop):
    n, n_new = past.n_users + 4, 4
    settings = {"threshold": 0.3, "one_hop": one_hop}
    club = Club(D, n_new, width=0.3, ridge=0.7, history=past, **settings, **GRAPHS[graph](3))
    for u in range(9, n):
        club.start(u)
    before = all_pairs(n) if graph == "complete" else pairs_of(build_sparse_graph(n, 3.0, np.random.default_rng(3)))
    w = np.linalg.solve(0.7 * np.eye(D) + past.gram, past.moment[..., None])[..., 0]
    kept = {(i, u) for i, u in before if max(i, u) >= 9 or not too_far(w, past.count, 0.3, i, u)}
    assert edges_of(club, n) == kept != before

    rng = np.random.default_rng(0)
    contexts, rewards = some_users(6, n=n)
    order = [(i, t) for i in range(9, n) for t in range(T)]
    known = past.gram, past.moment, past.count
    wanted, edges = published(order, contexts, rewards, edges=kept, width=0.3, ridge=0.7, past=known, **settings)
    arms = club.serve(range(9, n), contexts[9:], rewards[9:], rng)
    assert {(i, t): arms[i - 9, t] for i, t in order} == wanted
    assert edges_of(club, n) == edges


def pairs_of(graph):
    return {(int(i), int(u)) for i, u in np.argwhere(matrix_of(graph))}


def test_a_past_user_who_comes_back_is_known(past):
    club, rng = Club(D, 1, threshold=0.0, history=past), np.random.default_rng(0)
    club.choose(4, np.eye(D), rng)  # w is not 0: this user's edges go
    assert club.neighbours_of(4) == []
    np.testing.assert_array_equal(club._users.stats[4], past.packed[:-2, 4])
    club.start("new")  # there is still room for one
    with pytest.raises(InputError, match="n_users=1"):
        club.start("another")


def test_past_users_may_be_nameless(past):
    club = Club(D, 2, threshold=1e9, history=UserStats(past.packed, D))
    club.start(0)
    assert club.cluster_of(0) == [0]
    assert club._components.sums[0] == pytest.approx(past.packed[:-2].sum(axis=1))


def test_direct_neighbours_serve_better_than_components_and_those_as_well_as_one_for_all():
    """The simulation of the paper at 500 users; the gaps are ten standard errors and more."""
    users = SimulatedWorld(paper_classes()).draw(500, 20, np.random.default_rng(0))

    def regret(recommender):
        return users.regret(recommender.serve(range(500), users.contexts, users.rewards, np.random.default_rng(1)))

    population = regret(Pooled(LinUCB(10, width=0.1))).mean()
    assert regret(Club(10, 500, threshold=0.75, width=0.1, ridge=0.1, one_hop=True)).mean() < 0.6 * population
    assert regret(Club(10, 500, threshold=0.4, width=0.1)).mean() < 1.05 * population


def test_more_users_than_announced_are_refused_by_name():
    club = Club(2, 2)
    club.start("ann")
    club.start("bob")
    club.start("ann")
    with pytest.raises(InputError, match="no row is left for 'eve': all n_users=2"):
        club.start("eve")


def test_a_reward_for_somebody_unknown_is_refused():
    club, rng = Club(2, 2), np.random.default_rng(0)
    decision = club.choose("ann", np.eye(2), rng)
    with pytest.raises(InputError, match="'bob' has not started"):
        club.update("bob", decision, 1.0)
    with pytest.raises(InputError, match="reward is nan"):
        club.update("ann", decision, np.nan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_features": 0}, "n_features=0"),
        ({"n_users": 0}, "n_users=0"),
        ({"threshold": -0.1}, "threshold=-0.1"),
        ({"width": np.inf}, "width=inf"),
        ({"ridge": 0.0}, "ridge=0.0"),
        ({"graph": "ring"}, "graph='ring'"),
        ({"degree": 3.0}, "degree=3.0 with graph=.complete"),
        ({"graph": "sparse", "degree": 9.0, "rng": np.random.default_rng(0)}, "degree=9.0"),
        ({"graph": "sparse"}, "give rng"),
        ({"n_users": MOST_COMPLETE + 1}, "use graph='sparse'"),
        ({"history": UserStats.from_rows([0], [[1.0]], [1.0])}, "history has 1 features, the context 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Club(**{"n_features": D, "n_users": 5, **settings})


def test_serving_is_the_same_in_one_go_and_step_by_step_with_one_hop():
    contexts, rewards = some_users(8)
    clubs = [started(threshold=0.4, one_hop=True) for _ in range(2)]
    fast = clubs[0].serve(range(N), contexts, rewards, np.random.default_rng(0))
    slow = serve_step_by_step(clubs[1], range(N), contexts, rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(fast, slow)
    assert edges_of(clubs[0]) == edges_of(clubs[1])
