"""CoFineUCB: new users' weights are regularised towards the subspace of past users (Yue, Hong & Guestrin 2012, ICML).

    profiles   w_u = (profile_ridge I + X_u'X_u)^-1 X_u'r_u           of every past user, the columns of W (d, users)
    subspace   A S B' = W        U = A_k diag(omega)^1/2        omega_i = k s_i / sum_k s          (Algorithm 2, LearnU)
    per user   Algorithm 1, `CoarseFineUCB`, with that U

Among diagonal matrices of trace k, omega makes the past users' coordinates in U smallest: directions in which they
differ little are short, and the coarse estimate uses them less.  W is computed from `history`; without it, LinUCB
serves the first `n_warmup_users`, and W is computed from their rewards.  The subspace is relearned after every
`retrain_every` users; a user keeps the one that was current when they started.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, Bandit, serve
from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.recommenders.recommender import Users
from lcb.recommenders.relearning import Schedule, build_warmup, select_taken_rows, serve_between_trainings
from lcb.stats import StatsBuilder, UserStats

_WARMUP = -1


class CofineUCB:
    """Settings, the subspaces so far, the users, and the statistics of their rewards.

    >>> past = UserStats.from_rows(["ann", "ann", "bob", "bob"], np.eye(2)[[0, 1, 0, 1]], [0.9, 1.1, -1.1, -0.9])
    >>> recommender = CofineUCB(n_features=2, n_coarse=1, history=past)
    >>> np.abs(recommender.subspaces[0].round(3))
    array([[0.707],
           [0.707]])
    """

    def __init__(
        self,
        n_features: int,
        n_coarse: int = 5,
        *,
        width: float = 0.1,
        ridge: float = 3.0,
        coarse_ridge: float = 0.1,
        profile_ridge: float = 1.0,
        n_warmup_users: int = 50,
        warmup: Literal["pooled", "individual"] = "pooled",
        warmup_bandit: Bandit | None = None,
        retrain_every: int | None = 50,
        history: UserStats | None = None,
    ) -> None:
        _check(n_features, n_coarse, profile_ridge, history)
        self.n_coarse, self.profile_ridge = n_coarse, profile_ridge
        self._template = CoarseFineUCB(np.eye(n_features), width, ridge, coarse_ridge)
        self.schedule = Schedule(n_warmup_users, retrain_every, trained=bool(history is not None and history.n_users))
        self.warmup = build_warmup(warmup, warmup_bandit, n_features)
        self.subspaces: list[Floats] = []
        self._bandits: list[CoarseFineUCB] = []
        self._users: dict[Hashable, int] = {}  # the number of each user's subspace
        self._states: dict[Hashable, Floats] = {}  # of the users with a subspace
        self._data = StatsBuilder(n_features)
        self._past = fit_profiles(history, profile_ridge) if history is not None else np.empty((0, n_features))
        if len(self._past):
            self._learn()

    def version_of(self, user: Hashable) -> int | None:
        """Return the number of this user's subspace; None for a warm-up user, served by LinUCB."""
        version = self._get_version(user)
        return None if version == _WARMUP else version

    def state_of(self, user: Hashable) -> Floats | None:
        """Return the state of this user's `CoarseFineUCB`; None for a warm-up user."""
        self._get_version(user)
        return self._states.get(user)

    def start(self, user: Hashable) -> None:
        if user in self._users:
            return
        self._train_if_due()
        self._users[user] = len(self._bandits) - 1  # _WARMUP if there is no bandit yet
        if self._bandits:
            self._states[user] = self._bandits[-1].start()
        else:
            self.warmup.start(user)

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        self.start(user)
        version = self._users[user]
        if version == _WARMUP:
            return self.warmup.choose(user, context, rng)
        return self._bandits[version].choose(self._states[user], context, rng)

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        version = self._get_version(user)
        if version == _WARMUP:
            self.warmup.update(user, decision, reward)
        else:
            self._states[user] = self._bandits[version].update(self._states[user], decision, reward)
        self._data.add([user], decision.x[None], np.array([reward], float))

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve new users one after another, each through all steps; compiled."""
        return serve_between_trainings(self._serve_version, self._train_if_due, users, contexts, rewards, rng)

    def _serve_version(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve users who all get the same subspace."""
        if not self._bandits:
            arms = self.warmup.serve(users, contexts, rewards, rng)
        else:
            states = np.tile(self._bandits[-1].start(), (len(users), 1))
            states, arms = serve(self._bandits[-1], states, contexts, rewards, rng)
            self._states.update(zip(users, states, strict=True))
        self._users.update((user, len(self._bandits) - 1) for user in users)
        self._data.add(*select_taken_rows(users, contexts, rewards, arms))
        return arms

    def _get_version(self, user: Hashable) -> int:
        if user not in self._users:
            raise InputError(f"user {user!r} has not started; choose for them first")
        return self._users[user]

    def _train_if_due(self) -> int:
        """Learn if training is due; return the number of users that may start before it can be due again."""
        if self.schedule.is_due(len(self._users), self._data.n_users):
            self._learn()
            self.schedule.plan_next(len(self._users))
        return self.schedule.n_users_until_due(len(self._users))

    def _learn(self) -> None:
        everyone = [self._past]
        if self._data.n_users:
            everyone.append(fit_profiles(self._data.build(), self.profile_ridge))
        self.subspaces.append(learn_subspace(np.concatenate(everyone), self.n_coarse))
        self._bandits.append(replace(self._template, subspace=self.subspaces[-1]))


def fit_profiles(stats: UserStats, ridge: float) -> Floats:
    """Return the ridge weights of every user, (users, d)."""
    gram = stats.gram + ridge * np.eye(stats.n_features)
    return np.linalg.solve(gram, stats.moment[..., None])[..., 0]


def learn_subspace(weights: Floats, n_coarse: int) -> Floats:
    """Return U (d, k) from past users' `weights` (users, d); k is `n_coarse`, or the number of users if smaller.

    For one user at (3, 0) and one at (0, 1), s = (3, 1) and omega = 2 s / 4.

    >>> (learn_subspace(np.array([[3.0, 0.0], [0.0, 1.0]]), 2) ** 2).round(3)
    array([[1.5, 0. ],
           [0. , 0.5]])
    """
    directions, sizes, _ = np.linalg.svd(weights.T, full_matrices=False)
    sizes = sizes[:n_coarse]
    total = sizes.sum()
    omega = len(sizes) * sizes / total if total > 0 else np.ones(len(sizes))
    return directions[:, :n_coarse] * np.sqrt(omega)


def _check(n_features: int, n_coarse: int, profile_ridge: float, history: UserStats | None) -> None:
    if not 1 <= n_coarse <= n_features:
        raise InputError(f"n_coarse={n_coarse}; a subspace of {n_features} features has 1 to {n_features} dimensions")
    if not (np.isfinite(profile_ridge) and profile_ridge > 0):
        raise InputError(f"profile_ridge={profile_ridge}; it must be a positive number")
    if history is not None and history.n_features != n_features:
        raise InputError(f"history has {history.n_features} features, n_features={n_features}; give the same number")
