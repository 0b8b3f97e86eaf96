"""CLUB, online clustering of bandits (Gentile, Li & Zappella 2014, ICML, arXiv:1401.8257, Algorithm 1).

Users are the nodes of a graph that only loses edges.  In round t user i is served and

    play argmax_a  theta . x_a + width sqrt(x_a' A^-1 x_a ln(t + 1))       (width is the publication's alpha)
         A = ridge I + sum x x',  theta = A^-1 sum r x                     over all users of i's connected component
    delete every edge (i, l) with  ||theta_i - theta_l|| > radius_i + radius_l
         theta_i = (ridge I + sum x x')^-1 sum r x                         over the user's own rewards
         radius_i = threshold sqrt((1 + ln(1 + T_i)) / (1 + T_i))          (threshold is alpha_2; T_i rewards so far)
    add the reward to i

The test uses the estimates before the round's reward, so `choose` makes it, and the order of rewards does not change
the graph.  All `n_users` are in the graph from the start; those who have not come have theta = 0; past users' rewards
count as rounds.  With a huge threshold this is Population LinUCB; with threshold 0 and users one after another it is
Individual LinUCB.  `one_hop` uses the sums of the user and its direct neighbours instead of the component's.

A decision costs O(K d^2 + d^3), its test O(neighbours d), the split of a component a search of its smaller part;
`one_hop` adds O(neighbours d^2) if another user was served in between.  Memory: n (d^2 + 4 d) numbers, and n^2 bytes
for the complete graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.decision import Decision, check_reward
from lcb.errors import InputError
from lcb.recommenders.clustering._graph import build_complete_graph, build_sparse_graph
from lcb.recommenders.clustering._places import Places
from lcb.recommenders.recommender import Users
from lcb.stats import UserStats

MOST_COMPLETE = 30_000  # users in a complete graph: 0.9 GB


class _Users(NamedTuple):
    stats: Floats  # (n, p) of a user's own rewards: the upper triangle of sum x x', then sum r x
    n_rewards: Floats  # (n,)
    theta: Floats  # (n, d)
    radius: Floats  # (n,)


class _Components(NamedTuple):
    label: NDArray[np.int64]  # (n,) the component of each user
    sums: Floats  # (n, p) by component; with `one_hop` one row, the neighbourhood of user n[0]
    n: NDArray[np.int64]  # components so far, searches so far
    marks: NDArray[np.int64]  # (n,) the last search that visited each user
    room: NDArray[np.int64]  # (4, n) working memory


class Club:
    """Settings, the graph and the users' sums.

    Past users (`history`) are in the graph with their sums, and the edges among them are tested once.  A new user has
    edges to all users, or to a random sample of them.

    >>> club = Club(n_features=2, n_users=3, threshold=0.3)
    >>> context, rng = np.eye(2), np.random.default_rng(0)
    >>> for user, reward in [("ann", 1.0), ("ann", 1.0), ("bob", -1.0), ("bob", -1.0), ("ann", 1.0)]:
    ...     club.update(user, club.choose(user, context[:1], rng), reward)
    >>> club.cluster_of("ann"), club.cluster_of("bob")
    (['ann'], ['bob'])
    """

    def __init__(
        self,
        n_features: int,
        n_users: int,
        *,
        threshold: float = 0.4,
        width: float = 0.25,
        ridge: float = 1.0,
        graph: Literal["complete", "sparse"] = "complete",
        degree: float | None = None,
        one_hop: bool = False,
        log_bonus: bool = True,
        history: UserStats | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        """`degree` is the expected number of neighbours in a sparse initial graph; None: 3 ln n."""
        self._places = Places(n_features, n_users, history)
        _check(threshold, width, ridge, graph, degree, len(self._places), rng)
        self.threshold, self.width, self.ridge = threshold, width, ridge
        self.one_hop, self.log_bonus = one_hop, log_bonus
        n, d = len(self._places), n_features
        if graph == "complete":
            self._graph = build_complete_graph(n)
        else:
            assert rng is not None
            self._graph = build_sparse_graph(n, 3 * np.log(n) if degree is None else degree, np.random.default_rng(rng))
        stats, count = self._places.start_stats()
        self._users = _Users(stats, count, np.zeros((n, d)), np.full(n, float(threshold)))
        self._components = _Components(
            label=np.zeros(n, np.int64),
            sums=np.zeros(stats.shape),
            n=np.zeros(2, np.int64),
            marks=np.zeros(n, np.int64),
            room=np.empty((4, n), np.int64),
        )
        self.n_decisions = int(count.sum())
        self._begin()

    def _begin(self) -> None:
        """Estimate the past users, test the edges among them, and number the components."""
        from lcb.recommenders.clustering._club_numba import delete_past_edges, estimate
        from lcb.recommenders.clustering._graph_numba import find_components

        for i in np.flatnonzero(self._users.n_rewards):
            estimate(i, self._users, self.ridge, self.threshold)
        delete_past_edges(self._places.n_past, self._graph, self._users)
        if self.one_hop:
            self._components.n[0] = -1
        else:
            self._components.n[0] = find_components(self._graph, self._components.label)
            np.add.at(self._components.sums, self._components.label, self._users.stats)

    def start(self, user: Hashable) -> None:
        self._places.assign(user)

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        from lcb.recommenders.clustering._club_numba import delete_edges, scores_for, width_at

        i, scores = self._places.assign(user), np.empty(len(context))
        width = width_at(self.n_decisions + 1, float(self.width), self.log_bonus)
        arrays = self._graph, self._users, self._components, self.one_hop
        scores_for(i, *arrays, self.ridge, width, np.ascontiguousarray(context, np.float64), scores)
        decision = Decision.best(scores, context, rng.random())
        self.n_decisions += 1
        delete_edges(i, *arrays)
        return decision

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        from lcb.recommenders.clustering._club_numba import learn

        check_reward(reward)
        i, x = self._places.find(user), np.ascontiguousarray(decision.x, np.float64)
        learn(i, self._users, self._components, self.one_hop, self.ridge, self.threshold, x, float(reward))

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve users one after another, each through all steps; compiled."""
        from lcb.recommenders.clustering._club_numba import serve_club

        play = self._places.arrange_play(users, contexts, rewards, rng)
        arrays = self._graph, self._users, self._components
        settings = self.one_hop, self.ridge, self.threshold, self.width, self.log_bonus
        serve_club(play, self.n_decisions, *arrays, *settings)
        self.n_decisions += play.arms.size
        return play.arms

    def neighbours_of(self, user: Hashable) -> list[Hashable]:
        """Return the started users with an edge to this one."""
        from lcb.recommenders.clustering._graph_numba import neighbours

        found = self._components.room[3]
        n_found = neighbours(self._graph, self._places.find(user), found)
        return self._places.list_names(found[:n_found])

    def cluster_of(self, user: Hashable) -> list[Hashable]:
        """Return the started users whose rewards the next decision for this user is based on."""
        i = self._places.find(user)
        if self.one_hop:
            return [user, *self.neighbours_of(user)]
        return self._places.list_names(np.flatnonzero(self._components.label == self._components.label[i]))


def _check(
    threshold: float,
    width: float,
    ridge: float,
    graph: str,
    degree: float | None,
    n: int,
    rng: np.random.Generator | int | None,
) -> None:
    for name, value in (("threshold", threshold), ("width", width)):
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"{name}={value}; it must be 0 or more")
    if not (np.isfinite(ridge) and ridge > 0):
        raise InputError(f"ridge={ridge}; it must be a positive number")
    if graph not in ("complete", "sparse"):
        raise InputError(f"graph={graph!r}; it is 'complete' or 'sparse' (a random one)")
    if graph == "complete" and degree is not None:
        raise InputError(f"degree={degree} with graph='complete', which has all edges; give graph='sparse'")
    if graph == "complete" and n > MOST_COMPLETE:
        raise InputError(
            f"a complete graph of {n:,} users takes {n * n / 1e9:.1f} GB; use graph='sparse', "
            f"or at most {MOST_COMPLETE:,} users, past ones included"
        )
    if degree is not None and not 0 <= degree < n:
        raise InputError(f"degree={degree}; give an expected number of neighbours, below the {n:,} users")
    if graph == "sparse" and rng is None:
        raise InputError("a sparse initial graph is random; give rng")
