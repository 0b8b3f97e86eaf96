"""SCLUB, clusters as sets that split and merge (Li, Chen, Li & Leung 2019, IJCAI, arXiv:1902.09162, Algorithm 1).

All users start in one cluster.  Phase s = 1, 2, ... has 2^s rounds; at its start every cluster's estimate is stored
(~theta^j, ~T^j) and every user is unchecked.  In round tau user i of cluster j is served and

    play argmax_a  theta^j . x_a + width sqrt(x_a' A_j^-1 x_a)      (width is the publication's beta)
    add the reward to i and j
    split  i becomes a cluster of its own if  ||theta_i - ~theta^j|| > threshold (F(T_i) + F(~T^j)),
           or |T_i - T_l| / tau > 2 frequency F(tau) for another user l of j     (alpha_theta, alpha_p)
    check  i; a cluster is checked when all its users are
    merge  checked clusters with  ||theta^j - theta^k|| < threshold / 2 (F(T^j) + F(T^k))
           and |T^j / |j| - T^k / |k|| / tau < frequency F(tau);  the first such pair, until there is none
    F(T) = sqrt((1 + ln(1 + T)) / (1 + T))

Our choices: a new cluster's ~theta is the user's own estimate until the next phase; it gets the lowest free number, and
pairs are merged in the order of their numbers.  Split, check and merge happen at the next decision, in the order of the
users' rows, so rewards may come in any order.

A decision costs O(K d^2 + d^3), a reward O(d^3 + clusters d + users).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.decision import Decision, check_reward
from lcb.errors import InputError
from lcb.recommenders.clustering._places import Places
from lcb.recommenders.recommender import Users
from lcb.stats import UserStats


class _Users(NamedTuple):
    sums: Floats  # (n, p) of a user's own rewards: the upper triangle of sum x x', then sum r x
    n_rewards: Floats  # (n,)
    theta: Floats  # (n, d)
    spread: Floats  # (n,) F(T)
    label: NDArray[np.int64]  # (n,) the cluster of each
    checked: NDArray[np.bool_]  # (n,) in this phase


class _Clusters(NamedTuple):
    """The clusters by number; a number without users is free."""

    sums: Floats  # (n, p)
    n_rewards: Floats  # (n,)
    theta: Floats  # (n, d)
    spread: Floats  # (n,) F(T)
    pivot: Floats  # (n, d) ~theta
    pivot_spread: Floats  # (n,) F(~T)
    size: NDArray[np.int64]  # (n,) users
    n_checked: NDArray[np.int64]  # (n,) of them
    n_ids: NDArray[np.int64]  # (1,) numbers ever used
    gap: Floats  # (1,) see `_find_pair`


class Sclub:
    """Settings, the clusters and the users' sums.

    Past users (`history`) start in the same cluster as the new ones; a first phase without rewards splits them, and
    after it they always count as checked.

    >>> sclub = Sclub(n_features=2, n_users=3, threshold=0.3)
    >>> context, rng = np.eye(2), np.random.default_rng(0)
    >>> for user, reward in [("ann", 1.0), ("ann", 1.0), ("bob", -1.0), ("bob", -1.0)]:
    ...     sclub.update(user, sclub.choose(user, context[:1], rng), reward)
    >>> sclub.cluster_of("ann"), sclub.cluster_of("bob")
    (['ann'], ['bob'])
    """

    def __init__(
        self,
        n_features: int,
        n_users: int,
        *,
        threshold: float = 0.5,
        frequency: float = 2**0.5,
        width: float = 0.25,
        ridge: float = 1.0,
        history: UserStats | None = None,
    ) -> None:
        self._places = Places(n_features, n_users, history)
        for name, value in (("threshold", threshold), ("frequency", frequency), ("width", width)):
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name}={value}; it must be 0 or more")
        if not (np.isfinite(ridge) and ridge > 0):
            raise InputError(f"ridge={ridge}; it must be a positive number")
        self.threshold, self.frequency, self.width, self.ridge = threshold, frequency, width, ridge
        n, d = len(self._places), n_features
        sums, count = self._places.start_stats()
        self._users = _Users(sums, count, np.zeros((n, d)), np.ones(n), np.zeros(n, np.int64), np.zeros(n, np.bool_))
        self._clusters = _Clusters(
            sums=np.zeros(sums.shape),
            n_rewards=np.zeros(n),
            theta=np.zeros((n, d)),
            spread=np.ones(n),
            pivot=np.zeros((n, d)),
            pivot_spread=np.ones(n),
            size=np.zeros(n, np.int64),
            n_checked=np.zeros(n, np.int64),
            n_ids=np.ones(1, np.int64),
            gap=np.array([np.inf]),
        )
        self.n_rewards = int(count.sum())
        self._rewarded: set[int] = set()  # since the last decision
        self._phase_end = 2
        self._begin()

    def _begin(self) -> None:
        from lcb.recommenders.clustering._sclub_numba import begin_phase, estimate

        users, clusters = self._users, self._clusters
        clusters.sums[0], clusters.n_rewards[0] = users.sums.sum(axis=0), users.n_rewards.sum()
        clusters.size[0] = len(self._places)
        estimate(clusters, 0, self.ridge)
        begin_phase(0, users, clusters)
        for i in range(self._places.n_past):
            estimate(users, i, self.ridge)
        self._rewarded.update(range(self._places.n_past))
        self._settle()

    def _settle(self) -> None:
        """Split, check and merge after the rewards since the last decision."""
        from lcb.recommenders.clustering._sclub_numba import begin_phase, settle

        for i in sorted(self._rewarded):
            settle(i, self.n_rewards, self._users, self._clusters, self.ridge, self.threshold, self.frequency)
        self._rewarded.clear()
        if self.n_rewards >= self._phase_end:
            begin_phase(self._places.n_past, self._users, self._clusters)
            while self.n_rewards >= self._phase_end:
                self._phase_end = 2 * self._phase_end + 2

    def start(self, user: Hashable) -> None:
        self._places.assign(user)

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        from lcb.recommenders.clustering._ridge_numba import ucb_scores

        i, scores = self._places.assign(user), np.empty(len(context))
        self._settle()
        sums = self._clusters.sums[self._users.label[i]]
        ucb_scores(sums, self.ridge, self.width, np.ascontiguousarray(context, np.float64), scores)
        return Decision.best(scores, context, rng.random())

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        from lcb.recommenders.clustering._sclub_numba import learn

        check_reward(reward)
        i, x = self._places.find(user), np.ascontiguousarray(decision.x, np.float64)
        learn(i, self._users, self._clusters, self.ridge, x, float(reward))
        self.n_rewards += 1
        self._rewarded.add(i)

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve users one after another, each through all steps; compiled."""
        from lcb.recommenders.clustering._sclub_numba import serve_sclub

        play = self._places.arrange_play(users, contexts, rewards, rng)
        self._settle()
        rounds = self.n_rewards, self._phase_end, self._places.n_past
        settings = self.ridge, self.threshold, self.frequency, self.width
        self._phase_end = serve_sclub(play, *rounds, self._users, self._clusters, *settings)
        self.n_rewards += play.arms.size
        return play.arms

    def cluster_of(self, user: Hashable) -> list[Hashable]:
        """Return the started users of the same cluster."""
        i = self._places.find(user)
        self._settle()
        return self._places.list_names(np.flatnonzero(self._users.label == self._users.label[i]))
